"""Precision and recall of matched detections, per class, IoU threshold and range of area."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lucid_yolo.evaluate.matching import (
    NUM_AREAS,
    NUM_IOUS,
    Bools,
    BoxTable,
    Floats,
    Ints,
    Matches,
    match_boxes,
    rank_in_group,
)

RECALLS = np.linspace(0.0, 1.0, 101)
NUM_RECALLS = len(RECALLS)


@dataclass(frozen=True)
class PrecisionRecall:
    """The tables of the COCO evaluator; -1 where no object counts.

    Attributes:
        precision: ``[K, IoU, recall, area]`` with the largest cap.
        recall: ``[K, IoU, area, cap]``.
    """

    precision: Floats
    recall: Floats


def precision_recall(
    truths: BoxTable, is_crowd: Bools, found: BoxTable, score: Floats, num_classes: int, caps: Sequence[int]
) -> PrecisionRecall:
    """Match and count the detections of a split.

    Args:
        truths: Ground truth, in order of images.
        is_crowd: Its rows that never count.
        found: Detections, in order of images.
        score: Higher is more certain; equal scores rank in row order.
        num_classes: Number of classes ``K``.
        caps: Detections used per image and class, rising.
    """
    by_score = np.argsort(-score, kind="stable")
    rank = rank_in_group(found.image[by_score] * num_classes + found.label[by_score])
    is_used = rank < caps[-1]
    found, rank = found.take(by_score[is_used]), rank[is_used]
    matches, is_inside = match_boxes(truths, is_crowd, found, num_classes), ~found.is_outside
    by_label = np.argsort(found.label, kind="stable")
    ends = np.searchsorted(found.label[by_label], np.arange(num_classes + 1))
    precision = np.full((num_classes, NUM_IOUS, NUM_RECALLS, NUM_AREAS), -1.0)
    recall = np.full((num_classes, NUM_IOUS, NUM_AREAS, len(caps)), -1.0)
    counting = ~(truths.is_outside | is_crowd[:, None])
    for area in range(NUM_AREAS):
        num_objects = np.bincount(truths.label[counting[:, area]], minlength=num_classes)
        for label in np.flatnonzero(num_objects):
            rows = by_label[ends[label] : ends[label + 1]]
            hits = _count(matches.take(rows), is_inside[rows, area], rank[rows], area)
            recall[label, :, area] = hits.num_within(caps) / num_objects[label]
            precision[label, :, :, area] = hits.precision_at(RECALLS, int(num_objects[label]))
    return PrecisionRecall(precision, recall)


@dataclass(frozen=True)
class _Hits:
    """Candidates of one class and range of area, best first.

    Attributes:
        is_hit: ``[IoU, n]`` whether a candidate is right.
        num_counted: ``[IoU, n]`` detections up to it that are right or wrong, candidates or not.
        rank: ``[n]`` rank in its image.
    """

    is_hit: Bools
    num_counted: Ints
    rank: Ints

    def num_within(self, caps: Sequence[int]) -> Ints:
        """Return ``[IoU, cap]``, the hits among the best detections of every image."""
        return np.stack([(self.is_hit & (self.rank < cap)).sum(axis=1) for cap in caps], axis=1)

    def precision_at(self, recalls: Floats, num_objects: int) -> Floats:
        """Return ``[IoU, recall]``, the best precision at no smaller recall; 0 where recall is not reached.

        Precision and recall only rise at hits, so no other detection is looked at.
        """
        precision = np.zeros((len(self.is_hit), len(recalls)))
        for row, is_hit, num_counted in zip(precision, self.is_hit, self.num_counted, strict=True):
            counted = num_counted[is_hit].astype(np.float64)
            num_hits = np.arange(1, len(counted) + 1, dtype=np.float64)
            # The small number is the reference evaluator's.
            best = np.maximum.accumulate((num_hits / (counted + np.spacing(1)))[::-1])[::-1]
            place = np.searchsorted(num_hits / num_objects, recalls, side="left")
            is_reached = place < len(best)
            row[is_reached] = best[place[is_reached]]
        return precision


def _count(matches: Matches, is_inside: Bools, rank: Ints, area: int) -> _Hits:
    """Return what one range of area needs; a detection that is no candidate is wrong where it is inside."""
    candidates = np.flatnonzero(matches.is_candidate)
    bits = np.arange(area * NUM_IOUS, (area + 1) * NUM_IOUS)[:, None]
    is_hit, is_ignored = ((x[candidates] >> bits) & 1 == 1 for x in (matches.hit, matches.ignored))
    num_others = np.cumsum(is_inside & ~matches.is_candidate)[candidates]
    return _Hits(is_hit, num_others + np.cumsum(~is_ignored, axis=1), rank[candidates])
