"""Two sets of detections on the same images: which one is better, and whether that can be told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lucid_yolo.evaluate.bootstrap import LEVEL, Draws, Interval, draw_average_precision, draw_images
from lucid_yolo.evaluate.coco import ImageDetections
from lucid_yolo.structures import ClassMap, ImageRecord

METRICS = ("map", "map50")


@dataclass(frozen=True)
class ClassDifference:
    """Average precision of one class.

    Attributes:
        name: Class name.
        a: AP 0.50:0.95 of the first detections.
        b: Of the second ones.
        difference: Second minus first.
    """

    name: str
    a: float
    b: float
    difference: Interval


@dataclass(frozen=True)
class Comparison:
    """Both sets of detections and their difference in the same draws of images.

    Attributes:
        a: Metric name to its interval, of the first detections.
        b: Of the second ones.
        difference: Second minus first.
        per_class: In the order of the class map.
        num_draws: Draws of images.
    """

    a: Mapping[str, Interval]
    b: Mapping[str, Interval]
    difference: Mapping[str, Interval]
    per_class: tuple[ClassDifference, ...]
    num_draws: int

    def verdict(self, name_a: str = "A", name_b: str = "B") -> str:
        """Return one line that says which is better by AP 0.50:0.95, in points, or that it cannot be told.

        Args:
            name_a: What the first detections are called.
            name_b: What the second ones are called.
        """
        found = self.difference["map"]
        numbers = f"{100 * found.value:+z.1f} AP ({LEVEL:.0%} {100 * found.low:z.1f}..{100 * found.high:z.1f})"
        if found.low > 0:
            return f"{name_b} is better than {name_a}: {numbers.replace('%', ' %')}"
        if found.high < 0:
            return f"{name_b} is worse than {name_a}: {numbers.replace('%', ' %')}"
        return f"no difference can be told: {numbers.replace('%', ' %')}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, None where undefined."""
        sides = {"a": self.a, "b": self.b, "difference": self.difference}
        rows = [
            {"name": row.name, "a": _plain(row.a), "b": _plain(row.b), "difference": row.difference.to_dict()}
            for row in self.per_class
        ]
        return {
            **{side: {name: interval.to_dict() for name, interval in found.items()} for side, found in sides.items()},
            "per_class": rows,
            "draws": self.num_draws,
            "level": LEVEL,
        }


def intervals_of(draws: Draws) -> dict[str, Interval]:
    """Return the interval of each metric; the first draw is the images as they are.

    Args:
        draws: Average precision in every draw.
    """
    values = {name: getattr(draws, name) for name in METRICS}
    return {name: Interval.of(float(value[0]), value[1:]) for name, value in values.items()}


def compare_detections(
    records: Sequence[ImageRecord],
    first: Sequence[ImageDetections],
    second: Sequence[ImageDetections],
    class_map: ClassMap,
    num_draws: int = 1000,
    max_detections: int = 300,
    seed: int = 0,
) -> Comparison:
    """Compare two sets of detections by the paired bootstrap: both are scored on the same draws of images.

    Args:
        records: Ground truth of every image.
        first: Detections A, in any order of images.
        second: Detections B.
        class_map: The classes.
        num_draws: Draws of images.
        max_detections: Detections used per image and class.
        seed: Same seed, same draws.

    Raises:
        ValueError: Ids repeat or are unknown, labels are out of range, or ``num_draws`` is below 1.
    """
    weights = draw_images(len(records), num_draws, seed)
    a, b = (draw_average_precision(records, side, class_map, weights, max_detections) for side in (first, second))
    differences = {name: getattr(b, name) - getattr(a, name) for name in METRICS}
    per_class = tuple(
        ClassDifference(name, float(x[0]), float(y[0]), Interval.of(float(y[0] - x[0]), (y - x)[1:]))
        for name, x, y in zip(class_map.names, a.ap.T, b.ap.T, strict=True)
    )
    difference = {name: Interval.of(float(value[0]), value[1:]) for name, value in differences.items()}
    return Comparison(intervals_of(a), intervals_of(b), difference, per_class, num_draws)


def _plain(value: float) -> float | None:
    return None if value != value else value
