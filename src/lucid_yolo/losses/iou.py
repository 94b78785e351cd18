"""Complete-IoU loss on side distances."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

EPS = 1e-7


def ciou_loss(pred_ltrb_cell: Float[Tensor, "*N 4"], target_ltrb_cell: Float[Tensor, "*N 4"]) -> Float[Tensor, "*N"]:
    """Return ``1 - CIoU`` of boxes given by their side distances from a common point.

    ``CIoU = IoU - rho^2 / c^2 - alpha v`` with ``v = 4/pi^2 (atan(w*/h*) - atan(w/h))^2`` and
    ``alpha = v / (1 - IoU + v)``, which carries no gradient. ``rho`` is the distance of the centres, ``c`` the diagonal
    of the smallest enclosing box. Both boxes are measured from the same point, so the differences stay small.

    Args:
        pred_ltrb_cell: Predicted distances; an inverted box counts as empty.
        target_ltrb_cell: Distances of the target.

    Source: arXiv:1911.08287 Eq. 10.
    """
    left, top, right, bottom = pred_ltrb_cell.unbind(-1)
    target_left, target_top, target_right, target_bottom = target_ltrb_cell.unbind(-1)
    width, height = (left + right).clamp(min=0), (top + bottom).clamp(min=0)
    target_width, target_height = (target_left + target_right).clamp(min=0), (target_top + target_bottom).clamp(min=0)

    overlap_width = (torch.minimum(left, target_left) + torch.minimum(right, target_right)).clamp(min=0)
    overlap_height = (torch.minimum(top, target_top) + torch.minimum(bottom, target_bottom)).clamp(min=0)
    overlap = overlap_width * overlap_height
    iou = overlap / (width * height + target_width * target_height - overlap + EPS)

    hull_width = torch.maximum(left, target_left) + torch.maximum(right, target_right)
    hull_height = torch.maximum(top, target_top) + torch.maximum(bottom, target_bottom)
    shift_x = (right - left - target_right + target_left) / 2
    shift_y = (bottom - top - target_bottom + target_top) / 2
    offset = (shift_x.square() + shift_y.square()) / (hull_width.square() + hull_height.square() + EPS)

    aspect = torch.atan(target_width / target_height.clamp(min=EPS)) - torch.atan(width / height.clamp(min=EPS))
    shape = 4 / math.pi**2 * aspect.square()
    balance = (shape / (1 - iou + shape + EPS)).detach()
    return 1 - iou + offset + balance * shape
