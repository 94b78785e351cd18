"""Which detection finds which object: the COCO evaluator's greedy matching, for all images and classes at once.

A detection is compared with the objects of its image and class, and takes one of them separately for each of ten IoU
thresholds and for each range of area, of which COCO has four: forty decisions. They are the low bits of one integer, so
that a detection meets an object in a few integer operations, and one such operation serves many images and classes
together.

Source: the COCO detection evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

IOU_THRESHOLDS = np.linspace(0.5, 0.95, 10)
AREA_RANGES_SRC = np.array([[0.0, 1e10], [0.0, 32.0**2], [32.0**2, 96.0**2], [96.0**2, 1e10]])
NUM_IOUS, NUM_AREAS = len(IOU_THRESHOLDS), len(AREA_RANGES_SRC)
MAX_AREAS = 63 // NUM_IOUS
ALL_IOUS = (1 << NUM_IOUS) - 1
PAIRS_AT_ONCE = 1 << 17


@dataclass(frozen=True)
class BoxTable:
    """Boxes of a split, one row each.

    Attributes:
        image: Rank of the image.
        label: Contiguous class index.
        x1: Left side in source pixels.
        y1: Upper side.
        width: 0 for an inverted side.
        height: 0 for an inverted side.
        area_src: What decides the range of area.
    """

    image: Ints
    label: Ints
    x1: Floats
    y1: Floats
    width: Floats
    height: Floats
    area_src: Floats

    def __len__(self) -> int:
        return len(self.image)

    def take(self, rows: Ints | Bools) -> BoxTable:
        """Return some of the rows."""
        return BoxTable(*(getattr(self, f.name)[rows] for f in fields(self)))

    def is_outside(self, areas_src: Floats) -> Bools:
        """Return ``[n, area]``, whether each box lies outside each range (low, high) of area; both ends are inside."""
        low, high = areas_src.T
        area = self.area_src[:, None]
        is_outside: Bools = (area < low) | (area > high)
        return is_outside


@dataclass(frozen=True)
class Matches:
    """The decisions about every detection, as bits.

    Attributes:
        is_candidate: Whether it overlaps an object of its image and class enough for the lowest threshold.
        hit: It found an object that counts.
        ignored: It is neither right nor wrong.
    """

    is_candidate: Bools
    hit: Ints
    ignored: Ints

    def take(self, rows: Ints) -> Matches:
        """Return some of the detections."""
        return Matches(*(getattr(self, f.name)[rows] for f in fields(self)))


def rank_in_group(group: Ints) -> Ints:
    """Return the rank of each row among the rows of its group, in row order."""
    by_group = np.argsort(group, kind="stable")
    grouped = group[by_group]
    position = np.arange(len(group))
    is_first = np.diff(grouped, prepend=grouped[:1] - 1) != 0
    rank = np.empty_like(position)
    rank[by_group] = position - np.maximum.accumulate(np.where(is_first, position, 0))
    return rank


def match_boxes(
    truths: BoxTable, is_crowd: Bools, found: BoxTable, num_classes: int, areas_src: Floats = AREA_RANGES_SRC
) -> Matches:
    """Match the detections of all images and classes.

    The best detection chooses first. It takes the object of largest IoU, the last in file order among equals, that no
    better detection has taken, of those that count in the range of area; only if there is none, one that does not
    count. A crowd can be taken any number of times.

    Args:
        truths: Ground truth, in file order within an image.
        is_crowd: Rows of it that never count and whose IoU is the covered share of the detection.
        found: Detections, best first within an image and class.
        num_classes: Labels lie below it.
        areas_src: ``[area, 2]`` ranges of area, at most :data:`MAX_AREAS`.
    """
    assert len(areas_src) <= MAX_AREAS
    all_areas = sum(1 << NUM_IOUS * area for area in range(len(areas_src)))
    outside = _bits_of_areas(found.is_outside(areas_src))
    det, truth, iou = _overlapping_pairs(truths, is_crowd, found, num_classes)
    candidate, owner = np.unique(det, return_inverse=True)
    reached = ((1 << np.searchsorted(IOU_THRESHOLDS, iou, side="right")) - 1) * all_areas
    not_counting = _bits_of_areas(truths.is_outside(areas_src) | is_crowd[:, None])
    taken = np.zeros(len(truths), dtype=np.int64)
    hits = np.zeros((2, len(candidate)), dtype=np.int64)  # on objects that count, and on others

    group = found.image[candidate] * num_classes + found.label[candidate]
    turn = rank_in_group(group)[owner]
    for kind, rows in _turns(turn, owner, truth, iou):
        object_row, det_row = truth[rows], owner[rows]
        wanted = reached[rows] & (not_counting[object_row] if kind else ~not_counting[object_row])
        free = wanted & ~(hits[0, det_row] | hits[1, det_row]) & ~taken[object_row]
        hits[kind, det_row] |= free
        taken[object_row] |= np.where(is_crowd[object_row], 0, free)
    hit, ignored = np.zeros_like(outside), outside
    hit[candidate] = hits[0]
    ignored[candidate] = hits[1] | (outside[candidate] & ~hits[0])
    is_candidate = np.zeros(len(found), dtype=bool)
    is_candidate[candidate] = True
    return Matches(is_candidate, hit, ignored)


def _bits_of_areas(flags: Bools) -> Ints:
    """Return flags ``[n, area]`` as decision bits, the same for every IoU threshold."""
    shifts = np.arange(flags.shape[1], dtype=np.int64) * NUM_IOUS
    bits: Ints = (flags.astype(np.int64) << shifts).sum(axis=1) * ALL_IOUS
    return bits


def _overlapping_pairs(
    truths: BoxTable, is_crowd: Bools, found: BoxTable, num_classes: int
) -> tuple[Ints, Ints, Floats]:
    """Return (detection, object, IoU) of the pairs of one image and class that reach the lowest threshold."""
    truth_group = truths.image * num_classes + truths.label
    by_group = np.argsort(truth_group, kind="stable")
    occupied, starts, counts = np.unique(truth_group[by_group], return_index=True, return_counts=True)
    group = found.image * num_classes + found.label
    place = np.searchsorted(occupied, group).clip(max=len(occupied) - 1)
    rows = np.flatnonzero(occupied[place] == group) if len(occupied) else np.zeros(0, dtype=np.int64)
    starts, num_objects = starts[place[rows]], counts[place[rows]]
    ends = np.cumsum(num_objects)
    parts = [(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0))]
    first = 0
    while first < len(rows):
        done = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, done + PAIRS_AT_ONCE, side="right")))
        count = num_objects[first:last]
        within = np.arange(ends[last - 1] - done) - np.repeat(ends[first:last] - count - done, count)
        truth = by_group[np.repeat(starts[first:last], count) + within]
        parts.append(_reaching(truths, is_crowd, found, np.repeat(rows[first:last], count), truth))
        first = last
    det, truth, iou = (np.concatenate([part[i] for part in parts]) for i in range(3))
    return det, truth, iou


def _reaching(truths: BoxTable, is_crowd: Bools, found: BoxTable, det: Ints, truth: Ints) -> tuple[Ints, Ints, Floats]:
    """Return the given pairs that reach the lowest threshold, and their IoU in the reference's order of operations."""
    width = _shared_side(truths.x1, truths.width, found.x1, found.width, det, truth)
    is_touching = width > 0
    det, truth, width = det[is_touching], truth[is_touching], width[is_touching]
    height = _shared_side(truths.y1, truths.height, found.y1, found.height, det, truth)
    is_touching = height > 0
    det, truth, overlap = det[is_touching], truth[is_touching], (width * height)[is_touching]
    area, truth_area = ((t.width * t.height)[rows] for t, rows in ((found, det), (truths, truth)))
    iou = overlap / np.where(is_crowd[truth], area, area + truth_area - overlap)
    is_reaching = iou >= IOU_THRESHOLDS[0]
    return det[is_reaching], truth[is_reaching], iou[is_reaching]


def _shared_side(low: Floats, side: Floats, other_low: Floats, other_side: Floats, other: Ints, row: Ints) -> Floats:
    high = np.minimum((other_low + other_side)[other], (low + side)[row])
    shared: Floats = high - np.maximum(other_low[other], low[row])
    return shared


def _turns(turn: Ints, owner: Ints, truth: Ints, iou: Floats) -> Iterator[tuple[int, Ints]]:
    """Yield (kind, pairs) in the order in which they are decided; no detection or object occurs twice in one of them.

    A turn is one detection of every image and class. It tries its objects by falling IoU, first those that count
    (kind 0), then the others (kind 1).
    """
    by_preference = np.lexsort((-truth, -iou, owner))
    place = np.empty_like(owner)
    place[by_preference] = rank_in_group(owner[by_preference])
    order = np.lexsort((place, turn))
    is_next = (np.diff(turn[order]) != 0) | (np.diff(place[order]) != 0)
    steps = np.split(order, np.flatnonzero(is_next) + 1) if len(order) else []
    for _, of_turn in groupby(steps, lambda rows: int(turn[rows[0]])):
        tried = list(of_turn)
        for kind in (0, 1):
            for rows in tried:
                yield kind, rows
