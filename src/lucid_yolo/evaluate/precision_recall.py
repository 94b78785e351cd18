"""Precision and recall of matched detections, per class, IoU threshold and range of area."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lucid_yolo.evaluate.matching import (
    AREA_RANGES_SRC,
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


@dataclass(frozen=True)
class MatchedSplit:
    """The detections of a split, best first, and what was decided about them.

    Attributes:
        truths: Ground truth.
        is_crowd: Its rows that never count.
        found: Detections that are used.
        rank: Their rank in image and class.
        matches: The decisions.
        areas_src: ``[area, 2]`` ranges of area that were decided about.
        num_classes: Number of classes ``K``.
    """

    truths: BoxTable
    is_crowd: Bools
    found: BoxTable
    rank: Ints
    matches: Matches
    areas_src: Floats
    num_classes: int

    def rows_of_classes(self) -> list[Ints]:
        """Return for each class the rows of its detections, best first."""
        by_label = np.argsort(self.found.label, kind="stable")
        return np.split(by_label, np.searchsorted(self.found.label[by_label], np.arange(1, self.num_classes)))


def match_split(
    truths: BoxTable,
    is_crowd: Bools,
    found: BoxTable,
    score: Floats,
    num_classes: int,
    cap: int,
    areas_src: Floats = AREA_RANGES_SRC,
) -> MatchedSplit:
    """Rank and match the detections of a split.

    Args:
        truths: Ground truth, in order of images.
        is_crowd: Its rows that never count.
        found: Detections, in order of images.
        score: Higher is more certain; equal scores rank in row order.
        num_classes: Number of classes ``K``.
        cap: Detections used per image and class.
        areas_src: ``[area, 2]`` ranges of area.
    """
    by_score = np.argsort(-score, kind="stable")
    rank = rank_in_group(found.image[by_score] * num_classes + found.label[by_score])
    is_used = rank < cap
    found, rank = found.take(by_score[is_used]), rank[is_used]
    matches = match_boxes(truths, is_crowd, found, num_classes, areas_src)
    return MatchedSplit(truths, is_crowd, found, rank, matches, areas_src, num_classes)


def precision_recall(
    truths: BoxTable,
    is_crowd: Bools,
    found: BoxTable,
    score: Floats,
    num_classes: int,
    caps: Sequence[int],
    areas_src: Floats = AREA_RANGES_SRC,
) -> PrecisionRecall:
    """Match and count the detections of a split.

    Args:
        truths: Ground truth, in order of images.
        is_crowd: Its rows that never count.
        found: Detections, in order of images.
        score: Higher is more certain; equal scores rank in row order.
        num_classes: Number of classes ``K``.
        caps: Detections used per image and class, rising.
        areas_src: ``[area, 2]`` ranges of area.
    """
    split = match_split(truths, is_crowd, found, score, num_classes, caps[-1], areas_src)
    rows_of_classes = split.rows_of_classes()
    precision = np.full((num_classes, NUM_IOUS, NUM_RECALLS, len(areas_src)), -1.0)
    recall = np.full((num_classes, NUM_IOUS, len(areas_src), len(caps)), -1.0)
    counting = ~(truths.is_outside(areas_src) | is_crowd[:, None])
    for area in range(len(areas_src)):
        num_objects = np.bincount(truths.label[counting[:, area]], minlength=num_classes)
        for label in np.flatnonzero(num_objects):
            rows = rows_of_classes[label]
            hits = _count(split.matches.take(rows), split.rank[rows], area)
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


def _count(matches: Matches, rank: Ints, area: int) -> _Hits:
    """Return what one range of area needs; a detection that is no candidate is wrong where it is not ignored."""
    candidates = np.flatnonzero(matches.is_candidate)
    bits = np.arange(area * NUM_IOUS, (area + 1) * NUM_IOUS)[:, None]
    is_hit, is_ignored = ((x[candidates] >> bits) & 1 == 1 for x in (matches.hit, matches.ignored))
    is_wrong = ~matches.is_candidate & ((matches.ignored >> bits[0, 0]) & 1 == 0)
    num_others = np.cumsum(is_wrong)[candidates]
    return _Hits(is_hit, num_others + np.cumsum(~is_ignored, axis=1), rank[candidates])
