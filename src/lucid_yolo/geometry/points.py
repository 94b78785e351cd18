"""Anchor points: the centres of the cells of every prediction level."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lucid_yolo.structures import AnchorPoints


def make_anchor_points(
    image_size_px: tuple[int, int], strides: Sequence[int], device: torch.device | str = "cpu"
) -> AnchorPoints:
    """Return the points of all levels in a row, finest first, row by row.

    Args:
        image_size_px: (height, width), multiples of the coarsest stride.
        strides: Stride of each level.
        device: Where the result lives.

    Raises:
        ValueError: The size is no multiple of the coarsest stride.
    """
    height, width = image_size_px
    if height % strides[-1] or width % strides[-1]:
        raise ValueError(f"image size: expected multiples of {strides[-1]}, found {height} x {width}")
    centers, stride_px = [], []
    for stride in strides:
        y, x = torch.meshgrid(torch.arange(height // stride), torch.arange(width // stride), indexing="ij")
        centers.append((torch.stack((x, y), -1).reshape(-1, 2) + 0.5) * stride)
        stride_px.append(torch.full((centers[-1].shape[0],), float(stride)))
    return AnchorPoints(torch.cat(centers).to(device), torch.cat(stride_px).to(device))
