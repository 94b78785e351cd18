"""Suppression as one Triton kernel, one program per image.

The whole image lies in registers. A step takes the best candidate that is left and drops those it suppresses, as the
plain form does, with the same roundings: no fused multiply-add, correctly rounded division.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from lucid_yolo.kernels.box_iou import box_iou
from lucid_yolo.kernels.launch import launch
from lucid_yolo.kernels.nms.reference import NmsInputs

LARGEST_TILE = 8192
ROWS_PER_WARP = 256


@triton.jit
def _suppress_kernel(  # type: ignore[no-untyped-def]
    boxes,
    labels,
    is_candidate,
    threshold,
    survivors,
    num_candidates,
    max_detections,
    BLOCK: tl.constexpr,
):
    """Write the survivors of one image, best first."""
    image = tl.program_id(0).to(tl.int64)
    first = image * num_candidates
    slot = tl.arange(0, BLOCK)
    exists = slot < num_candidates
    box = boxes + (first + slot) * 4
    x1, y1 = tl.load(box, exists, 0.0), tl.load(box + 1, exists, 0.0)
    x2, y2 = tl.load(box + 2, exists, 0.0), tl.load(box + 3, exists, 0.0)
    label = tl.load(labels + first + slot, exists, -1)
    is_left = exists & tl.load(is_candidate + first + slot, exists, False)
    limit = tl.load(threshold)
    num_found = 0
    best = tl.min(tl.where(is_left, slot, BLOCK), 0)
    while (best < BLOCK) & (num_found < max_detections):
        tl.store(survivors + image * max_detections + num_found, best.to(tl.int64))
        at = boxes + (first + best) * 4
        iou = box_iou(tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3), x1, y1, x2, y2)
        is_same = label == tl.load(labels + first + best)
        is_left = is_left & ~(is_same & (iou > limit)) & (slot != best)
        best = tl.min(tl.where(is_left, slot, BLOCK), 0)
        num_found += 1


def suppress_kernel(inputs: NmsInputs) -> Tensor:
    """Return the survivors on the device. Graph-safe; allocates its output and one number."""
    num_images, num_candidates = inputs.label.shape
    if num_candidates > LARGEST_TILE:
        raise ValueError(f"suppression kernel: expected at most {LARGEST_TILE} candidates, found {num_candidates}")
    survivors = inputs.label.new_full((num_images, inputs.max_detections), -1)
    if not num_images or not num_candidates:
        return survivors
    threshold = torch.full((1,), inputs.iou_threshold, device=inputs.label.device)
    block = triton.next_power_of_2(num_candidates)
    launch(
        _suppress_kernel,
        (num_images,),
        inputs.boxes_xyxy_px.contiguous(),
        inputs.label.contiguous(),
        inputs.is_candidate.contiguous(),
        threshold,
        survivors,
        num_candidates,
        inputs.max_detections,
        BLOCK=block,
        num_warps=min(max(block // ROWS_PER_WARP, 1), 16),
        enable_fp_fusion=False,
    )
    return survivors
