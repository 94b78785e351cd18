"""The detection criterion: sums of every term, per branch."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from lucid_yolo.geometry.distances import boxes_to_distances
from lucid_yolo.geometry.masked import masked_term
from lucid_yolo.losses.classification import classification_loss
from lucid_yolo.losses.distance import distance_l1_loss
from lucid_yolo.losses.iou import ciou_loss
from lucid_yolo.structures import AnchorPoints, Assignment, LossTerms, Prediction, Targets

DETECTION_TERMS = ("box", "l1", "cls")


def detection_loss_sums(
    prediction: Prediction, assignment: Assignment, targets: Targets, points: AnchorPoints, num_branches: int
) -> LossTerms:
    """Return the box, L1 and classification sums of each branch and the sum of its soft targets.

    Args:
        prediction: Raw output, branches stacked on the batch axis.
        assignment: Assignment of the same rows.
        targets: Ground truth of the images, not repeated.
        points: The anchor points.
        num_branches: How many branches are stacked.

    Source: arXiv:2606.03748 Sec. 3.2.
    """
    boxes_xyxy_px = targets.boxes_xyxy_px.repeat(num_branches, 1, 1)
    index = assignment.target_index
    labels = targets.labels.repeat(num_branches, 1).gather(1, index)
    assigned_xyxy_px = boxes_xyxy_px.gather(1, index.unsqueeze(-1).expand(-1, -1, 4))
    target_ltrb_cell = boxes_to_distances(assigned_xyxy_px, points)

    pred_ltrb_cell, weight, is_used = prediction.box_ltrb_cell, assignment.weight, assignment.is_positive
    box = masked_term(ciou_loss, is_used, pred_ltrb_cell, target_ltrb_cell) * weight
    l1 = masked_term(distance_l1_loss, is_used, pred_ltrb_cell, target_ltrb_cell) * weight
    cls = classification_loss(prediction.class_logit, labels, weight, assignment.is_ignored)
    sums = torch.stack([_branch_sums(term, num_branches) for term in (box, l1, cls)], 1)
    return LossTerms(DETECTION_TERMS, sums, _branch_sums(weight, num_branches))


def _branch_sums(term: Float[Tensor, "N A"], num_branches: int) -> Float[Tensor, " branches"]:
    return term.reshape(num_branches, -1).sum(1)
