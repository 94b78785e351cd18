"""A data set written again in another format."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from lucid_yolo.data.account import RowAccount, merge_accounts
from lucid_yolo.data.dataset import DataSplit, SourceFormat, list_splits, open_split
from lucid_yolo.data.image import read_header
from lucid_yolo.data.made_root import build_root
from lucid_yolo.data.readers.layout import IMAGE_SUFFIXES, Split
from lucid_yolo.data.readers.listing import IMAGE_FOLDERS
from lucid_yolo.doctor.writers import TARGETS, NamedRecord, TargetFormat
from lucid_yolo.structures import ImageRecord

_SUFFIXES = {"JPEG": ".jpg", "MPO": ".jpg", "JPEG2000": ".jp2", "TIFF": ".tif", "PPM": ".ppm"}

PlaceImage = Callable[[ImageRecord, Path], None]


@dataclass(frozen=True)
class ConvertReport:
    """What was written.

    Attributes:
        source_format: Format that was read.
        target_format: Format that was written.
        num_images: Images per split.
        num_boxes: Objects per split.
        num_ignored: Ignore regions that were written.
        num_ignored_lost: Ignore regions that the target cannot hold.
        num_renamed: Images whose name had to change to stay different from another's.
        has_new_ids: Class or image ids are not those of the source, because the target has none of its own.
        account: What became of every label row when the source was read.
    """

    source_format: str
    target_format: str
    num_images: dict[str, int]
    num_boxes: dict[str, int]
    num_ignored: int
    num_ignored_lost: int
    num_renamed: int
    has_new_ids: bool
    account: RowAccount

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**vars(self), "account": self.account.to_dict()}

    def to_table(self) -> str:
        """Return a short text."""
        lines = [f"{self.source_format} -> {self.target_format}"]
        lines += [f"  {s}: {n} images, {self.num_boxes[s]} boxes" for s, n in self.num_images.items()]
        if self.num_ignored or self.num_ignored_lost:
            lost = f", {self.num_ignored_lost} lost: {self.target_format} has none" if self.num_ignored_lost else ""
            lines.append(f"  ignore regions: {self.num_ignored} written{lost}")
        if self.num_renamed:
            lines.append(f"  {self.num_renamed} images renamed, two had the same name")
        if self.has_new_ids:
            lines.append("  ids are new: classes count from 0, images are known by their file names")
        return "\n".join([*lines, self.account.to_table()])


def convert(
    data_root: str | Path,
    out: str | Path,
    target_format: TargetFormat,
    source_format: SourceFormat = "auto",
    is_linked: bool = False,
) -> ConvertReport:
    """Write the boxes of every split in another format. Masks and keypoints are not carried over.

    Args:
        data_root: A folder, or a data YAML.
        out: Folder to make; new or empty.
        target_format: What to write.
        source_format: What to read; ``"auto"`` looks.
        is_linked: Link images to the source instead of copying them.

    Raises:
        FileExistsError: ``out`` is in use.
        ValueError: The source cannot be read, or the target cannot hold its class names.
    """
    splits = open_all(data_root, source_format)
    return write_splits(splits, out, target_format, link_image if is_linked else copy_image)


def open_all(data_root: str | Path, source_format: SourceFormat = "auto") -> dict[Split, DataSplit]:
    """Read every split of a data set.

    Raises:
        ValueError: There is no split.
    """
    splits = {split: open_split(data_root, split, source_format) for split in list_splits(data_root, source_format)}
    if not splits:
        raise ValueError(f"data_root: expected folders or a YAML entry for train, val or test, found none: {data_root}")
    return splits


def write_splits(
    splits: dict[Split, DataSplit],
    out: str | Path,
    target_format: TargetFormat,
    place_image: PlaceImage,
    new_suffixes: Mapping[str, str] | None = None,
) -> ConvertReport:
    """Write splits that were read.

    Args:
        splits: At least one.
        out: Folder to make; new or empty.
        target_format: What to write.
        place_image: Puts the image of a record at a path, whose folder exists.
        new_suffixes: Suffix of images that are written in another file format, by source path.
    """
    target = TARGETS[target_format]
    is_shared = "{split}" not in target.image_folder
    taken: dict[str, set[str]] = {}
    named: dict[str, list[NamedRecord]] = {}
    num_renamed = 0
    for split, data in splits.items():
        names = _file_names(data, new_suffixes or {})
        unique = _make_unique(names, taken.setdefault("" if is_shared else split, set()), split if is_shared else "")
        num_renamed += sum(old != new for old, new in zip(names, unique, strict=True))
        named[split] = [NamedRecord(name, record) for name, record in zip(unique, data.records, strict=True)]
    first = next(iter(splits.values()))

    def write(root: Path) -> None:
        target.write(root, named, first.class_map)
        for split, images in named.items():
            folder = root / target.image_folder.format(split=split)
            for image in images:
                path = folder / image.name
                path.parent.mkdir(parents=True, exist_ok=True)
                place_image(image.record, path)

    build_root(out, write)
    num_ignored = sum(int(r.is_ignored.sum()) for data in splits.values() for r in data.records)
    has_old_ids = list(first.class_map.source_ids) == list(range(len(first.class_map))) and all(
        image.stem == image.record.image_id for images in named.values() for image in images
    )
    return ConvertReport(
        source_format=first.source_format,
        target_format=target_format,
        num_images={split: len(data.records) for split, data in splits.items()},
        num_boxes={split: sum(int((~r.is_ignored).sum()) for r in data.records) for split, data in splits.items()},
        num_ignored=num_ignored if target.holds_ignored else 0,
        num_ignored_lost=0 if target.holds_ignored else num_ignored,
        num_renamed=num_renamed,
        has_new_ids=not target.holds_ids and not has_old_ids,
        account=merge_accounts(data.account for data in splits.values()),
    )


def copy_image(record: ImageRecord, path: Path) -> None:
    """Copy the image file byte for byte."""
    shutil.copyfile(record.path, path)


def link_image(record: ImageRecord, path: Path) -> None:
    """Link to the image file by its absolute path."""
    path.symlink_to(os.path.abspath(record.path))


def _file_names(data: DataSplit, new_suffixes: Mapping[str, str]) -> list[str]:
    """Return names below the split's image folder: as the ids say, in COCO as the files lie below their common folder.

    A file without a known suffix gets the one of its content, because folders are listed by suffix. Folders inside a
    name that would be mistaken for the root of all images are skipped.
    """
    if not data.records:
        return []
    common = os.path.commonpath([os.path.dirname(record.path) for record in data.records])
    names = []
    for record in data.records:
        name, image_id = os.path.relpath(record.path, common), str(record.image_id)
        suffix = os.path.splitext(name)[1]
        if data.source_format != "coco" and not image_id.startswith("/"):
            name = image_id.removesuffix(suffix) + suffix
        if suffix.lower() not in IMAGE_SUFFIXES:
            kind = read_header(record.path).kind.split()[0]
            name += _SUFFIXES.get(kind, f".{kind.lower()}")
        stem, suffix = os.path.splitext(name)
        parts = PurePosixPath(stem + new_suffixes.get(record.path, suffix)).parts
        names.append("/".join([*(part for part in parts[:-1] if part not in IMAGE_FOLDERS), parts[-1]]))
    return names


def _make_unique(names: Sequence[str], taken: set[str], prefix: str) -> list[str]:
    """Return names whose stems differ, also where case does not count: label files are named after stems.

    Args:
        names: As wanted.
        taken: Folded stems in use; grows.
        prefix: Of flat names for a folder that several splits share; empty for a folder of one split.
    """
    unique = []
    for name in names:
        stem, suffix = os.path.splitext(name)
        if prefix:
            stem = stem.replace("/", "_")
            stem = f"{prefix}_{stem}" if stem.casefold() in taken else stem
        number, wanted = 2, stem
        while stem.casefold() in taken:
            stem, number = f"{wanted}_{number}", number + 1
        taken.add(stem.casefold())
        unique.append(stem + suffix)
    return unique
