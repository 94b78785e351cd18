"""Packing positives into a constant number of slots, for terms too large to evaluate at every point."""

from __future__ import annotations

import torch
from torch.nn.functional import pad

from lucid_yolo.geometry.topk import top_k
from lucid_yolo.structures import Assignment, Positives


@torch.no_grad()
def compact_positives(assignment: Assignment, num_slots: int) -> Positives:
    """Return the positives with the largest weight, then the lowest point index.

    Args:
        assignment: Dense assignment.
        num_slots: Slots per row ``P``; what does not fit is counted.
    """
    num_points = assignment.weight.shape[1]
    weight, point_index = top_k(assignment.weight, min(num_slots, num_points))
    num_empty = max(num_slots - num_points, 0)
    weight, point_index = pad(weight, (0, num_empty)), pad(point_index, (0, num_empty))
    is_valid = weight > 0
    point_index = torch.where(is_valid, point_index, 0)
    target_index = torch.where(is_valid, assignment.target_index.gather(1, point_index), 0)
    num_positives = (assignment.weight > 0).sum(1)
    return Positives(point_index, target_index, weight, is_valid, (num_positives - num_slots).clamp(min=0))
