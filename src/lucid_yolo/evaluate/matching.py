"""Which detection finds which object: the COCO evaluator's greedy matching, for all images and classes at once.

A detection is compared with the objects of its image and class, and takes one of them separately for each of ten IoU
thresholds and for each range of area, of which COCO has four: forty decisions. They are the low bits of one integer, so
that a detection meets an object in a few integer operations, and one such operation serves many images and classes
together.

Source: the COCO detection evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import groupby, pairwise

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
PAIRS_AT_ONCE = 1 << 14


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
        """Return ``[area, n]``, whether each box lies outside each range (low, high) of area; both ends are inside."""
        low, high = areas_src.T[..., None]
        is_outside: Bools = (self.area_src < low) | (self.area_src > high)
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


def stable_argsort(keys: Ints | NDArray[np.uint64]) -> Ints:
    """Return the order of numbers from 0 on, equal ones in row order.

    NumPy sorts 16 bits by counting, far faster than it compares longer numbers: so 16 bits after 16, where they differ.
    """
    order = np.arange(len(keys))
    for shift in range(0, int(keys.max(initial=0)).bit_length(), 16):
        digit = (keys >> keys.dtype.type(shift)).astype(np.uint16)
        if (digit != digit[0]).any():
            order = order[np.argsort(digit[order], kind="stable")]
    return order


def rank_in_group(group: Ints) -> Ints:
    """Return the rank of each row among the rows of its group, which lie together."""
    position = np.arange(len(group))
    is_first = np.diff(group, prepend=-1) != 0
    rank: Ints = position - np.maximum.accumulate(np.where(is_first, position, 0))
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
        found: Detections by image, then class, then best first.
        num_classes: Labels lie below it.
        areas_src: ``[area, 2]`` ranges of area, at most :data:`MAX_AREAS`.
    """
    assert len(areas_src) <= MAX_AREAS
    all_areas = sum(1 << NUM_IOUS * area for area in range(len(areas_src)))
    outside = _bits_of_areas(found.is_outside(areas_src))
    det, truth, iou = _overlapping_pairs(truths, is_crowd, found, num_classes)
    is_candidate = np.zeros(len(found), dtype=bool)
    is_candidate[det] = True
    candidate = np.flatnonzero(is_candidate)
    owner = (np.cumsum(is_candidate) - 1)[det]
    turn = rank_in_group(found.image[candidate] * num_classes + found.label[candidate])[owner]
    order, steps = _turns(turn, owner, truth, iou)
    owner, truth = owner[order], truth[order]

    reached = ((1 << np.searchsorted(IOU_THRESHOLDS, iou[order], side="right")) - 1) * all_areas
    not_counting = _bits_of_areas(truths.is_outside(areas_src) | is_crowd)[truth]
    wanted = (reached & ~not_counting, reached & not_counting)
    can_be_taken = np.where(is_crowd, 0, -1)[truth]
    taken = np.zeros(len(truths), dtype=np.int64)
    hits = np.zeros((2, len(candidate)), dtype=np.int64)  # on objects that count, and on others
    for kind, rows in steps:
        object_row, det_row = truth[rows], owner[rows]
        free = wanted[kind][rows] & ~(hits[0, det_row] | hits[1, det_row] | taken[object_row])
        hits[kind, det_row] |= free
        taken[object_row] |= free & can_be_taken[rows]
    hit, ignored = np.zeros_like(outside), outside
    hit[candidate] = hits[0]
    ignored[candidate] = hits[1] | (outside[candidate] & ~hits[0])
    return Matches(is_candidate, hit, ignored)


def _bits_of_areas(flags: Bools) -> Ints:
    """Return flags ``[area, n]`` as decision bits, the same for every IoU threshold."""
    bits = np.zeros(flags.shape[1], dtype=np.int64)
    for area, flag in enumerate(flags):
        bits |= flag * np.int64(ALL_IOUS << area * NUM_IOUS)
    return bits


def _overlapping_pairs(
    truths: BoxTable, is_crowd: Bools, found: BoxTable, num_classes: int
) -> tuple[Ints, Ints, Floats]:
    """Return (detection, object, IoU) of the pairs of one image and class that reach the lowest threshold."""
    truth_group = truths.image * num_classes + truths.label
    by_group = stable_argsort(truth_group)
    occupied, starts, counts = np.unique(truth_group[by_group], return_index=True, return_counts=True)
    first_row, end_row = np.searchsorted(found.image * num_classes + found.label, [occupied, occupied + 1])
    num_rows = end_row - first_row
    rows = _ranges(first_row, num_rows)
    starts, num_objects = np.repeat(starts, num_rows), np.repeat(counts, num_rows)
    ends = np.cumsum(num_objects)
    parts = [(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0))]
    first = 0
    while first < len(rows):
        done = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, done + PAIRS_AT_ONCE, side="right")))
        count = num_objects[first:last]
        truth = by_group[_ranges(starts[first:last], count)]
        parts.append(_reaching(truths, is_crowd, found, np.repeat(rows[first:last], count), truth))
        first = last
    det, truth, iou = (np.concatenate([part[i] for part in parts]) for i in range(3))
    return det, truth, iou


def _ranges(starts: Ints, counts: Ints) -> Ints:
    """Return the numbers from each start on, one range after the other."""
    ends = np.cumsum(counts)
    numbers: Ints = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + counts, counts)
    return numbers


def _reaching(truths: BoxTable, is_crowd: Bools, found: BoxTable, det: Ints, truth: Ints) -> tuple[Ints, Ints, Floats]:
    """Return the given pairs that reach the lowest threshold, and their IoU in the reference's order of operations."""
    width = _shared_side(truths.x1, truths.width, found.x1, found.width, det, truth)
    is_touching = width > 0
    det, truth, width = det[is_touching], truth[is_touching], width[is_touching]
    height = _shared_side(truths.y1, truths.height, found.y1, found.height, det, truth)
    is_touching = height > 0
    det, truth, overlap = det[is_touching], truth[is_touching], (width * height)[is_touching]
    area, truth_area = (t.width[rows] * t.height[rows] for t, rows in ((found, det), (truths, truth)))
    iou = overlap / np.where(is_crowd[truth], area, area + truth_area - overlap)
    is_reaching = iou >= IOU_THRESHOLDS[0]
    return det[is_reaching], truth[is_reaching], iou[is_reaching]


def _shared_side(low: Floats, side: Floats, other_low: Floats, other_side: Floats, other: Ints, row: Ints) -> Floats:
    low, side, other_low, other_side = low[row], side[row], other_low[other], other_side[other]
    shared: Floats = np.minimum(other_low + other_side, low + side) - np.maximum(other_low, low)
    return shared


def _turns(turn: Ints, owner: Ints, truth: Ints, iou: Floats) -> tuple[Ints, list[tuple[int, slice]]]:
    """Return an order of the pairs, and (kind, pairs in that order) as they are decided.

    A turn is one detection of every image and class. It tries its objects by falling IoU, first those that count
    (kind 0), then the others (kind 1). No detection or object occurs twice in one step.
    """
    has_choice = np.flatnonzero((np.bincount(owner) > 1)[owner])
    by_preference = has_choice[np.lexsort((-truth[has_choice], -iou[has_choice], owner[has_choice]))]
    place = np.zeros_like(owner)
    place[by_preference] = rank_in_group(owner[by_preference])
    num_places = int(place.max(initial=0)) + 1
    step = turn * num_places + place
    order = stable_argsort(step)
    starts = np.flatnonzero(np.diff(step[order], prepend=-1))
    slices = [slice(*ends) for ends in pairwise([*starts.tolist(), len(order)])]
    tried = groupby(zip(turn[order[starts]].tolist(), slices, strict=True), lambda pair: pair[0])
    of_turns = ([rows for _, rows in pairs] for _, pairs in tried)
    return order, [(kind, rows) for of_turn in of_turns for kind in (0, 1) for rows in of_turn]
