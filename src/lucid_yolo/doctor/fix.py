"""A mended copy of a data set, in its own format."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from lucid_yolo.data.dataset import SourceFormat
from lucid_yolo.data.image import UndecodableImageError, decode_image
from lucid_yolo.doctor.convert import ConvertReport, copy_image, open_all, write_splits
from lucid_yolo.structures import ImageRecord

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FixReport:
    """What was mended.

    Attributes:
        written: What was written, and the account of the source.
        num_repeated_rows: Rows that stood twice in an image and are now there once.
        left_out: Images that cannot be decoded, or were never readable.
        reencoded: Truncated images, written again as PNG of the part that can be decoded.
    """

    written: ConvertReport
    num_repeated_rows: int
    left_out: tuple[str, ...]
    reencoded: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**vars(self), "written": self.written.to_dict()}

    def to_table(self) -> str:
        """Return a short text."""
        counts = self.written.account.counts
        images, boxes = (sum(n.values()) for n in (self.written.num_images, self.written.num_boxes))
        lines = [
            f"mended copy: {images} images, {boxes} boxes",
            f"  clipped boxes written as clipped {counts['clipped']:>8}",
            f"  rows left out                    {counts['dropped']:>8}",
            f"  repeated rows removed            {self.num_repeated_rows:>8}",
            f"  images left out                  {len(self.left_out):>8}",
            f"  truncated images re-encoded      {len(self.reencoded):>8}",
        ]
        return "\n".join(lines)


def fix(data_root: str | Path, out: str | Path, source_format: SourceFormat = "auto") -> FixReport:
    """Write a copy without what a reader had to clip, drop or leave out. Masks and keypoints are not carried over.

    Args:
        data_root: A folder, or a data YAML; only read.
        out: Folder to make; new or empty.
        source_format: What to read; ``"auto"`` looks.

    Raises:
        FileExistsError: ``out`` is in use.
        ValueError: The source cannot be read.
    """
    mended, left_out, truncated, num_repeated = {}, [], set(), 0
    for name, split in open_all(data_root, source_format).items():
        left_out += [item.path for item in split.account.left_out]
        records = []
        for record in split.records:
            try:
                is_truncated = decode_image(record.path).is_truncated
            except UndecodableImageError as error:
                _log.warning("left out: %s", error)
                left_out.append(record.path)
                continue
            single = _without_repeated_rows(record)
            num_repeated += len(record.labels) - len(single.labels)
            if is_truncated:
                truncated.add(record.path)
            records.append(single)
        mended[name] = dataclasses.replace(split, records=tuple(records))
    found_format = next(iter(mended.values())).source_format

    def place_image(record: ImageRecord, path: Path) -> None:
        if record.path in truncated:
            Image.fromarray(decode_image(record.path).pixels).save(path, format="PNG")
        else:
            copy_image(record, path)

    suffixes = dict.fromkeys(truncated, ".png")
    written = write_splits(mended, out, found_format, place_image, suffixes)  # type: ignore[arg-type]
    return FixReport(written, num_repeated, tuple(left_out), tuple(sorted(truncated)))


def _without_repeated_rows(record: ImageRecord) -> ImageRecord:
    columns = (record.labels[:, None], record.is_ignored[:, None], record.boxes_xyxy_src)
    _, first = np.unique(np.concatenate(columns, axis=1), axis=0, return_index=True)
    keep = np.sort(first)
    return dataclasses.replace(
        record,
        boxes_xyxy_src=record.boxes_xyxy_src[keep],
        labels=record.labels[keep],
        is_ignored=record.is_ignored[keep],
        area_src=record.area_src[keep],
    )
