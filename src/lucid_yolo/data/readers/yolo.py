"""YOLO text labels: one file per image, one row per object, ``class cx cy w h`` in fractions of the upright image.

* A row of ``1 + 2·n`` numbers, n >= 3, is a polygon (or oriented corners) and becomes its box and outline. With
  ``kpt_shape`` a row of ``5 + K·D`` numbers is a box with keypoints.
* An image without a label file is background. Rows of label files without an image are dropped, and said so.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np

from lucid_yolo.data.account import AccountBuilder, RowAccount
from lucid_yolo.data.image import ImageHeader
from lucid_yolo.data.readers.boxes import (
    Box,
    RecordBuilder,
    RowError,
    bound_points,
    enter_box,
    enter_record,
    read_headers,
)
from lucid_yolo.data.readers.inputs import InputTrace
from lucid_yolo.data.readers.layout import DataConfig, Split
from lucid_yolo.data.readers.listing import LabelFinder, find_sources, name_images, split_rows
from lucid_yolo.structures import ClassMap, ImageRecord

NOT_LABELS = frozenset({"classes.txt", "labels.txt", "readme.txt", "predefined_classes.txt"})


def read_yolo(
    config: DataConfig, split: Split, class_map: ClassMap, inputs: InputTrace
) -> tuple[tuple[ImageRecord, ...], RowAccount]:
    """Read one split.

    Args:
        config: Where things are.
        split: Which split.
        class_map: Classes; a row's class is looked up among the source ids.
        inputs: Takes every file and folder that was looked at.

    Returns:
        Records sorted by path, and the account of every row.

    Raises:
        ValueError: The split is not named, or its images are not there.
    """
    account = AccountBuilder()
    sources = find_sources(config, split, account, inputs)
    image_ids = name_images(sources, config.root)
    headers = read_headers([source.path for source in sources])
    reader = _RowReader(class_map, config.keypoint_shape)
    records = []
    label_paths = list(map(LabelFinder(config, ".txt", inputs).find, sources))
    for source, image_id, label_path, header in zip(sources, image_ids, label_paths, headers, strict=True):
        record = _read_image_rows(source.path, image_id, label_path, header, reader, account)
        if record is not None:
            records.append(record)
    for path, count in sorted(Counter(label_paths).items()):
        if count > 1 and path.is_file():
            account.note("label file shared by several images", str(path))
    _drop_orphans(config, split, set(label_paths), account)
    return tuple(records), account.freeze()


def parse_row(row: str, class_map: ClassMap, keypoint_shape: tuple[int, int] | None = None) -> tuple[int, Box]:
    """Return (contiguous label, box) of one label row.

    Raises:
        RowError: The row cannot be used; the reason and what was expected are in the error.
    """
    row_reader = _RowReader(class_map, keypoint_shape)
    label, values = row_reader.parse(row)
    return label, row_reader.bound(values)


class _RowReader:
    """Turns one text row into a label and a box."""

    def __init__(self, class_map: ClassMap, keypoint_shape: tuple[int, int] | None) -> None:
        self._label_by_id = {source_id: label for label, source_id in enumerate(class_map.source_ids)}
        self._names = frozenset(class_map.names)
        ids = class_map.source_ids
        is_range = len(ids) > 1 and list(ids) == list(range(ids[0], ids[0] + len(ids)))
        self._expected_ids = f"an integer {ids[0]}..{ids[-1]}" if is_range else f"one of {list(ids)}"
        self._keypoint_shape = keypoint_shape

    def parse(self, row: str) -> tuple[int, list[float]]:
        if "\ufffd" in row or "\0" in row:
            raise RowError("not UTF-8 text", f"found {row[:40]!r}, expected plain numbers in UTF-8")
        fields = row.split()
        label = self._parse_class(fields[0], row)
        try:
            values = [float(text) for text in fields[1:]]
        except ValueError as error:
            raise RowError("not a number", f"found {row[:60]!r}, expected {self._expected_fields()}") from error
        return label, values

    def outline(self, values: list[float]) -> list[np.ndarray]:
        """Return the ring of a polygon row whose numbers are good; nothing for other rows."""
        return [] if self._is_box(values) else [np.array(values).reshape(-1, 2)]

    def _is_box(self, values: list[float]) -> bool:
        num_keypoint_values = math.prod(self._keypoint_shape) if self._keypoint_shape else 0
        return len(values) in (4, 4 + num_keypoint_values)

    def _parse_class(self, text: str, row: str) -> int:
        try:
            value = float(text)
        except ValueError as error:
            if "," in text or ";" in text:
                raise RowError("wrong separator", f"found {row[:60]!r}, expected blanks between numbers") from error
            if text in self._names or any(row.startswith(name + " ") for name in self._names):
                raise RowError("class name instead of id", f"found {text!r}, expected {self._expected_ids}") from error
            raise RowError("class is not a number", f"found {text!r}, expected {self._expected_ids}") from error
        if not math.isfinite(value) or value != int(value):
            raise RowError("class is not an integer", f"found {text}, expected {self._expected_ids}")
        if int(value) not in self._label_by_id:
            raise RowError("class id unknown", f"found {text}, expected {self._expected_ids}")
        return self._label_by_id[int(value)]

    def bound(self, values: list[float]) -> Box:
        if self._is_box(values):
            cx, cy, w, h = values[:4]
            if w <= 0 or h <= 0:
                raise RowError("empty box", f"found width {w:g} and height {h:g}, expected both above 0")
            return bound_points((cx - w / 2, cx + w / 2), (cy - h / 2, cy + h / 2))
        if len(values) >= 6 and len(values) % 2 == 0 and self._keypoint_shape is None:
            return bound_points(values[0::2], values[1::2])
        raise RowError("wrong number of fields", f"found {len(values) + 1} fields, expected {self._expected_fields()}")

    def _expected_fields(self) -> str:
        if self._keypoint_shape:
            k, d = self._keypoint_shape
            return f"5 or 5 + K·D = {5 + k * d} with K={k}, D={d} from `kpt_shape`"
        return "5 (class cx cy w h) or 1 + 2·n with n >= 3 (polygon)"


def _read_image_rows(
    path: Path,
    image_id: str,
    label_path: Path,
    header: ImageHeader | str,
    reader: _RowReader,
    account: AccountBuilder,
) -> ImageRecord | None:
    """Read one label file; None when its image is unusable, its rows dropped for it."""
    try:
        rows = list(split_rows(label_path))
    except FileNotFoundError:
        rows = []
        account.note("image without a label file (background)", f"{path}, looked for {label_path}")
    if isinstance(header, str):
        account.leave_out(str(path), header)
        for line, _ in rows:
            account.drop(f"{label_path}:{line}", "image unusable", header)
        return None
    size_src = (header.height_src, header.width_src)
    builder = RecordBuilder(num_label_rows=len(rows))
    seen: set[str] = set()
    for line, row in rows:
        where = f"{label_path}:{line}"
        try:
            label, values = reader.parse(row)
            box = reader.bound(values)
        except RowError as error:
            account.drop(where, error.reason, error.detail)
            continue
        if row in seen:
            account.note("row repeated in its file (kept)", where)
        seen.add(row)
        builder.append(box, label, size_src, rings_xy_norm=reader.outline(values))
        enter_box(account, where, box)
    record = builder.freeze(path, image_id, size_src)
    enter_record(account, record, header)
    return record


def _drop_orphans(config: DataConfig, split: Split, used: set[Path], account: AccountBuilder) -> None:
    """Drop the rows of label files whose image does not exist; only where a ``labels`` folder is one split's own."""
    if config.labels_root is not None or any(not entry.is_dir() for entry in config.entries[split]):
        return
    folders = {path.parent for path in used if "labels" in path.parent.parts and path.parent.is_dir()}
    for folder in sorted(folders):
        for path in sorted(folder.glob("*.txt")):
            if path not in used and path.name.lower() not in NOT_LABELS:
                for line, _ in split_rows(path):
                    account.drop(f"{path}:{line}", "no image for this label file")
