"""Task-aligned assignment for both head branches at once.

Source: arXiv:2108.07755 (metric, soft targets), arXiv:2405.14458 Eq. 1 (exponents, consistent branches),
arXiv:2606.03748 Sec. 3.2-3.3 (top-k per branch, small targets). Conflict and tie rules are this project's choice.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lucid_yolo.assign.small_target import surrogate_boxes
from lucid_yolo.geometry.distances import distances_to_boxes
from lucid_yolo.kernels.assignment import Implementation, assign_points
from lucid_yolo.kernels.assignment.reference import AssignInputs
from lucid_yolo.structures import AnchorPoints, Assignment, Prediction, Targets


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

    def __post_init__(self) -> None:
        if not 1 <= self.one_to_one_topk <= self.one_to_many_topk:
            found = f"{self.one_to_one_topk} and {self.one_to_many_topk}"
            raise ValueError(f"assign: expected 1 <= one_to_one_topk <= one_to_many_topk, found {found}")


@torch.no_grad()
def assign(
    prediction: Prediction,
    targets: Targets,
    points: AnchorPoints,
    config: AssignConfig,
    implementation: Implementation = "reference",
) -> Assignment:
    """Assign targets to anchor points, for the one-to-many rows and the one-to-one rows of ``prediction``.

    A point whose centre lies in a target's (enlarged) box is its candidate with metric ``sqrt(score) * IoU^6``. Every
    target selects its top candidates; a zero metric is never selected. A point selected by several targets goes to
    the one with the highest IoU, then the lowest index. One-to-one then keeps each target's best survivor. The soft
    target is ``u* t / t*`` with the maxima over the target's final points. Padded rows change nothing.

    Args:
        prediction: Raw output of both branches, one-to-many first on the batch axis.
        targets: Ground truth of the images, not repeated.
        points: The anchor points.
        config: Constants.
        implementation: Plain operations or the kernel; same bytes.
    """
    outputs = assign_points(
        AssignInputs(
            class_prob=prediction.class_logit.sigmoid(),
            boxes_xyxy_px=distances_to_boxes(prediction.box_ltrb_cell, points),
            target_xyxy_px=targets.boxes_xyxy_px,
            surrogate_xyxy_px=surrogate_boxes(targets.boxes_xyxy_px, config.min_side_px, config.reference_side_px),
            labels=targets.labels,
            is_object=targets.is_object,
            is_ignored=targets.is_ignored,
            center_xy_px=points.center_xy_px,
            one_to_many_topk=config.one_to_many_topk,
            one_to_one_topk=config.one_to_one_topk,
        ),
        implementation,
    )
    is_ignored = outputs.is_in_ignored & ~outputs.is_positive
    return Assignment(outputs.target_index, outputs.weight, outputs.is_positive, is_ignored)
