"""Axis-aligned boxes."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def pairwise_iou(
    first_xyxy_px: Float[Tensor, "*N G 4"], second_xyxy_px: Float[Tensor, "*N A 4"]
) -> Float[Tensor, "*N G A"]:
    """Return the plain intersection over union of every pair, in [0, 1].

    Inverted boxes have no area. A pair without union has IoU 0.
    """
    ax1, ay1, ax2, ay2 = first_xyxy_px.unsqueeze(-2).unbind(-1)
    bx1, by1, bx2, by2 = second_xyxy_px.unsqueeze(-3).unbind(-1)
    width = (torch.minimum(ax2, bx2) - torch.maximum(ax1, bx1)).clamp(min=0)
    height = (torch.minimum(ay2, by2) - torch.maximum(ay1, by1)).clamp(min=0)
    overlap = width * height
    area_a = (ax2 - ax1).clamp(min=0) * (ay2 - ay1).clamp(min=0)
    area_b = (bx2 - bx1).clamp(min=0) * (by2 - by1).clamp(min=0)
    union = area_a + area_b - overlap
    return torch.where(union > 0, overlap / torch.where(union > 0, union, 1.0), 0.0).clamp(0, 1)


def contains_points(
    boxes_xyxy_px: Float[Tensor, "*N G 4"], center_xy_px: Float[Tensor, "A 2"]
) -> Bool[Tensor, "*N G A"]:
    """Return which points lie inside which boxes, edges included."""
    x1, y1, x2, y2 = boxes_xyxy_px.unsqueeze(-2).unbind(-1)
    x, y = center_xy_px.unbind(-1)
    return (x >= x1) & (x <= x2) & (y >= y1) & (y <= y2)
