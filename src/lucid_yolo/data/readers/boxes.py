"""The rules every format shares: when a box is usable, clipped or dropped, and how a record is put together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lucid_yolo.data.account import AccountBuilder
from lucid_yolo.data.image import ImageHeader, read_header
from lucid_yolo.structures import ImageRecord, Polygons

OUTSIDE_LIMIT = 0.05
"""Coordinates up to this fraction of the side beyond the image are clipped; further out the row is dropped."""

_ROUNDING = 1e-6
_LARGEST_FRACTION = 2.0
# Threads wait for the disk more than they compute; a part of many files makes handing out cheap.
_NUM_THREADS = 16
_PART_LENGTH = 64


class RowError(ValueError):
    """A row that cannot be used: ``reason`` is the same for its kind, ``detail`` says found and expected."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True)
class Box:
    """A usable box in fractions of the image, inside it.

    Attributes:
        xyxy_norm: Corners in [0, 1].
        is_clipped: True when a corner lay beyond the border by more than rounding.
        detail: The corners as written, when clipped.
    """

    xyxy_norm: tuple[float, float, float, float]
    is_clipped: bool
    detail: str


def bound_points(xs_norm: Sequence[float], ys_norm: Sequence[float]) -> Box:
    """Return the box of some points, clipped to the image.

    Args:
        xs_norm: Horizontal coordinates, fractions of the width.
        ys_norm: Vertical coordinates, fractions of the height.

    Raises:
        RowError: A coordinate is not finite, in pixels, or more than ``OUTSIDE_LIMIT`` outside; or the box is empty.
    """
    corners = (min(xs_norm), min(ys_norm), max(xs_norm), max(ys_norm))
    if not all(map(math.isfinite, (*xs_norm, *ys_norm))):
        raise RowError("not finite", "found NaN or infinity, expected finite coordinates")
    written = "x {0:g}..{2:g}, y {1:g}..{3:g}".format(*corners)
    if max(map(abs, corners)) > _LARGEST_FRACTION:
        raise RowError("not fractions", f"found {written}, expected fractions of the image in [0, 1], not pixels")
    if min(corners) < -OUTSIDE_LIMIT or max(corners) > 1 + OUTSIDE_LIMIT:
        raise RowError(
            "outside the image", f"found {written}, expected within [{-OUTSIDE_LIMIT:g}, {1 + OUTSIDE_LIMIT:g}]"
        )
    x1, y1, x2, y2 = (min(max(value, 0.0), 1.0) for value in corners)
    if x2 <= x1 or y2 <= y1:
        raise RowError("empty box", f"found {written}, expected width and height above 0 inside the image")
    is_clipped = min(corners) < -_ROUNDING or max(corners) > 1 + _ROUNDING
    return Box((x1, y1, x2, y2), is_clipped, written if is_clipped else "")


@dataclass
class RecordBuilder:
    """Rows of one image on their way into an :class:`ImageRecord`."""

    boxes_xyxy_src: list[tuple[float, float, float, float]] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    is_ignored: list[bool] = field(default_factory=list)
    area_src: list[float] = field(default_factory=list)
    rings_xy_src: list[list[np.ndarray]] = field(default_factory=list)
    num_label_rows: int = 0

    def append(
        self,
        box: Box,
        label: int,
        size_src: tuple[int, int],
        is_ignored: bool = False,
        area_src: float | None = None,
        rings_xy_norm: Sequence[np.ndarray] = (),
    ) -> None:
        """Add one row.

        Args:
            box: In fractions of the image.
            label: Contiguous class index.
            size_src: (height, width).
            is_ignored: True for an ignore region.
            area_src: The annotated area if the format has one.
            rings_xy_norm: The outline if there is one, ``[k, 2]`` per part, fractions of the image; clipped to it.
        """
        height, width = size_src
        x1, y1, x2, y2 = box.xyxy_norm
        self.boxes_xyxy_src.append((x1 * width, y1 * height, x2 * width, y2 * height))
        self.labels.append(label)
        self.is_ignored.append(is_ignored)
        self.rings_xy_src.append([np.clip(ring, 0, 1) * (width, height) for ring in rings_xy_norm])
        self.area_src.append((x2 - x1) * width * (y2 - y1) * height if area_src is None else area_src)

    def freeze(self, path: Path, image_id: int | str, size_src: tuple[int, int]) -> ImageRecord:
        """Return the record."""
        return ImageRecord(
            path=str(path),
            image_id=image_id,
            height_src=size_src[0],
            width_src=size_src[1],
            boxes_xyxy_src=np.array(self.boxes_xyxy_src, np.float64).reshape(-1, 4),
            labels=np.array(self.labels, np.int64),
            is_ignored=np.array(self.is_ignored, np.bool_),
            area_src=np.array(self.area_src, np.float64),
            num_label_rows=self.num_label_rows,
            polygons=Polygons.pack(self.rings_xy_src) if any(self.rings_xy_src) else None,
        )


def enter_box(account: AccountBuilder, where: str, box: Box) -> None:
    """Enter a used row as kept or clipped."""
    if box.is_clipped:
        account.clip(where, box.detail)
    else:
        account.keep()


def enter_record(account: AccountBuilder, record: ImageRecord, header: ImageHeader) -> None:
    """Count a finished image: its file kind, whether it looks truncated, whether it has objects."""
    account.num_images += 1
    account.num_labelled_images += bool((~record.is_ignored).any())
    account.note(f"image kind {header.kind}")
    if header.lacks_end:
        account.note("image file without its end marker (probably truncated)", record.path)


def read_headers(paths: Sequence[Path]) -> list[ImageHeader | str]:
    """Read many image headers, several at a time; a string says why a file has none."""
    parts = [paths[start : start + _PART_LENGTH] for start in range(0, len(paths), _PART_LENGTH)]
    with ThreadPoolExecutor(_NUM_THREADS) as pool:
        return [header for part in pool.map(_read_part, parts) for header in part]


def _read_part(paths: Sequence[Path]) -> list[ImageHeader | str]:
    return [_header_or_reason(path) for path in paths]


def _header_or_reason(path: Path) -> ImageHeader | str:
    try:
        return read_header(path)
    except FileNotFoundError:
        return "no such file"
    except (ValueError, OSError) as error:
        return str(error).removeprefix(f"{path}: ")
