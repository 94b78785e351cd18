"""Precision, recall and F1 against confidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.evaluate.coco import ImageDetections, pair_by_image
from lucid_yolo.evaluate.overlap import box_iou
from lucid_yolo.structures import ClassMap, ImageRecord

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ConfidenceCurves:
    """What each confidence threshold would give, at one IoU.

    Attributes:
        confidence: ``[N]`` thresholds, rising; a detection counts when its score is at least the threshold.
        precision: ``[K, N]``; NaN where no detection is left and for classes without objects.
        recall: ``[K, N]``; NaN for classes without objects.
        f1: ``[K, N]``; 0 where no detection is left, NaN for classes without objects.
    """

    confidence: Floats
    precision: Floats
    recall: Floats
    f1: Floats

    @property
    def mean_precision(self) -> Floats:
        """``[N]`` mean over the classes where it is defined; NaN where none is."""
        return _mean_over_classes(self.precision)

    @property
    def mean_recall(self) -> Floats:
        """``[N]`` mean over classes with objects."""
        return _mean_over_classes(self.recall)

    @property
    def mean_f1(self) -> Floats:
        """``[N]`` mean over classes with objects."""
        return _mean_over_classes(self.f1)

    @property
    def best_confidence(self) -> float:
        """The lowest threshold with the highest mean F1; NaN without objects."""
        mean = self.mean_f1
        return float(self.confidence[np.nanargmax(mean)]) if not np.isnan(mean).all() else float("nan")


def confidence_curves(
    records: Sequence[ImageRecord],
    detections: Sequence[ImageDetections],
    class_map: ClassMap,
    iou_threshold: float = 0.5,
    max_detections: int = 300,
    num_points: int = 1001,
) -> ConfidenceCurves:
    """Return the curves of one head's detections, matched as the COCO evaluator matches them.

    Args:
        records: Ground truth of every evaluated image; detections on ignored regions count for nothing.
        detections: Detections, in any order of images.
        class_map: The classes.
        iou_threshold: Least IoU of a match, in (0, 1).
        max_detections: Best detections used per image and class.
        num_points: Thresholds between 0 and 1.

    Raises:
        ValueError: Ids repeat or are unknown, or labels are out of range.
    """
    confidence = np.linspace(0.0, 1.0, num_points)
    num_classes = len(class_map)
    pairs = pair_by_image(records, detections, num_classes)
    shape = (num_classes, num_points)
    precision, recall, f1 = (np.full(shape, np.nan) for _ in range(3))
    matched = [_match_image(record, found, iou_threshold, max_detections) for record, found in pairs]
    score, label, is_hit = (np.concatenate([m[i] for m in matched] or [np.zeros(0)]) for i in range(3))
    objects = np.concatenate([np.zeros(0), *(r.labels[~r.is_ignored] for r, _ in pairs)])
    num_objects = np.bincount(objects.astype(np.int64), minlength=num_classes)
    for k in np.flatnonzero(num_objects):
        rows = label == k
        hits = _count_at_least(score[rows & (is_hit > 0)], confidence)
        kept = _count_at_least(score[rows], confidence)
        precision[k] = np.divide(hits, kept, out=precision[k], where=kept > 0)
        recall[k] = hits / num_objects[k]
        f1[k] = 2 * hits / (kept + num_objects[k])
    return ConfidenceCurves(confidence, precision, recall, f1)


def _match_image(
    record: ImageRecord, found: ImageDetections, iou_threshold: float, max_detections: int
) -> tuple[Floats, Floats, Floats]:
    """Return score, label and hit (1 or 0) of the detections that count: best first, those on crowds left out."""
    order = np.argsort(-found.score, kind="stable")
    label = found.label[order]
    order = order[_rank_within_class(label) < max_detections]
    score, label, boxes = (a[order].astype(np.float64) for a in (found.score, found.label, found.boxes_xyxy_src))
    iou = box_iou(boxes, record.boxes_xyxy_src.astype(np.float64), record.is_ignored)
    iou[label[:, None] != record.labels[None]] = 0.0
    is_hit, is_on_crowd = np.zeros(len(score)), np.zeros(len(score), dtype=bool)
    is_taken = np.zeros(len(record.labels), dtype=bool)
    for row in np.flatnonzero((iou >= iou_threshold).any(axis=1)):
        free = np.where(is_taken | record.is_ignored, 0.0, iou[row])
        # The last of equal IoUs wins, as in the COCO evaluator.
        best = len(free) - 1 - int(np.argmax(free[::-1]))
        if free[best] >= iou_threshold:
            is_taken[best], is_hit[row] = True, 1.0
        else:
            is_on_crowd[row] = bool((iou[row, record.is_ignored] >= iou_threshold).any())
    return score[~is_on_crowd], label[~is_on_crowd], is_hit[~is_on_crowd]


def _rank_within_class(label: NDArray[Any]) -> NDArray[np.int64]:
    by_class = np.argsort(label, kind="stable")
    grouped = label[by_class]
    rank = np.empty(len(label), dtype=np.int64)
    rank[by_class] = np.arange(len(label)) - np.searchsorted(grouped, grouped)
    return rank


def _count_at_least(score: Floats, confidence: Floats) -> NDArray[np.int64]:
    return len(score) - np.searchsorted(np.sort(score), confidence, side="left")


def _mean_over_classes(values: Floats) -> Floats:
    is_defined = ~np.isnan(values)
    count = is_defined.sum(axis=0)
    total = np.where(is_defined, values, 0.0).sum(axis=0)
    mean: Floats = np.divide(total, count, out=np.full(values.shape[1], np.nan), where=count > 0)
    return mean
