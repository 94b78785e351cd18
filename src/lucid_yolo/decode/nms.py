"""Decoding the one-to-many branch: class-wise non-maximum suppression."""

from __future__ import annotations

import torch
from torchvision.ops import batched_nms

from lucid_yolo.decode.one_to_one import MAX_DETECTIONS, decode_one_to_one
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
) -> Detections:
    """Return the detections of the one-to-many branch after suppression; empty slots have score 0.

    Args:
        prediction: Raw output of that branch alone.
        points: The anchor points.
        max_detections: Detections per image ``D``.
        iou_threshold: Boxes of one class that overlap a better one by more are dropped.
        min_score: Pairs below are not considered; of the others the best 4096 are.

    Note:
        Synchronises with the host: the number of survivors depends on the data.
    """
    ranked = decode_one_to_one(prediction, points, MAX_CANDIDATES)
    rows = [_suppress(ranked, image, max_detections, iou_threshold, min_score) for image in range(len(ranked.score))]
    return Detections(
        boxes_xyxy_px=torch.cat([r.boxes_xyxy_px for r in rows]),
        score=torch.cat([r.score for r in rows]),
        label=torch.cat([r.label for r in rows]),
        point_index=torch.cat([r.point_index for r in rows]),
    )


def _suppress(
    ranked: Detections, image: int, max_detections: int, iou_threshold: float, min_score: float
) -> Detections:
    """Return one image's survivors as a batch of one, padded to ``max_detections`` rows."""
    is_scored = (ranked.score[image] >= min_score) & (ranked.score[image] > 0)
    num_scored = int(is_scored.sum())
    boxes, score, label = (x[image, :num_scored] for x in (ranked.boxes_xyxy_px, ranked.score, ranked.label))
    # Classes are kept apart by shifting them, which needs coordinates >= 0, and precision for many classes.
    shifted = boxes.double() - boxes.amin() if num_scored else boxes.double()
    kept = batched_nms(shifted, score.double(), label, iou_threshold).sort().values[:max_detections]
    out = Detections(
        boxes_xyxy_px=boxes.new_zeros((1, max_detections, 4)),
        score=score.new_zeros((1, max_detections)),
        label=label.new_zeros((1, max_detections)),
        point_index=label.new_zeros((1, max_detections)),
    )
    for name in ("boxes_xyxy_px", "score", "label", "point_index"):
        getattr(out, name)[0, : len(kept)] = getattr(ranked, name)[image, kept]
    return out
