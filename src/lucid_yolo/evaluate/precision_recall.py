"""Precision and recall of matched detections, per class, IoU threshold and range of area."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
    stable_argsort,
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
    """The detections of a split and what was decided about them.

    Attributes:
        truths: Ground truth.
        is_crowd: Its rows that never count.
        found: Detections that are used, by image, then class, then best first.
        rank: Their rank in image and class.
        best_first: Rows of them by falling score.
        matches: The decisions.
        areas_src: ``[area, 2]`` ranges of area that were decided about.
        num_classes: Number of classes ``K``.
    """

    truths: BoxTable
    is_crowd: Bools
    found: BoxTable
    rank: Ints
    best_first: Ints
    matches: Matches
    areas_src: Floats
    num_classes: int

    def rows_of_classes(self) -> list[Ints]:
        """Return for each class the rows of its detections, best first."""
        by_label = self.best_first[stable_argsort(self.found.label[self.best_first])]
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
    by_score = stable_argsort(_falling(score))
    group = found.image * num_classes + found.label
    by_group = by_score[stable_argsort(group[by_score])]
    rank = rank_in_group(group[by_group])
    used, rank = by_group[rank < cap], rank[rank < cap]
    place = np.full(len(found), -1)
    place[used] = np.arange(len(used))
    best_first = place[by_score]
    found = found.take(used)
    matches = match_boxes(truths, is_crowd, found, num_classes, areas_src)
    return MatchedSplit(truths, is_crowd, found, rank, best_first[best_first >= 0], matches, areas_src, num_classes)


def _falling(score: Floats) -> NDArray[np.uint64]:
    """Return numbers whose order is that of falling scores, equal where the scores are."""
    bits = (0.0 - score).view(np.uint64)
    sign = np.uint64(1 << 63)
    return np.where(bits & sign, ~bits, bits | sign)


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
    counting = ~(truths.is_outside(areas_src) | is_crowd)
    num_objects = np.stack([np.bincount(truths.label[is_object], minlength=num_classes) for is_object in counting])
    for label in np.flatnonzero(num_objects.any(axis=0)):
        ranking = _Ranking.of(split, rows_of_classes[label])
        for area in np.flatnonzero(num_objects[:, label]).tolist():
            hits, num = ranking.hits(area), int(num_objects[area, label])
            recall[label, :, area] = hits.num_within(caps) / num
            precision[label, :, :, area] = hits.precision_at(RECALLS, num)
    return PrecisionRecall(precision, recall)


@dataclass(frozen=True)
class _Hits:
    """Hits of one class and range of area, by IoU threshold, then best first.

    Attributes:
        iou: ``[h]`` place of the threshold.
        rank: ``[h]`` rank in image and class.
        num_counted: ``[h]`` detections up to each that are right or wrong.
    """

    iou: Ints
    rank: Ints
    num_counted: Ints

    def num_within(self, caps: Sequence[int]) -> Ints:
        """Return ``[IoU, cap]``, the hits among the best detections of every image."""
        return np.stack([np.bincount(self.iou[self.rank < cap], minlength=NUM_IOUS) for cap in caps], axis=1)

    def precision_at(self, recalls: Floats, num_objects: int) -> Floats:
        """Return ``[IoU, recall]``, the best precision at no smaller recall; 0 where recall is not reached.

        Precision and recall only rise at hits, so no other detection is looked at.
        """
        precision = np.zeros((NUM_IOUS, num_objects + 1))
        before = rank_in_group(self.iou)
        # The small number is the reference evaluator's.
        precision[self.iou, before] = (before + 1) / (self.num_counted + np.spacing(1))
        best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
        return best[:, np.searchsorted(np.arange(1, num_objects + 1) / num_objects, recalls, side="left")]


@dataclass(frozen=True)
class _Ranking:
    """Detections of one class, best first.

    Attributes:
        candidates: Decisions about the ``n`` candidates.
        rank: ``[n]`` their rank in image and class.
        ignored: ``[m]`` decisions about the others, which are right nowhere, and wrong where they are not ignored.
        num_others: ``[n]`` others before each candidate.
    """

    candidates: Matches
    rank: Ints
    ignored: Ints
    num_others: Ints

    @classmethod
    def of(cls, split: MatchedSplit, rows: Ints) -> _Ranking:
        """Return the ranking of a class; ``rows`` are its detections, best first."""
        is_candidate = split.matches.is_candidate[rows]
        place = np.flatnonzero(is_candidate)
        candidates, others = rows[place], rows[~is_candidate]
        num_others = place - np.arange(len(place))
        return cls(split.matches.take(candidates), split.rank[candidates], split.matches.ignored[others], num_others)

    def hits(self, area: int) -> _Hits:
        """Return the hits in one range of area."""
        hit, ignored, of_others = (
            (bits >> area * NUM_IOUS).astype(np.uint16)
            for bits in (self.candidates.hit, self.candidates.ignored, self.ignored)
        )
        bits = 1 << np.arange(NUM_IOUS, dtype=np.uint16)[:, None]
        with_hit = np.flatnonzero(hit)
        iou, place = np.nonzero(hit[with_hit] & bits)
        row = with_hit[place]
        num_counted = np.cumsum(np.append(0, of_others & 1 == 0))[self.num_others[row]]
        num_counted += np.cumsum(ignored & bits == 0, axis=1, dtype=np.int32)[iou, row]
        return _Hits(iou, self.rank[row], num_counted)
