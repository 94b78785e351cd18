"""The assignment as two Triton kernels, one program per row and target.

Byte-equal to the plain form: every product and sum is rounded by itself (no fused multiply-add), divisions and roots
are correctly rounded, and where programs meet they meet in integer maxima, whose order does not matter.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from lucid_yolo.kernels.assignment.reference import AssignInputs, AssignOutputs
from lucid_yolo.kernels.box_iou import box_iou
from lucid_yolo.kernels.launch import launch

BLOCK = 1024
SLOTS = 16


@triton.jit
def _rank_kernel(  # type: ignore[no-untyped-def]
    prob,
    boxes,
    target,
    surrogate,
    labels,
    is_object,
    is_ignored,
    centers,
    top_keys,
    best_keys,
    in_ignored,
    num_images,
    num_targets,
    num_points,
    num_classes,
    k_many,
    k_one,
    BLOCK: tl.constexpr,
    SLOTS: tl.constexpr,
):
    """Rank one target's candidates in one row; claim its selected points; mark its ignore region."""
    program = tl.program_id(0).to(tl.int64)
    row = program // num_targets
    target_index = program % num_targets
    at = (row % num_images) * num_targets + target_index
    may_assign = tl.load(is_object + at)
    is_region = tl.load(is_ignored + at)
    if may_assign | is_region:
        x1, y1 = tl.load(target + at * 4), tl.load(target + at * 4 + 1)
        x2, y2 = tl.load(target + at * 4 + 2), tl.load(target + at * 4 + 3)
        sx1, sy1 = tl.load(surrogate + at * 4), tl.load(surrogate + at * 4 + 1)
        sx2, sy2 = tl.load(surrogate + at * 4 + 2), tl.load(surrogate + at * 4 + 3)
        label = tl.load(labels + at)
        k = tl.where(row < num_images, k_many, k_one)
        slots = tl.arange(0, SLOTS)
        # Slots beyond k hold the largest key: never the lowest, so never replaced.
        top = tl.where(slots < k, tl.zeros((SLOTS,), tl.int64), 0x7FFFFFFFFFFFFFFF)
        low = tl.min(top, 0)
        for start in range(0, num_points, BLOCK):
            point = start + tl.arange(0, BLOCK)
            exists = point < num_points
            cx = tl.load(centers + point * 2, exists, 0.0)
            cy = tl.load(centers + point * 2 + 1, exists, 0.0)
            if is_region:
                inside = exists & (cx >= x1) & (cx <= x2) & (cy >= y1) & (cy <= y2)
                tl.store(in_ignored + row * num_points + point, inside, inside)
            is_candidate = exists & may_assign & (cx >= sx1) & (cx <= sx2) & (cy >= sy1) & (cy <= sy2)
            if tl.max(is_candidate.to(tl.int32), 0) > 0:
                box = boxes + (row * num_points + point) * 4
                bx1, by1 = tl.load(box, is_candidate, 0.0), tl.load(box + 1, is_candidate, 0.0)
                bx2, by2 = tl.load(box + 2, is_candidate, 0.0), tl.load(box + 3, is_candidate, 0.0)
                score = tl.load(prob + (row * num_points + point) * num_classes + label, is_candidate, 0.0)
                iou = box_iou(x1, y1, x2, y2, bx1, by1, bx2, by2)
                iou2 = iou * iou
                metric = tl.sqrt_rn(score) * (iou2 * iou2 * iou2)
                bits = metric.to(tl.int32, bitcast=True).to(tl.int64)
                keys = tl.where(is_candidate & (metric > 0), (bits << 32) | (0xFFFFFFFF - point.to(tl.int64)), 0)
                best = tl.max(keys, 0)
                while best > low:
                    lowest = tl.argmin(top, 0)
                    top = tl.where(slots == lowest, best, top)
                    keys = tl.where(keys == best, 0, keys)
                    best = tl.max(keys, 0)
                    low = tl.min(top, 0)
        top = tl.where(slots < k, top, 0)
        chosen = 0xFFFFFFFF - (top & 0xFFFFFFFF)
        is_chosen = top > 0
        box = boxes + (row * num_points + chosen) * 4
        bx1, by1 = tl.load(box, is_chosen, 0.0), tl.load(box + 1, is_chosen, 0.0)
        bx2, by2 = tl.load(box + 2, is_chosen, 0.0), tl.load(box + 3, is_chosen, 0.0)
        iou = box_iou(x1, y1, x2, y2, bx1, by1, bx2, by2)
        claim = (iou.to(tl.int32, bitcast=True).to(tl.int64) << 32) | (0xFFFFFFFF - target_index)
        tl.atomic_max(best_keys + row * num_points + chosen, claim, is_chosen)
        tl.store(top_keys + program * SLOTS + slots, top)


@triton.jit
def _resolve_kernel(  # type: ignore[no-untyped-def]
    is_object,
    top_keys,
    best_keys,
    out_index,
    out_weight,
    out_positive,
    num_images,
    num_targets,
    num_points,
    SLOTS: tl.constexpr,
):
    """Keep the points that one target won; write their soft targets. Every point has at most one winner."""
    program = tl.program_id(0).to(tl.int64)
    row = program // num_targets
    target_index = program % num_targets
    if tl.load(is_object + (row % num_images) * num_targets + target_index):
        slots = tl.arange(0, SLOTS)
        top = tl.load(top_keys + program * SLOTS + slots)
        point = 0xFFFFFFFF - (top & 0xFFFFFFFF)
        owner = tl.load(best_keys + row * num_points + point, top > 0, 0)
        is_kept = (top > 0) & (0xFFFFFFFF - (owner & 0xFFFFFFFF) == target_index)
        kept_keys = tl.where(is_kept, top, 0)
        is_kept = is_kept & ((row < num_images) | (kept_keys == tl.max(kept_keys, 0)))
        metric = (top >> 32).to(tl.int32).to(tl.float32, bitcast=True)
        iou = (owner >> 32).to(tl.int32).to(tl.float32, bitcast=True)
        max_metric = tl.max(tl.where(is_kept, metric, 0.0), 0)
        max_iou = tl.max(tl.where(is_kept, iou, 0.0), 0)
        weight = max_iou * tl.div_rn(metric, tl.where(is_kept, max_metric, 1.0))
        out = row * num_points + point
        tl.store(out_index + out, target_index + tl.zeros((SLOTS,), tl.int64), is_kept)
        tl.store(out_weight + out, weight, is_kept)
        tl.store(out_positive + out, is_kept, is_kept)


def assign_points_kernel(inputs: AssignInputs) -> AssignOutputs:
    """Assign targets to points on the device. Graph-safe; allocates its outputs and ``[N, G, 16]`` keys."""
    if max(inputs.one_to_many_topk, inputs.one_to_one_topk) > SLOTS:
        raise ValueError(f"assignment kernel: expected top-k of at most {SLOTS}, found {inputs.one_to_many_topk}")
    num_rows, num_points, num_classes = inputs.class_prob.shape
    num_images, num_targets = inputs.labels.shape
    device = inputs.class_prob.device
    shape = (num_rows, num_points)
    top_keys = torch.empty((num_rows, num_targets, SLOTS), dtype=torch.int64, device=device)
    best_keys = torch.zeros(shape, dtype=torch.int64, device=device)
    target_index = torch.zeros(shape, dtype=torch.int64, device=device)
    weight = torch.zeros(shape, device=device)
    is_positive = torch.zeros(shape, dtype=torch.bool, device=device)
    is_in_ignored = torch.zeros(shape, dtype=torch.bool, device=device)
    grid = (num_rows * num_targets,)
    is_object = inputs.is_object.contiguous()
    launch(
        _rank_kernel,
        grid,
        inputs.class_prob.contiguous(),
        inputs.boxes_xyxy_px.contiguous(),
        inputs.target_xyxy_px.contiguous(),
        inputs.surrogate_xyxy_px.contiguous(),
        inputs.labels.contiguous(),
        is_object,
        inputs.is_ignored.contiguous(),
        inputs.center_xy_px.contiguous(),
        top_keys,
        best_keys,
        is_in_ignored,
        num_images,
        num_targets,
        num_points,
        num_classes,
        inputs.one_to_many_topk,
        inputs.one_to_one_topk,
        BLOCK=BLOCK,
        SLOTS=SLOTS,
        enable_fp_fusion=False,
    )
    launch(
        _resolve_kernel,
        grid,
        is_object,
        top_keys,
        best_keys,
        target_index,
        weight,
        is_positive,
        num_images,
        num_targets,
        num_points,
        SLOTS=SLOTS,
        num_warps=1,
        enable_fp_fusion=False,
    )
    return AssignOutputs(target_index, weight, is_positive, is_in_ignored)
