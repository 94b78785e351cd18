"""Scoring a detector on a split: detections of both branches, back in source pixels, against the annotations."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lucid_yolo.data.dataset import DataSplit
from lucid_yolo.data.loader import EvalLoader
from lucid_yolo.data.sources import PreparedSource
from lucid_yolo.decode.nms import MIN_SCORE
from lucid_yolo.decode.one_to_one import MAX_DETECTIONS
from lucid_yolo.evaluate.coco import BoxMetrics, ImageDetections, evaluate_boxes
from lucid_yolo.geometry.letterbox import letterbox
from lucid_yolo.models.head import BRANCHES
from lucid_yolo.runtime.detector import ImageDetector
from lucid_yolo.structures import Batch, ClassMap, Detections, ImageRecord

_log = logging.getLogger(__name__)

PREFIXES = {"one_to_one": "val", "one_to_many": "val_o2m"}


def scalar_names() -> tuple[str, ...]:
    """Return the names of the numbers that an evaluation of every branch has."""
    return tuple(f"{prefix}/{name}" for prefix in PREFIXES.values() for name in BoxMetrics.scalar_names())


@dataclass(frozen=True)
class Evaluation:
    """Metrics of every evaluated branch.

    Attributes:
        metrics: Branch name to its numbers.
        detections: Branch name to the detections they were computed from.
    """

    metrics: dict[str, BoxMetrics]
    detections: dict[str, list[ImageDetections]]

    def scalars(self) -> dict[str, float]:
        """Return the headline numbers under ``val/`` (deployed branch) and ``val_o2m/`` (with suppression)."""
        return {
            f"{prefix}/{name}": value
            for branch, prefix in PREFIXES.items()
            if branch in self.metrics
            for name, value in self.metrics[branch].scalars().items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, per class included."""
        return {branch: metrics.to_dict() for branch, metrics in self.metrics.items()}

    def report(self) -> dict[str, Any]:
        """Return the numbers of both branches and their difference, None where undefined; valid JSON.

        An exported file has one branch, so no difference.
        """
        branches = self.to_dict()
        if len(branches) < len(BRANCHES):
            return {"metrics": branches, "one_to_one_minus_one_to_many": None}
        deployed, dense = (branches[branch] for branch in BRANCHES[::-1])
        names = self.metrics[BRANCHES[0]].scalars()
        difference = {n: None if None in (deployed[n], dense[n]) else deployed[n] - dense[n] for n in names}
        return {"metrics": branches, "one_to_one_minus_one_to_many": difference}


class SplitEvaluator:
    """Collects the detections of a split batch by batch.

    Args:
        split: Images and annotations.
        image_size_px: Side of the network input.
    """

    def __init__(self, split: DataSplit, image_size_px: int) -> None:
        self.split = split
        self.image_size_px = image_size_px
        self.detections: dict[str, list[ImageDetections]] = {}

    def reset(self) -> None:
        """Forget every batch."""
        self.detections = {}

    def update(self, batch: Batch, detections: Mapping[str, Detections]) -> None:
        """Add a batch; blanks are dropped.

        Args:
            batch: Its ``sample_index`` names the images.
            detections: Decoded output per branch.
        """
        indices = batch.sample_index.tolist()
        for branch, found in detections.items():
            boxes, score, label = (x.cpu().numpy() for x in (found.boxes_xyxy_px, found.score, found.label))
            rows = self.detections.setdefault(branch, [])
            for slot, index in enumerate(indices):
                if index < 0:
                    continue
                record = self.split.records[index]
                box = letterbox(record.height_src, record.width_src, self.image_size_px)
                kept = score[slot] >= MIN_SCORE
                boxes_src = box.boxes_to_src(boxes[slot, kept].astype("float64"))
                rows.append(ImageDetections(record.image_id, boxes_src, score[slot, kept], label[slot, kept]))

    def compute(self) -> Evaluation:
        """Score everything collected so far; images that were not run do not count, and a warning says so."""
        metrics = {}
        for branch, rows in self.detections.items():
            records = seen_records(self.split, rows)
            if len(records) < len(self.split.records):
                _log.warning("%s: scored on %d of %d images", branch, len(records), len(self.split.records))
            metrics[branch] = evaluate_boxes(records, rows, self.split.class_map, MAX_DETECTIONS)
        return Evaluation(metrics, dict(self.detections))


def seen_records(split: DataSplit, detections: Sequence[ImageDetections]) -> list[ImageRecord]:
    """Return the images of a split that have a row of detections, be it empty, in the split's order.

    Args:
        split: The split.
        detections: One row per image that was run.
    """
    seen = {row.image_id for row in detections}
    return [record for record in split.records if record.image_id in seen]


def check_classes(expected: ClassMap, found: ClassMap) -> None:
    """Refuse to score a model on a data set with other classes.

    Raises:
        ValueError: The names differ.
    """
    if expected.names != found.names:
        raise ValueError(
            f"class names differ: the network has {list(expected.names)}, the data set has {list(found.names)}"
        )


def evaluate_split(
    detector: ImageDetector, split: DataSplit, batch_size: int = 16, num_workers: int | None = None
) -> Evaluation:
    """Run a detector over a split and score every branch.

    Args:
        detector: The detector.
        split: Images and annotations; its classes must be the detector's.
        batch_size: Images per batch; the last batch is filled with blanks, so the shape never changes.
        num_workers: Loader processes; None for one per core.

    Raises:
        ValueError: The class names differ.
    """
    check_classes(detector.meta.class_map, split.class_map)
    size = detector.meta.image_size_px
    evaluator = SplitEvaluator(split, size)
    for batch in EvalLoader(split.records, PreparedSource(split.records, size), batch_size, num_workers=num_workers):
        evaluator.update(batch, detector.detect(batch.images))
    return evaluator.compute()
