"""Average precision of objects by their size, in ranges of one's own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from lucid_yolo.evaluate.coco import IOU_50, ImageDetections, box_tables, mean_defined
from lucid_yolo.evaluate.matching import MAX_AREAS
from lucid_yolo.evaluate.precision_recall import precision_recall
from lucid_yolo.structures import ClassMap, ImageRecord

LARGEST_AREA_SRC = 1e10


@dataclass(frozen=True)
class SizeBucket:
    """Metrics of the objects of some sizes; NaN without any.

    Attributes:
        low_src: Side of the smallest square that belongs to it, source pixels.
        high_src: Side of the largest; infinite for the last bucket.
        ap: Mean over classes and IoU 0.50:0.95.
        ap50: At IoU 0.50.
        ar: Mean recall.
        num_objects: Objects in it, all classes.
    """

    low_src: float
    high_src: float
    ap: float
    ap50: float
    ar: float
    num_objects: int

    @property
    def name(self) -> str:
        """How tables call it."""
        if math.isinf(self.high_src):
            return f"{self.low_src:g} px on"
        return f"{self.low_src:g}-{self.high_src:g} px"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, None where undefined or infinite."""
        return {k: v if isinstance(v, int) or math.isfinite(v) else None for k, v in asdict(self).items()}


def evaluate_size_buckets(
    records: Sequence[ImageRecord],
    detections: Sequence[ImageDetections],
    class_map: ClassMap,
    borders_src: Sequence[float | int],
    max_detections: int = 300,
) -> tuple[SizeBucket, ...]:
    """Return the metrics of each bucket: from each border to the next, and from the last one on.

    As in the COCO evaluation an annotated area on a border belongs to both sides, and a detection that matches nothing
    is wrong in the bucket of its own size only. ``(0, 32, 96)`` gives COCO's small, medium and large.

    Args:
        records: Ground truth of every image.
        detections: Detections, in any order of images.
        class_map: The classes.
        borders_src: Sides of squares in source pixels, rising from 0 or more.
        max_detections: Detections used per image and class.

    Raises:
        ValueError: The borders do not rise, ids repeat or are unknown, or labels are out of range.
    """
    borders = [float(border) for border in borders_src]
    if not borders or borders[0] < 0 or borders != sorted(set(borders)) or not all(map(math.isfinite, borders)):
        raise ValueError(f"size_buckets: expected rising sides in source pixels such as [0, 32, 96], found {borders}")
    truths, is_crowd, found, score = box_tables(records, detections, len(class_map))
    ends = [*borders[1:], math.inf]
    areas = np.array([[low**2, min(high**2, LARGEST_AREA_SRC)] for low, high in zip(borders, ends, strict=True)])
    buckets = []
    for start in range(0, len(areas), MAX_AREAS):
        part = areas[start : start + MAX_AREAS]
        tables = precision_recall(truths, is_crowd, found, score, len(class_map), [max_detections], part)
        counts = (~truths.is_outside(part) & ~is_crowd).sum(axis=1)
        for i, num_objects in enumerate(counts.tolist()):
            ap = tables.precision[..., i]
            values = (mean_defined(ap), mean_defined(ap[:, IOU_50]), mean_defined(tables.recall[:, :, i]))
            buckets.append(SizeBucket(borders[start + i], ends[start + i], *values, num_objects))
    return tuple(buckets)
