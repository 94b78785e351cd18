"""Class-wise non-maximum suppression in plain tensor operations of fixed shape."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lucid_yolo.geometry.boxes import pairwise_iou


@dataclass(frozen=True)
class NmsInputs:
    """Candidates of every image, best first.

    Attributes:
        boxes_xyxy_px: Their boxes.
        label: Their classes.
        is_candidate: False for rows that take no part.
        max_detections: Survivors per image ``D``, at least 1.
        iou_threshold: A box goes when its IoU with a better survivor of its class is larger.
    """

    boxes_xyxy_px: Float[Tensor, "B N 4"]
    label: Int[Tensor, "B N"]
    is_candidate: Bool[Tensor, "B N"]
    max_detections: int
    iou_threshold: float


def suppress_reference(inputs: NmsInputs) -> Int[Tensor, "B D"]:
    """Take the best candidate that is left and drop those it suppresses, ``D`` times."""
    num_images, num_candidates = inputs.label.shape
    survivors = inputs.label.new_full((num_images, inputs.max_detections), -1)
    if not num_candidates:
        return survivors
    slot = torch.arange(num_candidates, device=inputs.label.device)
    is_left = inputs.is_candidate
    for rank in range(inputs.max_detections):
        if is_left.device.type == "cpu" and not is_left.any():
            break
        best = torch.where(is_left, slot, num_candidates).amin(1, keepdim=True)
        survivors[:, rank : rank + 1] = torch.where(best < num_candidates, best, -1)
        best = best.clamp(max=num_candidates - 1)
        box = inputs.boxes_xyxy_px.gather(1, best.unsqueeze(-1).expand(-1, -1, 4))
        iou = pairwise_iou(box, inputs.boxes_xyxy_px).squeeze(1)
        is_dropped = (iou > inputs.iou_threshold) & (inputs.label == inputs.label.gather(1, best))
        is_left = is_left & ~is_dropped & (slot != best)
    return survivors
