"""What a reader found, kept outside the data set and used again only while every input is unchanged.

A file of the cache belongs to one identity (data root, split, format, YAML hash, classes, schema). It holds the list of
files and folders that were looked at and a fingerprint of them: names, sizes, modification and change times. Any
difference, and the split is read again. Inputs that changed within ``SETTLE_S`` of reading are not trusted to show a
later change in their times, so nothing is stored for them. Cache files are arrays and JSON, never pickles.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from lucid_yolo.data.account import LeftOut, Note, RowAccount, RowEntry
from lucid_yolo.data.polygons import join_polygons, polygons_part
from lucid_yolo.data.readers.inputs import InputTrace
from lucid_yolo.data.readers.layout import IMAGE_SUFFIXES
from lucid_yolo.structures import ImageRecord, Polygons

SCHEMA_VERSION = 2
SETTLE_S = 2.0

Index = tuple[tuple[ImageRecord, ...], RowAccount]
Arrays = dict[str, np.ndarray]
Content = TypeVar("Content")

_log = logging.getLogger(__name__)


def default_cache_dir() -> Path:
    """Return ``$XDG_CACHE_HOME/lucid-yolo/index``, or the same below ``~/.cache``."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home, "lucid-yolo", "index")


@dataclass(frozen=True)
class Codec(Generic[Content]):
    """How a kind of content becomes arrays and back."""

    encode: Callable[[Content], Arrays]
    decode: Callable[[Mapping[str, np.ndarray]], Content]


class IndexCache:
    """A folder of cached indices; a folder that cannot be written is named once and then does without.

    Args:
        folder: Where; None for :func:`default_cache_dir`.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = default_cache_dir() if folder is None else folder

    def fetch(
        self, identity: Mapping[str, Any], codec: Codec[Content], read: Callable[[InputTrace], Content]
    ) -> Content:
        """Return what is cached for an identity, else what ``read`` returns, which is stored.

        Processes that ask at once wait for the first of them.

        Args:
            identity: Plain values; equal identities read the same places in the same way.
            codec: Of the content.
            read: Does the work, and enters everything it looked at.
        """
        text = json.dumps({**identity, "schema": SCHEMA_VERSION}, sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()[:32]
        path = self._folder / f"{name}.npz"
        found = _load(path, codec)
        if found is not None:
            return found
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            _log.warning("index cache: %s cannot be made (%s); labels are read anew every time", self._folder, error)
            return read(InputTrace())
        with _locked(self._folder / f"{name[:1]}.lock"):
            found = _load(path, codec)
            return _read_and_store(path, codec, read) if found is None else found


def _load(path: Path, codec: Codec[Content]) -> Content | None:
    """Return the content of a cache file; None if there is none, it is damaged, or an input changed."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            inputs = json.loads(str(arrays["inputs"]))
            trace = InputTrace(set(inputs["folders"]), set(inputs["files"]))
            if trace.fingerprint(IMAGE_SUFFIXES).digest != inputs["digest"]:
                return None
            return codec.decode(arrays)
    except FileNotFoundError:
        return None
    except Exception as error:
        _log.warning("index cache: %s cannot be used (%s: %s); reading anew", path, type(error).__name__, error)
        return None


def _read_and_store(path: Path, codec: Codec[Content], read: Callable[[InputTrace], Content]) -> Content:
    started_s, trace = time.time(), InputTrace()
    content = read(trace)
    fingerprint = trace.fingerprint(IMAGE_SUFFIXES)
    if fingerprint.newest_s > started_s - SETTLE_S:
        _log.debug("index cache: inputs changed less than %g s ago, nothing stored", SETTLE_S)
        return content
    inputs = {"folders": sorted(trace.folders), "files": sorted(trace.files), "digest": fingerprint.digest}
    try:
        _write(path, {**codec.encode(content), "inputs": np.array(json.dumps(inputs))})
    except (OSError, UnicodeError) as error:
        _log.warning("index cache: %s cannot be written (%s); labels are read anew every time", path, error)
    return content


def _write(path: Path, arrays: Arrays) -> None:
    """Write whole or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock file where the system and the file system have locks; a few files serve all identities."""
    try:
        import fcntl

        file = path.open("a")
    except (ImportError, OSError):
        yield
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            _log.debug("index cache: no lock on %s: %s", path, error)
        yield


def encode_index(index: Index) -> Arrays:
    """Return records and account as arrays."""
    records, account = index
    joined = {name: _join([getattr(r, name) for r in records], shape, dtype) for name, shape, dtype in _ROW_ARRAYS}
    numbers = [[r.height_src, r.width_src, r.num_label_rows, len(r.labels)] for r in records]
    heads = [[r.path, r.image_id] for r in records]
    return {
        **joined,
        **vars(join_polygons(records)),
        "numbers": np.array(numbers, np.int64).reshape(-1, 4),
        "heads": _to_bytes(heads),
        "account": _to_bytes(account.to_dict()),
    }


def decode_index(arrays: Mapping[str, np.ndarray]) -> Index:
    """Invert :func:`encode_index`."""
    numbers, heads = arrays["numbers"].tolist(), json.loads(arrays["heads"].tobytes())
    rows = {name: arrays[name] for name, _, _ in _ROW_ARRAYS}
    polygons = Polygons(**{field.name: arrays[field.name] for field in fields(Polygons)})
    records, start = [], 0
    for (height, width, num_label_rows, num_rows), (path, image_id) in zip(numbers, heads, strict=True):
        span = slice(start, start + num_rows)
        part = {name: values[span] for name, values in rows.items()}
        outlines = polygons_part(polygons, span)
        records.append(
            ImageRecord(path, image_id, height, width, **part, num_label_rows=num_label_rows, polygons=outlines)
        )
        start += num_rows
    return tuple(records), _decode_account(json.loads(arrays["account"].tobytes()))


INDEX_CODEC: Codec[Index] = Codec(encode_index, decode_index)

_ROW_ARRAYS: tuple[tuple[str, tuple[int, ...], Any], ...] = (
    ("boxes_xyxy_src", (0, 4), np.float64),
    ("labels", (0,), np.int64),
    ("is_ignored", (0,), np.bool_),
    ("area_src", (0,), np.float64),
)


def _join(parts: Sequence[np.ndarray], empty_shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.concatenate([np.empty(empty_shape, dtype), *parts])


def _to_bytes(value: Any) -> np.ndarray:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def _decode_account(state: Mapping[str, Any]) -> RowAccount:
    return RowAccount(
        num_kept=state["rows"]["kept"],
        entries=tuple(RowEntry(e["bin"], e["reason"], e["where"], e["detail"]) for e in state["entries"]),
        num_images=state["images"]["total"],
        num_labelled_images=state["images"]["labelled"],
        left_out=tuple(LeftOut(item["path"], item["reason"]) for item in state["left_out"]),
        notes=tuple(Note(n["kind"], n["count"], tuple(n["examples"])) for n in state["notes"]),
    )
