"""Overlap of boxes as the COCO evaluation counts it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def box_iou(boxes_xyxy: Floats, truths_xyxy: Floats, is_crowd: NDArray[np.bool_]) -> Floats:
    """Return IoU ``[n, m]``; on a crowd the union is the detection alone.

    Args:
        boxes_xyxy: ``[n, 4]`` detections; an inverted side counts as zero.
        truths_xyxy: ``[m, 4]`` objects.
        is_crowd: ``[m]``.
    """
    low = np.maximum(boxes_xyxy[:, None, :2], truths_xyxy[None, :, :2])
    high = np.minimum(boxes_xyxy[:, None, 2:], truths_xyxy[None, :, 2:])
    overlap = np.maximum(high - low, 0.0).prod(axis=-1)
    area = np.maximum(boxes_xyxy[:, 2:] - boxes_xyxy[:, :2], 0.0).prod(axis=-1)[:, None]
    truth_area = (truths_xyxy[:, 2:] - truths_xyxy[:, :2]).prod(axis=-1)[None]
    union = np.where(is_crowd[None], area, area + truth_area - overlap)
    iou: Floats = np.divide(overlap, union, out=np.zeros_like(overlap), where=union > 0)
    return iou
