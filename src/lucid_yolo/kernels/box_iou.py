"""Intersection over union inside kernels."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def box_iou(ax1, ay1, ax2, ay2, bx1, by1, bx2, by2):  # type: ignore[no-untyped-def]
    """Intersection over union in the order of operations of :func:`lucid_yolo.geometry.boxes.pairwise_iou`.

    Numbers that are not finite spread as they do in the plain form, hence the written-out maxima and minima.
    """
    spread: tl.constexpr = tl.PropagateNan.ALL
    low_x, low_y = tl.maximum(ax1, bx1, spread), tl.maximum(ay1, by1, spread)
    width = tl.maximum(tl.minimum(ax2, bx2, spread) - low_x, 0.0, spread)
    height = tl.maximum(tl.minimum(ay2, by2, spread) - low_y, 0.0, spread)
    overlap = width * height
    area_a = tl.maximum(ax2 - ax1, 0.0, spread) * tl.maximum(ay2 - ay1, 0.0, spread)
    area_b = tl.maximum(bx2 - bx1, 0.0, spread) * tl.maximum(by2 - by1, 0.0, spread)
    union = area_a + area_b - overlap
    has_union = union > 0
    iou = tl.where(has_union, tl.div_rn(overlap, tl.where(has_union, union, 1.0)), 0.0)
    return tl.minimum(tl.maximum(iou, 0.0, spread), 1.0, spread)
