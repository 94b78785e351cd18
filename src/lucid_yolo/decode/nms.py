"""Decoding the one-to-many branch: class-wise non-maximum suppression."""

from __future__ import annotations

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from lucid_yolo.decode.one_to_one import MAX_DETECTIONS, decode_one_to_one
from lucid_yolo.kernels.nms import NmsImplementation, suppress
from lucid_yolo.kernels.nms.reference import NmsInputs
from lucid_yolo.structures import AnchorPoints, Detections, Prediction

NMS_IOU = 0.7
MIN_SCORE = 0.001
MAX_CANDIDATES = 4096


def decode_one_to_many(
    prediction: Prediction,
    points: AnchorPoints,
    max_detections: int = MAX_DETECTIONS,
    iou_threshold: float = NMS_IOU,
    min_score: float = MIN_SCORE,
    *,
    suppression: NmsImplementation = "auto",
) -> Detections:
    """Return the detections of the one-to-many branch after suppression; empty slots have score 0.

    Args:
        prediction: Raw output of that branch alone.
        points: The anchor points.
        max_detections: Detections per image ``D``.
        iou_threshold: Boxes of one class that overlap a better one by more are dropped.
        min_score: Pairs below are not considered; of the others the best 4096 are.
        suppression: How; same result.

    Note:
        Does not wait for the device, unless ``suppression`` is torchvision's loop.
    """
    ranked = decode_one_to_one(prediction, points, MAX_CANDIDATES)
    is_candidate = (ranked.score >= min_score) & (ranked.score > 0)
    inputs = NmsInputs(ranked.boxes_xyxy_px, ranked.label, is_candidate, max_detections, iou_threshold)
    survivors = suppress(inputs, suppression)
    return Detections(
        boxes_xyxy_px=_take(ranked.boxes_xyxy_px, survivors),
        score=_take(ranked.score, survivors),
        label=_take(ranked.label, survivors),
        point_index=_take(ranked.point_index, survivors),
    )


def _take(values: Shaped[Tensor, "B N *rest"], rows: Int[Tensor, "B D"]) -> Shaped[Tensor, "B D *rest"]:
    """Return some rows of every image, 0 where the row is -1."""
    rows = rows.view(*rows.shape, *(1,) * (values.ndim - 2)).expand(-1, -1, *values.shape[2:])
    return torch.where(rows >= 0, values.gather(1, rows.clamp(min=0)), 0)
