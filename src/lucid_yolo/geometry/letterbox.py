"""The one rule that fits a source image into the square network input, and its inverse for boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

FILL_VALUE = 114

Boxes = TypeVar("Boxes", np.ndarray, Tensor)
Number = Any


@dataclass(frozen=True)
class Letterbox:
    """A source image resized to long side ``size_px`` and centred on a square canvas.

    Attributes:
        height_src: Height of the upright source image.
        width_src: Width of the upright source image.
        size_px: Side of the square canvas.
        height_px: Height of the resized image.
        width_px: Width of the resized image.
        top_px: Rows of fill above the resized image.
        left_px: Columns of fill left of the resized image.
    """

    height_src: int
    width_src: int
    size_px: int
    height_px: int
    width_px: int
    top_px: int
    left_px: int

    @property
    def scale_xy(self) -> tuple[float, float]:
        """Resized pixels per source pixel, along x and along y; they differ by the rounding of the short side."""
        return self.width_px / self.width_src, self.height_px / self.height_src

    def boxes_to_px(self, boxes_xyxy_src: Boxes) -> Boxes:
        """Map boxes from the source image to the canvas.

        Args:
            boxes_xyxy_src: ``[..., 4]`` floating-point corners, array or tensor.

        Returns:
            Corners in canvas pixels, of the same kind and dtype.
        """
        (scale_x, scale_y), left, top = self.scale_xy, self.left_px, self.top_px
        x1, y1, x2, y2 = (boxes_xyxy_src[..., i : i + 1] for i in range(4))
        return _join(boxes_xyxy_src, x1 * scale_x + left, y1 * scale_y + top, x2 * scale_x + left, y2 * scale_y + top)

    def boxes_to_src(self, boxes_xyxy_px: Boxes) -> Boxes:
        """Map boxes from the canvas back to the source image, clipped to it and never inverted.

        Args:
            boxes_xyxy_px: ``[..., 4]`` floating-point corners, array or tensor.

        Returns:
            Corners in source pixels with ``0 <= x1 <= x2 <= width`` and ``0 <= y1 <= y2 <= height``, of the same kind
            and dtype. A box outside the image becomes a point or a line on its border.
        """
        return _to_src(boxes_xyxy_px, *self.scale_xy, self.left_px, self.top_px, self.width_src, self.height_src)


def boxes_to_src(boxes_xyxy_px: np.ndarray, letterboxes: Sequence[Letterbox]) -> np.ndarray:
    """Map boxes of several images back at once, each as :meth:`Letterbox.boxes_to_src` would.

    Args:
        boxes_xyxy_px: ``[B, D, 4]`` floating-point corners on the canvas.
        letterboxes: How each image was fitted.

    Returns:
        Corners in source pixels, of the same dtype.
    """
    rows = [(*b.scale_xy, b.left_px, b.top_px, b.width_src, b.height_src) for b in letterboxes]
    table = np.array(rows, dtype=boxes_xyxy_px.dtype).reshape(-1, 1, 1, 6)
    return _to_src(boxes_xyxy_px, *(table[..., i] for i in range(6)))


def _to_src(
    boxes: Boxes, scale_x: Number, scale_y: Number, left: Number, top: Number, width: Number, height: Number
) -> Boxes:
    x1, x2 = (((boxes[..., i : i + 1] - left) / scale_x).clip(0, width) for i in (0, 2))
    y1, y2 = (((boxes[..., i : i + 1] - top) / scale_y).clip(0, height) for i in (1, 3))
    return _join(boxes, x1, y1, x2.clip(min=x1), y2.clip(min=y1))


def _join(like: Boxes, *columns: Boxes) -> Boxes:
    return torch.cat(columns, -1) if isinstance(like, Tensor) else np.concatenate(columns, -1)


def letterbox(height_src: int, width_src: int, size_px: int) -> Letterbox:
    """Fit an image into a square: long side equal to ``size_px``, at least one pixel on the short side, centred.

    Args:
        height_src: Height of the upright source image, at least 1.
        width_src: Width of the upright source image, at least 1.
        size_px: Side of the square canvas, at least 1.

    Raises:
        ValueError: A side is smaller than 1.
    """
    if min(height_src, width_src, size_px) < 1:
        raise ValueError(
            f"letterbox: expected sides of at least 1 pixel, found source {height_src} x {width_src} (height x width) "
            f"and canvas {size_px}; check the image file and the image size"
        )
    long_side = max(height_src, width_src)
    height_px = max(1, round(height_src * size_px / long_side))
    width_px = max(1, round(width_src * size_px / long_side))
    return Letterbox(
        height_src=height_src,
        width_src=width_src,
        size_px=size_px,
        height_px=height_px,
        width_px=width_px,
        top_px=(size_px - height_px) // 2,
        left_px=(size_px - width_px) // 2,
    )
