"""Open one split of a data set: images, boxes, classes, and the account of every label row."""

from __future__ import annotations

import hashlib
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lucid_yolo.data.account import RowAccount
from lucid_yolo.data.index_cache import INDEX_CODEC, Codec, IndexCache
from lucid_yolo.data.readers.coco import find_coco_jsons, read_coco, read_coco_classes
from lucid_yolo.data.readers.inputs import InputTrace
from lucid_yolo.data.readers.labelme import LABELME, looks_like_labelme
from lucid_yolo.data.readers.layout import NAME_FILES, DataConfig, Split, load_config
from lucid_yolo.data.readers.listing import first_source, label_folders
from lucid_yolo.data.readers.objects import ObjectFormat, collect_classes, read_objects
from lucid_yolo.data.readers.voc import VOC
from lucid_yolo.data.readers.yolo import NOT_LABELS, read_yolo
from lucid_yolo.structures import ClassMap, ImageRecord

SourceFormat = Literal["auto", "yolo", "coco", "voc", "labelme"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")

_OBJECT_FORMATS: dict[str, ObjectFormat] = {"voc": VOC, "labelme": LABELME}
_TASK = "detect"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DataSplit:
    """One split, read.

    Attributes:
        records: Images and boxes, sorted by path.
        class_map: Classes of the whole data set.
        account: What became of every label row.
        source_format: ``"yolo"``, ``"coco"``, ``"voc"`` or ``"labelme"``.
        root: Folder that the data set's paths start from.
    """

    records: tuple[ImageRecord, ...]
    class_map: ClassMap
    account: RowAccount
    source_format: str
    root: Path


def open_split(
    data_root: str | Path, split: Split, source_format: SourceFormat = "auto", cache_dir: str | Path | None = None
) -> DataSplit:
    """Read one split of a data set, or take it from the index cache if nothing changed since it was read.

    Args:
        data_root: A folder, or a data YAML.
        split: ``"train"``, ``"val"`` or ``"test"``; ``valid`` folders count as ``val``.
        source_format: Format of the labels; ``"auto"`` looks.
        cache_dir: Folder of the index cache, never below the data set; None for the user's cache folder.

    Returns:
        The records, sorted by path. Unusable rows and images are in the account, never an error here; call
        ``account.check()`` before training.

    Raises:
        FileNotFoundError: ``data_root`` does not exist.
        ValueError: The split or the class names cannot be found.
    """
    config = load_config(data_root)
    cache = IndexCache(None if cache_dir is None else Path(cache_dir))
    found_format = _detect_format(config) if source_format == "auto" else source_format
    class_map = _read_classes(config, found_format, cache)
    identity = _identity(config, found_format) | {"split": split, "classes": class_map.to_dict()}

    def read(inputs: InputTrace) -> tuple[tuple[ImageRecord, ...], RowAccount]:
        return _read_split(config, split, found_format, class_map, inputs)

    if found_format == "coco":
        identity["json"] = [str(path) for path in find_coco_jsons(config, split)]
    records, account = cache.fetch(identity, INDEX_CODEC, read)
    _log.info("%s: split %s read as %s, %d images", config.root, split, found_format, len(records))
    return DataSplit(records, class_map, account, found_format, config.root)


def read_class_map(
    data_root: str | Path, source_format: SourceFormat = "auto", cache_dir: str | Path | None = None
) -> ClassMap:
    """Read the classes of a data set without reading its labels, unless only the labels name them.

    Args:
        data_root: A folder, or a data YAML.
        source_format: Format of the labels; ``"auto"`` looks.
        cache_dir: As in :func:`open_split`.

    Raises:
        FileNotFoundError: ``data_root`` does not exist.
        ValueError: No class names are given anywhere.
    """
    config = load_config(data_root)
    found_format = _detect_format(config) if source_format == "auto" else source_format
    return _read_classes(config, found_format, IndexCache(None if cache_dir is None else Path(cache_dir)))


def list_splits(data_root: str | Path, source_format: SourceFormat = "auto") -> tuple[Split, ...]:
    """Return the splits that a data set names or has folders for.

    Args:
        data_root: A folder, or a data YAML.
        source_format: Format of the labels; ``"auto"`` looks.

    Raises:
        FileNotFoundError: ``data_root`` does not exist.
    """
    config = load_config(data_root)
    if (_detect_format(config) if source_format == "auto" else source_format) == "coco":
        return tuple(split for split in SPLITS if find_coco_jsons(config, split))
    return tuple(split for split in SPLITS if split in config.entries)


def _read_split(
    config: DataConfig, split: Split, source_format: str, class_map: ClassMap, inputs: InputTrace
) -> tuple[tuple[ImageRecord, ...], RowAccount]:
    if source_format in _OBJECT_FORMATS:
        return read_objects(_OBJECT_FORMATS[source_format], config, split, class_map, inputs)
    if source_format != "coco":
        return read_yolo(config, split, class_map, inputs)
    paths = find_coco_jsons(config, split)
    if not paths:
        raise ValueError(f"split {split!r}: expected a COCO JSON for it under {config.root}, found none")
    return read_coco(config, split, paths, class_map, inputs)


def _identity(config: DataConfig, source_format: str) -> dict[str, Any]:
    """Return everything but the labels and images that the reading of a data set depends on."""
    yaml_bytes = b"" if config.yaml_path is None else config.yaml_path.read_bytes()
    return {
        "task": _TASK,
        "format": source_format,
        "root": str(config.root),
        "yaml": [str(config.yaml_path), hashlib.sha256(yaml_bytes).hexdigest()],
        "entries": {split: [str(entry) for entry in entries] for split, entries in config.entries.items()},
        "names": None if config.class_map is None else config.class_map.to_dict(),
        "labels_root": str(config.labels_root),
        "keypoint_shape": config.keypoint_shape,
    }


def _detect_format(config: DataConfig) -> Literal["yolo", "coco", "voc", "labelme"]:
    """Look which labels there are.

    COCO when the YAML names a JSON, or there is no YAML but a COCO JSON; then whatever lies where the labels of a
    split's first image would be: YOLO text, VOC XML, labelme JSON; YOLO when there is nothing.
    """
    names_json = any(entry.suffix.lower() == ".json" for entries in config.entries.values() for entry in entries)
    if names_json or (config.yaml_path is None and _any_coco_json(config) is not None):
        return "coco"
    for split in SPLITS:
        source = first_source(config, split)
        folders = [] if source is None else label_folders(source, config)
        if any(_has_label(folder, ".txt") for folder in folders):
            return "yolo"
        if any(_has_label(folder, ".xml") for folder in folders):
            return "voc"
        if any(_has_label(folder, ".json") for folder in folders):
            return "labelme"
    return "yolo"


def _has_label(folder: Path, suffix: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            found = (Path(e.path) for e in entries if e.name.lower().endswith(suffix) and not e.name.startswith("."))
            if suffix == ".json":
                return any(map(looks_like_labelme, found))
            return any(path.name.lower() not in NOT_LABELS for path in found)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _any_coco_json(config: DataConfig) -> Path | None:
    """Return the JSON that names the classes: the training split's, else another's."""
    return next((paths[0] for split in SPLITS if (paths := find_coco_jsons(config, split))), None)


def _read_classes(config: DataConfig, source_format: str, cache: IndexCache) -> ClassMap:
    if source_format in _OBJECT_FORMATS and config.class_map is None:
        label_format = _OBJECT_FORMATS[source_format]
        return cache.fetch(
            _identity(config, source_format), _CLASS_CODEC, lambda inputs: collect_classes(label_format, config, inputs)
        )
    if source_format == "coco":
        path = _any_coco_json(config)
        if path is None:
            raise ValueError(f"data_root: expected a COCO JSON under {config.root}, found none")
        return cache.fetch({"classes of": str(path)}, _CLASS_CODEC, lambda inputs: _read_coco_classes(path, inputs))
    if config.class_map is None:
        files = ", ".join(NAME_FILES[:2])
        where = config.yaml_path or f"{config.root} (neither a data.yaml, {files} nor a COCO JSON)"
        raise ValueError(f"class names: expected `names` (a list, or a map from id to name), found none in {where}")
    return config.class_map


def _read_coco_classes(path: Path, inputs: InputTrace) -> ClassMap:
    inputs.add_file(path)
    return read_coco_classes(path)


def _encode_classes(class_map: ClassMap) -> dict[str, np.ndarray]:
    return {"names": np.array(class_map.names, np.str_), "source_ids": np.array(class_map.source_ids, np.int64)}


_CLASS_CODEC: Codec[ClassMap] = Codec(
    _encode_classes, lambda arrays: ClassMap(tuple(arrays["names"].tolist()), tuple(arrays["source_ids"].tolist()))
)
