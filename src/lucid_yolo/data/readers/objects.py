"""What formats with one file of named objects per image share: VOC XML and labelme JSON.

Corners are pixels of the image as declared in the file (:mod:`lucid_yolo.data.readers.frame`). Without class names in
a YAML or a ``classes.txt``, the classes are the names that occur in any split, sorted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lucid_yolo.data.account import AccountBuilder, RowAccount
from lucid_yolo.data.image import ImageHeader
from lucid_yolo.data.readers.boxes import Box, RecordBuilder, RowError, enter_box, enter_record, read_headers
from lucid_yolo.data.readers.frame import Frame
from lucid_yolo.data.readers.inputs import InputTrace
from lucid_yolo.data.readers.layout import DataConfig, Split
from lucid_yolo.data.readers.listing import LabelFinder, find_sources, name_images
from lucid_yolo.structures import ClassMap, ImageRecord


@dataclass(frozen=True)
class LabelledObject:
    """One object of a label file.

    Attributes:
        where: Its place, as in ``file:object[3]``.
        name: Class name; None for an ignore region of no class.
        corners_xyxy: In declared pixels.
        ignore_reason: Why it is an ignore region; empty for an object.
        fault: Why it cannot be used; None if it can.
    """

    where: str
    name: str | None
    corners_xyxy: tuple[float, float, float, float]
    ignore_reason: str = ""
    fault: RowError | None = None


@dataclass(frozen=True)
class LabelFile:
    """One parsed label file; a size that is not declared is None."""

    height: int | None
    width: int | None
    objects: tuple[LabelledObject, ...]


@dataclass(frozen=True)
class ObjectFormat:
    """One format.

    Attributes:
        title: As it is named in remarks.
        suffix: Of label files.
        parse: Reads one label file; raises ``ValueError`` when the file is none of the format.
    """

    title: str
    suffix: str
    parse: Callable[[Path], LabelFile]


def read_objects(
    label_format: ObjectFormat, config: DataConfig, split: Split, class_map: ClassMap, inputs: InputTrace
) -> tuple[tuple[ImageRecord, ...], RowAccount]:
    """Read one split.

    Args:
        label_format: How label files are read.
        config: Where things are.
        split: Which split.
        class_map: Classes; an object's class is looked up by name.
        inputs: Takes every file and folder that was looked at.

    Returns:
        Records sorted by path, and the account of every object. An image whose label file cannot be read at all is
        left out: it would count as background.

    Raises:
        ValueError: The split is not named, or its images are not there.
    """
    account = AccountBuilder()
    sources = find_sources(config, split, account, inputs)
    headers = read_headers([source.path for source in sources])
    finder = LabelFinder(config, label_format.suffix, inputs)
    records = []
    for source, image_id, header in zip(sources, name_images(sources, config.root), headers, strict=True):
        label_path = finder.find(source)
        try:
            labels = label_format.parse(label_path)
        except FileNotFoundError:
            labels = LabelFile(None, None, ())
            account.note("image without a label file (background)", f"{source.path}, looked for {label_path}")
        except ValueError as error:
            account.drop(str(label_path), f"not {label_format.title}", str(error))
            account.leave_out(str(source.path), f"its label file {label_path} cannot be read: {error}")
            continue
        if isinstance(header, str):
            account.leave_out(str(source.path), header)
            for item in labels.objects:
                account.drop(item.where, "image unusable", header)
            continue
        builder = _place(labels, label_format, header, class_map, account)
        record = builder.freeze(source.path, image_id, (header.height_src, header.width_src))
        enter_record(account, record, header)
        records.append(record)
    return tuple(records), account.freeze()


def collect_classes(label_format: ObjectFormat, config: DataConfig, inputs: InputTrace) -> ClassMap:
    """Return every class name of every split, sorted.

    Raises:
        ValueError: There is no object with a name.
    """
    names: set[str] = set()
    splits: tuple[Split, ...] = ("train", "val", "test")
    finder = LabelFinder(config, label_format.suffix, inputs)
    for split in splits:
        if split in config.entries:
            for source in find_sources(config, split, AccountBuilder(), inputs):
                names.update(_names(label_format, finder.find(source)))
    if not names:
        raise ValueError(f"class names: expected objects with names in {label_format.title} under {config.root}")
    return ClassMap.from_names(sorted(names))


def _names(label_format: ObjectFormat, path: Path) -> set[str]:
    try:
        return {item.name for item in label_format.parse(path).objects if item.name is not None and not item.fault}
    except (ValueError, FileNotFoundError):
        return set()


def _place(
    labels: LabelFile, label_format: ObjectFormat, header: ImageHeader, class_map: ClassMap, account: AccountBuilder
) -> RecordBuilder:
    """Put the objects of one image into the frame of its file."""
    builder = RecordBuilder(num_label_rows=len(labels.objects))
    frame = Frame.of(label_format.title, labels.height, labels.width, header)
    if frame.remark and labels.objects:
        account.note(frame.remark, labels.objects[0].where)
    label_by_name = {name: label for label, name in enumerate(class_map.names)}
    size_src = (header.height_src, header.width_src)
    seen: set[tuple[int, Box]] = set()
    for item in labels.objects:
        try:
            label = _find_class(item, label_by_name)
            box = frame.place(check_corners(item.corners_xyxy))
        except RowError as error:
            account.drop(item.where, error.reason, error.detail)
            continue
        if (label, box) in seen:
            account.note("object repeated in its file (kept)", item.where)
        seen.add((label, box))
        builder.append(box, label, size_src, bool(item.ignore_reason))
        if item.ignore_reason:
            account.ignore(item.where, item.ignore_reason)
        else:
            enter_box(account, item.where, box)
    return builder


def _find_class(item: LabelledObject, label_by_name: dict[str, int]) -> int:
    if item.fault is not None:
        raise item.fault
    if item.name is None:
        return 0
    if item.name not in label_by_name:
        raise RowError("class name unknown", f"found {item.name!r}, expected one of {list(label_by_name)[:20]}")
    return label_by_name[item.name]


def check_corners(corners_xyxy: Sequence[float]) -> tuple[float, float, float, float]:
    """Return corners as they are if they are finite and in order.

    Raises:
        RowError: They are not.
    """
    x1, y1, x2, y2 = corners_xyxy
    if not all(map(math.isfinite, corners_xyxy)):
        raise RowError("not finite", f"found {corners_xyxy}, expected finite coordinates")
    if x2 <= x1 or y2 <= y1:
        raise RowError("empty box", f"found x {x1:g}..{x2:g}, y {y1:g}..{y2:g}, expected the second above the first")
    return x1, y1, x2, y2
