"""Scoring a detector on a split: detections of both branches, back in source pixels, against the annotations."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lucid_yolo.data.dataset import DataSplit
from lucid_yolo.data.loader import EvalLoader
from lucid_yolo.data.sources import PreparedSource
from lucid_yolo.decode.nms import MIN_SCORE
from lucid_yolo.decode.one_to_one import MAX_DETECTIONS
from lucid_yolo.evaluate.coco import BoxMetrics, ImageDetections, evaluate_boxes
from lucid_yolo.geometry.letterbox import boxes_to_src, letterbox
from lucid_yolo.models.head import BRANCHES
from lucid_yolo.runtime.detector import ImageDetector
from lucid_yolo.structures import Batch, ClassMap, Detections, ImageRecord

MAX_WAITING = 1 << 22
"""Detections kept on the device before they are fetched: some 120 MB."""

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


@dataclass(frozen=True)
class _Part:
    """Some batches of one branch, where the detector left them.

    Attributes:
        sample_index: ``[n]`` position of each image in the split; -1 for a blank.
        boxes_xyxy_px: ``[n, D, 4]``.
        score: ``[n, D]``.
        label: ``[n, D]``.
    """

    sample_index: Tensor
    boxes_xyxy_px: Tensor
    score: Tensor
    label: Tensor


class SplitEvaluator:
    """Collects the detections of a split batch by batch.

    A batch stays on its device, so that adding it waits for nothing; many batches come to the host at once.

    Args:
        split: Images and annotations.
        image_size_px: Side of the network input.
    """

    def __init__(self, split: DataSplit, image_size_px: int) -> None:
        self.split = split
        self.image_size_px = image_size_px
        self.reset()

    def reset(self) -> None:
        """Forget every batch."""
        self._rows: dict[str, list[ImageDetections]] = {}
        self._waiting: dict[str, list[_Part]] = {}
        self._num_waiting = 0

    def update(self, batch: Batch, detections: Mapping[str, Detections]) -> None:
        """Add a batch; blanks are dropped.

        Args:
            batch: Its ``sample_index`` names the images.
            detections: Decoded output per branch.
        """
        sample_index = batch.sample_index.clone()  # a view would keep the batch's shared memory open
        for branch, found in detections.items():
            part = _Part(sample_index, found.boxes_xyxy_px, found.score, found.label)
            self._waiting.setdefault(branch, []).append(part)
            self._num_waiting += found.score.numel()
        if self._num_waiting >= MAX_WAITING:
            self._fetch()

    @property
    def detections(self) -> dict[str, list[ImageDetections]]:
        """What was found in the images seen so far, per branch."""
        self._fetch()
        return self._rows

    def compute(self, detections: Mapping[str, list[ImageDetections]] | None = None) -> Evaluation:
        """Score everything collected; images that were not run do not count, and a warning says so.

        Args:
            detections: What to score instead of what was collected here, such as that of all ranks.
        """
        metrics, scored = {}, dict(self.detections if detections is None else detections)
        for branch, rows in scored.items():
            records = seen_records(self.split, rows)
            if len(records) < len(self.split.records):
                _log.warning("%s: scored on %d of %d images", branch, len(records), len(self.split.records))
            metrics[branch] = evaluate_boxes(records, rows, self.split.class_map, MAX_DETECTIONS)
        return Evaluation(metrics, scored)

    def _fetch(self) -> None:
        """Bring what waits to the host, back in source pixels."""
        for branch, parts in self._waiting.items():
            names = [f.name for f in fields(_Part)]
            columns = [torch.cat([getattr(p, name) for p in parts]).cpu().numpy() for name in names]
            self._rows.setdefault(branch, []).extend(self._to_rows(*columns))
        self._waiting, self._num_waiting = {}, 0

    def _to_rows(
        self, index: NDArray[Any], boxes_xyxy_px: NDArray[Any], score: NDArray[Any], label: NDArray[Any]
    ) -> list[ImageDetections]:
        """Return one entry per image that is no blank."""
        is_image = index >= 0
        records = [self.split.records[i] for i in index[is_image].tolist()]
        score, label = score[is_image], label[is_image]
        is_kept = score >= MIN_SCORE
        boxes = [letterbox(r.height_src, r.width_src, self.image_size_px) for r in records]
        boxes_src = boxes_to_src(boxes_xyxy_px[is_image].astype("float64"), boxes)
        columns = (boxes_src[is_kept], score[is_kept], label[is_kept])
        ends = np.cumsum(is_kept.sum(axis=1)).tolist()
        return [
            ImageDetections(record.image_id, *(column[start:end] for column in columns))
            for record, (start, end) in zip(records, pairwise([0, *ends]), strict=True)
        ]


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
            f"class names differ: the network has {_few(expected.names)}, the data set has {_few(found.names)}; take "
            "data with the network's classes, or train on these with --model.weights"
        )


def _few(names: Sequence[str], limit: int = 10) -> str:
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"{list(names[:limit])}{rest}"


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
