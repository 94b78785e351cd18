"""Task-aligned assignment for both head branches at once.

Source: arXiv:2108.07755 (metric, soft targets), arXiv:2405.14458 Eq. 1 (exponents, consistent branches),
arXiv:2606.03748 Sec. 3.2-3.3 (top-k per branch, small targets). Conflict and tie rules are this project's choice.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lucid_yolo.assign.one_to_one import chosen_point, keep_first
from lucid_yolo.assign.small_target import surrogate_boxes
from lucid_yolo.geometry.boxes import contains_points, pairwise_iou
from lucid_yolo.geometry.distances import distances_to_boxes
from lucid_yolo.geometry.topk import rank_keys, split_keys
from lucid_yolo.structures import AnchorPoints, Assignment, Prediction, Targets

CHUNK = 64


@dataclass(frozen=True)
class AssignConfig:
    """Constants of the assignment.

    Attributes:
        one_to_many_topk: Points per target of the one-to-many branch.
        one_to_one_topk: Candidates per target of the one-to-one branch, of which the best survivor is kept.
        min_side_px: Box sides below this are enlarged for the candidate test.
        reference_side_px: What they are enlarged to.
    """

    one_to_many_topk: int = 10
    one_to_one_topk: int = 7
    min_side_px: float = 8.0
    reference_side_px: float = 16.0


@dataclass(frozen=True)
class _Best:
    """Running best target of every point over the chunks seen so far."""

    iou: Float[Tensor, "N A"]
    metric: Float[Tensor, "N A"]
    target_index: Int[Tensor, "N A"]
    is_in_ignored: Bool[Tensor, "N A"]


@dataclass(frozen=True)
class _Ranked:
    """The ranked candidates of every target of a chunk."""

    point_index: Int[Tensor, "N g k"]
    metric: Float[Tensor, "N g k"]
    iou: Float[Tensor, "N g k"]


@torch.no_grad()
def assign(prediction: Prediction, targets: Targets, points: AnchorPoints, config: AssignConfig) -> Assignment:
    """Assign targets to anchor points, for the one-to-many rows and the one-to-one rows of ``prediction``.

    A point whose centre lies in a target's (enlarged) box is its candidate with metric ``sqrt(score) * IoU^6``. Every
    target selects its top candidates; a zero metric is never selected. A point selected by several targets goes to
    the one with the highest IoU, then the lowest index. One-to-one then keeps each target's best survivor. The soft
    target is ``u* t / t*`` with the maxima over the target's final points.

    Targets are walked in chunks, so memory does not grow with the capacity, and padded rows change nothing.

    Args:
        prediction: Raw output of both branches, one-to-many first on the batch axis.
        targets: Ground truth of the images, not repeated.
        points: The anchor points.
        config: Constants.
    """
    boxes_xyxy_px = distances_to_boxes(prediction.box_ltrb_cell, points)
    num_rows, num_points = boxes_xyxy_px.shape[:2]
    best = _Best(
        iou=boxes_xyxy_px.new_full((num_rows, num_points), -1.0),
        metric=boxes_xyxy_px.new_zeros((num_rows, num_points)),
        target_index=torch.zeros((num_rows, num_points), dtype=torch.int64, device=boxes_xyxy_px.device),
        is_in_ignored=torch.zeros((num_rows, num_points), dtype=torch.bool, device=boxes_xyxy_px.device),
    )
    ranked = []
    for start in range(0, targets.capacity, CHUNK):
        chunk = _repeat_chunk(targets, start)
        metric, iou = _metric(prediction.class_logit, boxes_xyxy_px, chunk, points, config)
        candidates, is_selected = _select(metric, iou, config)
        best = _update(best, metric, iou, is_selected, chunk, points, start)
        ranked.append(candidates)
    candidates = _Ranked(*(torch.cat([getattr(r, name) for r in ranked], 1) for name in _Ranked.__annotations__))
    return _finish(best, candidates)


def _repeat_chunk(targets: Targets, start: int) -> Targets:
    """Return one chunk of the targets, repeated for both branches."""
    rows = slice(start, start + CHUNK)
    return Targets(
        boxes_xyxy_px=targets.boxes_xyxy_px[:, rows].repeat(2, 1, 1),
        labels=targets.labels[:, rows].repeat(2, 1),
        is_padded=targets.is_padded[:, rows].repeat(2, 1),
        is_ignored=targets.is_ignored[:, rows].repeat(2, 1),
    )


def _metric(
    class_logit: Float[Tensor, "N A K"],
    boxes_xyxy_px: Float[Tensor, "N A 4"],
    chunk: Targets,
    points: AnchorPoints,
    config: AssignConfig,
) -> tuple[Float[Tensor, "N g A"], Float[Tensor, "N g A"]]:
    """Return (metric, IoU); the metric is zero outside the candidates."""
    surrogate = surrogate_boxes(chunk.boxes_xyxy_px, config.min_side_px, config.reference_side_px)
    is_candidate = contains_points(surrogate, points.center_xy_px) & chunk.is_object.unsqueeze(-1)
    labels = chunk.labels.unsqueeze(-1).expand(-1, -1, class_logit.shape[1])
    score = class_logit.transpose(1, 2).gather(1, labels).sigmoid()
    iou = pairwise_iou(chunk.boxes_xyxy_px, boxes_xyxy_px)
    iou2 = iou * iou
    metric = score.sqrt() * (iou2 * iou2 * iou2)
    return torch.where(is_candidate, metric, 0.0), iou


def _select(
    metric: Float[Tensor, "N g A"], iou: Float[Tensor, "N g A"], config: AssignConfig
) -> tuple[_Ranked, Bool[Tensor, "N g A"]]:
    """Return every target's ranked candidates, and which point is selected by which target.

    One-to-one rows keep fewer candidates; their surplus slots have metric zero.
    """
    keys = rank_keys(metric)
    top = keys.topk(config.one_to_many_topk, -1).values
    half = top.shape[0] // 2
    limit = torch.cat((top[:half, :, -1:], top[half:, :, config.one_to_one_topk - 1 : config.one_to_one_topk]))
    is_selected = (keys >= limit) & (metric > 0)
    top_metric, point_index = split_keys(top)
    top_metric = torch.where(top >= limit, top_metric, 0.0)
    return _Ranked(point_index, top_metric, iou.gather(-1, point_index)), is_selected


def _update(
    best: _Best,
    metric: Float[Tensor, "N g A"],
    iou: Float[Tensor, "N g A"],
    is_selected: Bool[Tensor, "N g A"],
    chunk: Targets,
    points: AnchorPoints,
    start: int,
) -> _Best:
    """Fold a chunk into the running best; among equal IoUs the lowest target index stays."""
    selected_iou = torch.where(is_selected, iou, -1.0)
    chunk_iou = selected_iou.amax(1)
    slots = torch.arange(iou.shape[1], device=iou.device)[:, None]
    winner = torch.where(selected_iou == chunk_iou.unsqueeze(1), slots, iou.shape[1] - 1).amin(1)
    is_better = chunk_iou > best.iou
    is_in_ignored = contains_points(chunk.boxes_xyxy_px, points.center_xy_px) & chunk.is_ignored.unsqueeze(-1)
    return _Best(
        iou=torch.where(is_better, chunk_iou, best.iou),
        metric=torch.where(is_better, metric.gather(1, winner.unsqueeze(1)).squeeze(1), best.metric),
        target_index=torch.where(is_better, winner + start, best.target_index),
        is_in_ignored=best.is_in_ignored | is_in_ignored.any(1),
    )


def _finish(best: _Best, candidates: _Ranked) -> Assignment:
    """Drop the candidates lost in conflicts, reduce the one-to-one rows, and compute the soft targets."""
    num_rows, num_targets, k = candidates.point_index.shape
    owner = best.target_index.gather(1, candidates.point_index.reshape(num_rows, -1)).view(num_rows, num_targets, k)
    own_index = torch.arange(num_targets, device=owner.device)[:, None]
    is_kept = (owner == own_index) & (candidates.metric > 0)
    half = num_rows // 2
    is_single = keep_first(is_kept[half:])
    is_kept = torch.cat((is_kept[:half], is_single))
    max_metric = torch.where(is_kept, candidates.metric, 0.0).amax(-1)
    max_iou = torch.where(is_kept, candidates.iou, 0.0).amax(-1)

    single_point = chosen_point(is_single, candidates.point_index[half:]).gather(1, best.target_index[half:])
    point_index = torch.arange(best.iou.shape[1], device=owner.device)
    is_positive = best.metric > 0
    is_positive = torch.cat((is_positive[:half], is_positive[half:] & (single_point == point_index)))
    scale = torch.where(is_positive, max_metric.gather(1, best.target_index), 1.0)
    weight = max_iou.gather(1, best.target_index) * (best.metric / scale)
    return Assignment(
        target_index=torch.where(is_positive, best.target_index, 0),
        weight=torch.where(is_positive, weight, 0.0),
        is_positive=is_positive,
        is_ignored=best.is_in_ignored & ~is_positive,
    )
