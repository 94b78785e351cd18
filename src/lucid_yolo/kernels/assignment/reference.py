"""The assignment in plain tensor operations."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lucid_yolo.geometry.boxes import contains_points, pairwise_iou
from lucid_yolo.geometry.topk import rank_keys, split_keys

CHUNK = 64


@dataclass(frozen=True)
class AssignInputs:
    """What the assignment works on. Rows ``N`` are branches x images, one-to-many first; targets are per image.

    Attributes:
        class_prob: Class probabilities.
        boxes_xyxy_px: Predicted boxes.
        target_xyxy_px: Target boxes.
        surrogate_xyxy_px: Boxes of the candidate test.
        labels: Classes of the targets.
        is_object: Targets that may be assigned.
        is_ignored: Ignore regions.
        center_xy_px: Point centres.
        one_to_many_topk: Points per target in the first half of the rows.
        one_to_one_topk: Candidates per target in the second half, of which the best survivor is kept.
    """

    class_prob: Float[Tensor, "N A K"]
    boxes_xyxy_px: Float[Tensor, "N A 4"]
    target_xyxy_px: Float[Tensor, "B G 4"]
    surrogate_xyxy_px: Float[Tensor, "B G 4"]
    labels: Int[Tensor, "B G"]
    is_object: Bool[Tensor, "B G"]
    is_ignored: Bool[Tensor, "B G"]
    center_xy_px: Float[Tensor, "A 2"]
    one_to_many_topk: int
    one_to_one_topk: int

    def chunk(self, start: int) -> AssignInputs:
        """Return one chunk of the targets, repeated for both branches."""
        rows = slice(start, start + CHUNK)
        return AssignInputs(
            self.class_prob,
            self.boxes_xyxy_px,
            self.target_xyxy_px[:, rows].repeat(2, 1, 1),
            self.surrogate_xyxy_px[:, rows].repeat(2, 1, 1),
            self.labels[:, rows].repeat(2, 1),
            self.is_object[:, rows].repeat(2, 1),
            self.is_ignored[:, rows].repeat(2, 1),
            self.center_xy_px,
            self.one_to_many_topk,
            self.one_to_one_topk,
        )


@dataclass(frozen=True)
class AssignOutputs:
    """Per row and point.

    Attributes:
        target_index: Assigned target; 0 for background.
        weight: Soft target; 0 for background.
        is_positive: Whether the point is assigned.
        is_in_ignored: Whether its centre lies in an ignore region.
    """

    target_index: Int[Tensor, "N A"]
    weight: Float[Tensor, "N A"]
    is_positive: Bool[Tensor, "N A"]
    is_in_ignored: Bool[Tensor, "N A"]


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


def assign_points_reference(inputs: AssignInputs) -> AssignOutputs:
    """Assign targets to points, walking the targets in chunks so that memory does not grow with their number."""
    shape, device = inputs.class_prob.shape[:2], inputs.class_prob.device
    best = _Best(
        iou=torch.full(shape, -1.0, device=device),
        metric=torch.zeros(shape, device=device),
        target_index=torch.zeros(shape, dtype=torch.int64, device=device),
        is_in_ignored=torch.zeros(shape, dtype=torch.bool, device=device),
    )
    ranked = []
    for start in range(0, inputs.labels.shape[1], CHUNK):
        chunk = inputs.chunk(start)
        metric, iou = _metric(chunk)
        candidates, is_selected = _select(metric, iou, chunk)
        best = _update(best, metric, iou, is_selected, chunk, start)
        ranked.append(candidates)
    candidates = _Ranked(*(torch.cat([getattr(r, name) for r in ranked], 1) for name in _Ranked.__annotations__))
    return _finish(best, candidates)


def _metric(chunk: AssignInputs) -> tuple[Float[Tensor, "N g A"], Float[Tensor, "N g A"]]:
    """Return (metric, IoU); the metric is zero outside the candidates and where it is not a number."""
    is_candidate = contains_points(chunk.surrogate_xyxy_px, chunk.center_xy_px) & chunk.is_object.unsqueeze(-1)
    labels = chunk.labels.unsqueeze(-1).expand(-1, -1, chunk.class_prob.shape[1])
    score = chunk.class_prob.transpose(1, 2).gather(1, labels)
    iou = pairwise_iou(chunk.target_xyxy_px, chunk.boxes_xyxy_px)
    iou2 = iou * iou
    metric = score.sqrt() * (iou2 * iou2 * iou2)
    return torch.where(is_candidate & (metric > 0), metric, 0.0), iou


def _select(
    metric: Float[Tensor, "N g A"], iou: Float[Tensor, "N g A"], chunk: AssignInputs
) -> tuple[_Ranked, Bool[Tensor, "N g A"]]:
    """Return every target's ranked candidates, and which point is selected by which target.

    One-to-one rows keep fewer candidates; their surplus slots have metric zero.
    """
    keys = rank_keys(metric)
    top = keys.topk(chunk.one_to_many_topk, -1).values
    half, k = top.shape[0] // 2, chunk.one_to_one_topk
    limit = torch.cat((top[:half, :, -1:], top[half:, :, k - 1 : k]))
    is_selected = (keys >= limit) & (metric > 0)
    top_metric, point_index = split_keys(top)
    top_metric = torch.where(top >= limit, top_metric, 0.0)
    return _Ranked(point_index, top_metric, iou.gather(-1, point_index)), is_selected


def _update(
    best: _Best,
    metric: Float[Tensor, "N g A"],
    iou: Float[Tensor, "N g A"],
    is_selected: Bool[Tensor, "N g A"],
    chunk: AssignInputs,
    start: int,
) -> _Best:
    """Fold a chunk into the running best; among equal IoUs the lowest target index stays."""
    selected_iou = torch.where(is_selected, iou, -1.0)
    chunk_iou = selected_iou.amax(1)
    slots = torch.arange(iou.shape[1], device=iou.device)[:, None]
    winner = torch.where(selected_iou == chunk_iou.unsqueeze(1), slots, iou.shape[1] - 1).amin(1)
    is_better = chunk_iou > best.iou
    is_in_ignored = contains_points(chunk.target_xyxy_px, chunk.center_xy_px) & chunk.is_ignored.unsqueeze(-1)
    return _Best(
        iou=torch.where(is_better, chunk_iou, best.iou),
        metric=torch.where(is_better, metric.gather(1, winner.unsqueeze(1)).squeeze(1), best.metric),
        target_index=torch.where(is_better, winner + start, best.target_index),
        is_in_ignored=best.is_in_ignored | is_in_ignored.any(1),
    )


def _finish(best: _Best, candidates: _Ranked) -> AssignOutputs:
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

    single_point = torch.where(is_single, candidates.point_index[half:], -1).amax(-1)
    single_point = single_point.gather(1, best.target_index[half:])
    point_index = torch.arange(best.iou.shape[1], device=owner.device)
    is_positive = best.metric > 0
    is_positive = torch.cat((is_positive[:half], is_positive[half:] & (single_point == point_index)))
    scale = torch.where(is_positive, max_metric.gather(1, best.target_index), 1.0)
    weight = max_iou.gather(1, best.target_index) * (best.metric / scale)
    return AssignOutputs(
        target_index=torch.where(is_positive, best.target_index, 0),
        weight=torch.where(is_positive, weight, 0.0),
        is_positive=is_positive,
        is_in_ignored=best.is_in_ignored,
    )


def keep_first(is_kept: Bool[Tensor, "*N k"]) -> Bool[Tensor, "*N k"]:
    """Return ``is_kept`` with only the first True of every row left.

    Candidates are ranked best first, so this is the best one that survived the conflict rule.
    """
    slots = torch.arange(is_kept.shape[-1], device=is_kept.device)
    first = torch.where(is_kept, slots, is_kept.shape[-1]).amin(-1, keepdim=True)
    return is_kept & (slots == first)
