"""Decoding the deployed branch: rank (point, class) pairs, no suppression."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from lucid_yolo.geometry.distances import distances_to_boxes
from lucid_yolo.geometry.topk import top_k
from lucid_yolo.structures import AnchorPoints, Detections, Prediction

MAX_DETECTIONS = 300


def rank_pairs(
    class_logit: Float[Tensor, "B A K"], num_pairs: int
) -> tuple[Float[Tensor, "B D"], Int[Tensor, "B D"], Int[Tensor, "B D"]]:
    """Return (score, point index, label) of the best (point, class) pairs, best first.

    Equal scores come in order of point, then class. Every pair among the best ``num_pairs`` belongs to one of the
    ``num_pairs`` points with the best class, so only the pairs of those points are ranked; the result is the same.

    Args:
        class_logit: Raw class output.
        num_pairs: How many; fewer are returned when there are fewer pairs.
    """
    prob = class_logit.sigmoid()
    _, num_points, num_classes = prob.shape
    _, point_index = top_k(prob.amax(-1), min(num_pairs, num_points))
    point_index = point_index.sort(-1).values
    kept = prob.gather(1, point_index.unsqueeze(-1).expand(-1, -1, num_classes)).flatten(1)
    score, pair_index = top_k(kept, min(num_pairs, kept.shape[1]))
    return score, point_index.gather(1, pair_index // num_classes), pair_index % num_classes


def decode_one_to_one(prediction: Prediction, points: AnchorPoints, max_detections: int = MAX_DETECTIONS) -> Detections:
    """Return the ranked detections of the one-to-one branch; slots beyond the number of pairs have score 0.

    Args:
        prediction: Raw output of that branch alone.
        points: The anchor points.
        max_detections: Detections per image ``D``.

    Source: arXiv:2606.03748 Sec. 3.2.
    """
    score, point_index, label = rank_pairs(prediction.class_logit, max_detections)
    boxes_xyxy_px = distances_to_boxes(prediction.box_ltrb_cell, points)
    chosen = boxes_xyxy_px.gather(1, point_index.unsqueeze(-1).expand(-1, -1, 4))
    num_empty = max_detections - score.shape[1]
    return Detections(pad(chosen, (0, 0, 0, num_empty)), *(pad(x, (0, num_empty)) for x in (score, label, point_index)))
