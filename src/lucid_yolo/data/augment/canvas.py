"""Prepared source images joined on the canvas of a sample."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lucid_yolo.data.plan import Placement
from lucid_yolo.geometry.letterbox import FILL_VALUE


def compose(placements: Sequence[Placement], images: Sequence[np.ndarray], canvas_size_px: int) -> np.ndarray:
    """Copy each source image into its rectangle; what no source covers is grey.

    Args:
        placements: Where each source goes.
        images: The prepared sources, ``[h, w, 3]`` uint8, in the order of ``placements``.
        canvas_size_px: Side of the canvas.

    Returns:
        ``[canvas, canvas, 3]`` uint8.
    """
    canvas = np.full((canvas_size_px, canvas_size_px, 3), FILL_VALUE, np.uint8)
    for placement, image in zip(placements, images, strict=True):
        x, y = placement.offset_xy_px
        x1, y1, x2, y2 = placement.clip_xyxy_px
        canvas[y1:y2, x1:x2] = image[y1 - y : y2 - y, x1 - x : x2 - x]
    return canvas
