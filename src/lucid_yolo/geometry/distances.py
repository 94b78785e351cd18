"""Side distances: a box as seen from an anchor point, in strides."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from lucid_yolo.structures import AnchorPoints


def distances_to_boxes(dist_ltrb_cell: Float[Tensor, "*N A 4"], points: AnchorPoints) -> Float[Tensor, "*N A 4"]:
    """Return the ``xyxy`` boxes, in pixels, whose sides lie at the given distances.

    Args:
        dist_ltrb_cell: Distances to the left, top, right, bottom side; negative ones give inverted boxes.
        points: The anchor points.
    """
    left_top, right_bottom = (dist_ltrb_cell * points.stride_px[:, None]).chunk(2, -1)
    return torch.cat((points.center_xy_px - left_top, points.center_xy_px + right_bottom), -1)


def boxes_to_distances(boxes_xyxy_px: Float[Tensor, "*N A 4"], points: AnchorPoints) -> Float[Tensor, "*N A 4"]:
    """Invert :func:`distances_to_boxes`."""
    x1y1, x2y2 = boxes_xyxy_px.chunk(2, -1)
    distances = torch.cat((points.center_xy_px - x1y1, x2y2 - points.center_xy_px), -1)
    return distances / points.stride_px[:, None]
