"""How far average precision would differ on other images of the same kind: images drawn again with replacement.

Detections are matched once. Drawing an image ``w`` times is giving its detections and objects the weight ``w``, so each
draw only accumulates weights along the ranking of every class, for many draws at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.evaluate.coco import IOU_50, ImageDetections, box_tables
from lucid_yolo.evaluate.matching import AREA_RANGES_SRC, NUM_IOUS, Bools, Floats, Ints
from lucid_yolo.evaluate.precision_recall import NUM_RECALLS, RECALLS, MatchedSplit, match_split
from lucid_yolo.structures import ClassMap, ImageRecord

LEVEL = 0.95
NUMBERS_AT_ONCE = 1 << 22

Weights = NDArray[np.int32]


@dataclass(frozen=True)
class Interval:
    """A number of the images at hand and where it lies in most draws; NaN where undefined.

    Attributes:
        value: Of the images as they are.
        low: Below it lie 2.5 % of the draws.
        high: Above it lie 2.5 %.
    """

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, draws: Floats) -> Interval:
        """Return the percentile interval; draws that are NaN do not count."""
        defined = draws[~np.isnan(draws)]
        if not len(defined) or math.isnan(value):
            return cls(value, math.nan, math.nan)
        low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return cls(value, float(low), float(high))

    def to_dict(self) -> dict[str, float | None]:
        """Return plain values, None where undefined."""
        return {name: None if math.isnan(value) else value for name, value in asdict(self).items()}


@dataclass(frozen=True)
class Draws:
    """Average precision in every draw; NaN where no object was drawn.

    Attributes:
        ap: ``[R, K]`` of each class, mean over IoU 0.50:0.95.
        ap50: ``[R, K]`` at IoU 0.50.
    """

    ap: Floats
    ap50: Floats

    @property
    def map(self) -> Floats:
        """``[R]`` mean over the classes with objects."""
        return _mean_over_classes(self.ap)

    @property
    def map50(self) -> Floats:
        """``[R]`` mean over the classes with objects."""
        return _mean_over_classes(self.ap50)


def draw_images(num_images: int, num_draws: int, seed: int = 0) -> Weights:
    """Return ``[R, images]`` how often each image is drawn; first the images as they are, then ``num_draws`` draws.

    Args:
        num_images: Images to draw from, and of every draw.
        num_draws: At least 1.
        seed: Same seed, same draws.

    Raises:
        ValueError: ``num_draws`` is below 1.
    """
    if num_draws < 1:
        raise ValueError(f"bootstrap: expected at least 1 draw, found {num_draws}")
    rng = np.random.default_rng(seed)
    weights = np.ones((num_draws + 1, num_images), dtype=np.int32)
    for row in weights[1:]:
        row[:] = np.bincount(rng.integers(0, max(num_images, 1), num_images), minlength=num_images)
    return weights


def draw_average_precision(
    records: Sequence[ImageRecord],
    detections: Sequence[ImageDetections],
    class_map: ClassMap,
    weights: Weights,
    max_detections: int = 300,
) -> Draws:
    """Return the average precision of every draw, equal to evaluating the drawn images.

    Args:
        records: Ground truth of every image.
        detections: Detections, in any order of images.
        class_map: The classes.
        weights: ``[R, images]``; images are ordered by their ids.
        max_detections: Detections used per image and class.

    Raises:
        ValueError: Ids repeat or are unknown, or labels are out of range.

    Note:
        Detections of equal score are ranked by image; two of one image are not mixed with those of its other copies.
    """
    tables = box_tables(records, detections, len(class_map))
    split = match_split(*tables, len(class_map), max_detections, AREA_RANGES_SRC[:1])
    ap = np.full((len(class_map), NUM_IOUS, len(weights)), np.nan)
    objects = split.truths.take(~split.is_crowd)
    for label, rows in enumerate(split.rows_of_classes() if len(class_map) else []):
        images = objects.image[objects.label == label]
        if not len(images):
            continue
        ranking = _Ranking.of(split, rows)
        at_once = max(1, NUMBERS_AT_ONCE // max(len(rows), NUM_RECALLS, 1))
        for start in range(0, len(weights), at_once):
            drawn = weights[start : start + at_once]
            ap[label, :, start : start + at_once] = ranking.average_precision(drawn, drawn[:, images].sum(axis=1))
    return Draws(ap.mean(axis=1).T, ap[:, IOU_50].T)


@dataclass(frozen=True)
class _Ranking:
    """Detections of one class, best first.

    Attributes:
        image: ``[n]``.
        candidates: ``[m]`` rows of those that overlap an object.
        is_hit: ``[IoU, m]``.
        is_ignored: ``[IoU, m]``.
    """

    image: Ints
    candidates: Ints
    is_hit: Bools
    is_ignored: Bools

    @classmethod
    def of(cls, split: MatchedSplit, rows: Ints) -> _Ranking:
        matches = split.matches.take(rows)
        candidates = np.flatnonzero(matches.is_candidate)
        bits = np.arange(NUM_IOUS)[:, None]
        is_hit, is_ignored = ((x[candidates] >> bits) & 1 == 1 for x in (matches.hit, matches.ignored))
        return cls(split.found.image[rows], candidates, is_hit, is_ignored)

    def average_precision(self, weights: Weights, num_objects: Ints) -> Floats:
        """Return ``[IoU, r]`` of draws ``[r, images]`` with so many objects ``[r]``; NaN without."""
        ap = np.zeros((NUM_IOUS, len(weights)))
        if len(self.candidates):
            # take() keeps the numbers of a draw together, which plain indexing does not: far faster sums.
            counted = np.cumsum(weights.take(self.image, axis=1), axis=1, dtype=np.int32).take(self.candidates, axis=1)
            own = weights.take(self.image[self.candidates], axis=1)
            wanted = _hits_for_recalls(num_objects)
            for row, is_hit, is_ignored in zip(ap, self.is_hit, self.is_ignored, strict=True):
                hits = np.flatnonzero(is_hit)
                if not len(hits):
                    continue
                num_counted = counted.take(hits, axis=1)
                if is_ignored.any():
                    num_counted -= np.cumsum(own * is_ignored, axis=1, dtype=np.int32).take(hits, axis=1)
                row[:] = _area_below(np.cumsum(own.take(hits, axis=1), axis=1, dtype=np.int32), num_counted, wanted)
        ap[:, num_objects == 0] = np.nan
        return ap


def _hits_for_recalls(num_objects: Ints) -> Ints:
    """Return ``[r, recall]``, the fewest hits whose share of the objects, as a float64, reaches each recall."""
    total = np.maximum(num_objects, 1)[:, None].astype(np.float64)
    hits = np.ceil(RECALLS * total)
    hits -= (hits - 1) / total >= RECALLS
    hits += hits / total < RECALLS
    return np.maximum(hits, 0).astype(np.int64)


def _area_below(num_hits: Any, num_counted: Any, wanted: Ints) -> Floats:
    """Return ``[r]``, the mean over recalls of the best precision at no smaller recall.

    Args:
        num_hits: ``[r, h]`` hits up to each hit.
        num_counted: ``[r, h]`` hits and mistakes up to it.
        wanted: ``[r, recall]`` hits at which each recall is reached.
    """
    precision = num_hits / (num_counted + np.spacing(1))
    best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    num, length = num_hits.shape
    # One search for all draws: those of a draw lie above those of the draws before it.
    step = int(max(num_hits[:, -1].max(), wanted.max())) + 1
    offset = np.arange(num, dtype=np.int64)[:, None] * step
    place = np.searchsorted((num_hits + offset).ravel(), (wanted + offset).ravel(), side="left").reshape(wanted.shape)
    place -= np.arange(num)[:, None] * length
    reached = np.take_along_axis(best, np.minimum(place, length - 1), axis=1)
    mean: Floats = np.where(place < length, reached, 0.0).mean(axis=1)
    return mean


def _mean_over_classes(values: Floats) -> Floats:
    is_defined = ~np.isnan(values)
    count = is_defined.sum(axis=1)
    mean: Floats = np.divide(
        np.where(is_defined, values, 0.0).sum(axis=1), count, out=np.full(len(values), np.nan), where=count > 0
    )
    return mean
