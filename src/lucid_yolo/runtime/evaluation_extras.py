"""What an evaluation can say beyond the COCO numbers: sizes of one's own, and how sure the numbers are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lucid_yolo.data.dataset import DataSplit
from lucid_yolo.decode.one_to_one import MAX_DETECTIONS
from lucid_yolo.evaluate.bootstrap import Interval, draw_average_precision, draw_images
from lucid_yolo.evaluate.comparison import compare_detections, intervals_of
from lucid_yolo.evaluate.size_buckets import SizeBucket, evaluate_size_buckets
from lucid_yolo.models.head import BRANCHES
from lucid_yolo.runtime.evaluation import Evaluation, seen_records

DEPLOYED_FIRST = BRANCHES[::-1]


@dataclass(frozen=True)
class EvaluationExtras:
    """Further numbers of the branches; empty where not asked for.

    Attributes:
        size_buckets: Branch name to the metrics of each bucket.
        intervals: Branch name to metric name to its 95 % interval.
        difference: Metric name to the interval of one-to-one minus one-to-many.
        num_draws: Draws of images behind the intervals.
    """

    size_buckets: Mapping[str, tuple[SizeBucket, ...]]
    intervals: Mapping[str, Mapping[str, Interval]]
    difference: Mapping[str, Interval]
    num_draws: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: ``size_buckets`` and ``bootstrap``, each only if asked for."""
        found: dict[str, Any] = {}
        if self.size_buckets:
            found["size_buckets"] = {name: [b.to_dict() for b in rows] for name, rows in self.size_buckets.items()}
        if self.intervals:
            sides = {**self.intervals, "one_to_one_minus_one_to_many": self.difference}
            rows = {side: {name: i.to_dict() for name, i in found.items()} for side, found in sides.items()}
            found["bootstrap"] = {"draws": self.num_draws, **rows}
        return found


def evaluation_extras(
    evaluation: Evaluation, split: DataSplit, size_borders_src: Sequence[float | int] = (), num_draws: int = 0
) -> EvaluationExtras:
    """Compute what was asked for.

    Args:
        evaluation: Detections of the branches.
        split: The evaluated images.
        size_borders_src: Borders of the size buckets; none for no buckets.
        num_draws: Draws of images for the intervals; 0 for none.

    Raises:
        ValueError: The borders do not rise, or ``num_draws`` is negative.
    """
    buckets, intervals = dict[str, tuple[SizeBucket, ...]](), dict[str, Mapping[str, Interval]]()
    difference: Mapping[str, Interval] = {}
    records = seen_records(split, next(iter(evaluation.detections.values())))
    if size_borders_src:
        for branch in [name for name in DEPLOYED_FIRST if name in evaluation.detections]:
            found = evaluation.detections[branch]
            buckets[branch] = evaluate_size_buckets(records, found, split.class_map, size_borders_src, MAX_DETECTIONS)
    if num_draws and len(evaluation.detections) == len(BRANCHES):
        dense, deployed = (evaluation.detections[branch] for branch in BRANCHES)
        compared = compare_detections(records, dense, deployed, split.class_map, num_draws, MAX_DETECTIONS)
        intervals, difference = dict(zip(DEPLOYED_FIRST, (compared.b, compared.a), strict=True)), compared.difference
    elif num_draws:
        weights = draw_images(len(records), num_draws)
        for branch, found in evaluation.detections.items():
            draws = draw_average_precision(records, found, split.class_map, weights, MAX_DETECTIONS)
            intervals[branch] = intervals_of(draws)
    return EvaluationExtras(buckets, intervals, difference, num_draws)
