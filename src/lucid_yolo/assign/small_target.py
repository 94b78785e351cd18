"""Small-target-aware candidates: tiny boxes are enlarged before points are tested against them.

Source: arXiv:2606.03748 Sec. 3.3.3, Eq. 4-6.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def surrogate_boxes(
    boxes_xyxy_px: Float[Tensor, "*N 4"], min_side_px: float, reference_side_px: float
) -> Float[Tensor, "*N 4"]:
    """Return boxes with the same centre whose sides below ``min_side_px`` are set to ``reference_side_px``.

    Only the candidate test uses them; scores, targets and losses use the original boxes.

    Args:
        boxes_xyxy_px: Original boxes.
        min_side_px: The smallest stride.
        reference_side_px: The second stride.
    """
    x1y1, x2y2 = boxes_xyxy_px.chunk(2, -1)
    side = x2y2 - x1y1
    center = (x1y1 + x2y2) / 2
    enlarged = torch.cat((center - reference_side_px / 2, center + reference_side_px / 2), -1)
    is_small = (side < min_side_px).repeat(*(1,) * (side.dim() - 1), 2)
    return torch.where(is_small, enlarged, boxes_xyxy_px)
