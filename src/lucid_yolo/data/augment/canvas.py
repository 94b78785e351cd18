"""Prepared source images joined on the canvas of a sample."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lucid_yolo.data.plan import Placement
from lucid_yolo.geometry.letterbox import FILL_VALUE


def compose(
    placements: Sequence[Placement],
    images: Sequence[np.ndarray],
    canvas_size_px: int,
    visible_xyxy_px: tuple[int, int, int, int] | None = None,
) -> np.ndarray:
    """Copy each source image into its rectangle; what no source covers is grey.

    Args:
        placements: Where each source goes.
        images: The prepared sources, ``[h, w, 3]`` uint8, in the order of ``placements``.
        canvas_size_px: Side of the canvas.
        visible_xyxy_px: The part of the canvas that will be read; the rest keeps arbitrary bytes. None for all.

    Returns:
        ``[canvas, canvas, 3]`` uint8.
    """
    left, top, right, bottom = visible_xyxy_px or (0, 0, canvas_size_px, canvas_size_px)
    canvas = np.empty((canvas_size_px, canvas_size_px, 3), np.uint8)
    canvas[top:bottom, left:right] = FILL_VALUE
    for placement, image in zip(placements, images, strict=True):
        x, y = placement.offset_xy_px
        x1, y1, x2, y2 = placement.clip_xyxy_px
        x1, y1, x2, y2 = max(x1, left), max(y1, top), min(x2, right), min(y2, bottom)
        if x1 < x2 and y1 < y2:
            canvas[y1:y2, x1:x2] = image[y1 - y : y2 - y, x1 - x : x2 - x]
    return canvas
