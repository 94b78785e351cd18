"""Detections made from the annotations, some of them wrong, for tests of what is shown of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lucid_yolo.evaluate import ImageDetections, evaluate_boxes
from lucid_yolo.runtime.evaluation import Evaluation
from lucid_yolo.structures import ClassMap, ImageRecord


def make_detections(records: Sequence[ImageRecord], num_classes: int, seed: int) -> list[ImageDetections]:
    """Move, drop, relabel and invent boxes; every image gets its own share of mistakes."""
    rng = np.random.default_rng(seed)
    made = []
    for record in records:
        share = rng.uniform(0.0, 0.5)
        is_kept = rng.random(len(record.labels)) > share
        boxes, label = record.boxes_xyxy_src[is_kept], record.labels[is_kept]
        side = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
        boxes = boxes + rng.normal(0, 0.02 + 0.1 * share, boxes.shape) * side
        label = np.where(rng.random(len(label)) < share / 2, rng.integers(0, num_classes, len(label)), label)
        corner = rng.uniform(0.0, 0.6, (2, 2)) * [record.width_src, record.height_src]
        invented = np.concatenate(
            [corner, corner + np.array([0.2 * record.width_src, 0.3 * record.height_src])], axis=1
        )
        boxes = np.concatenate([boxes, invented])
        boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2])
        score = np.concatenate([rng.beta(5, 2, len(label)), rng.beta(1, 3, 2)])
        made.append(ImageDetections(record.image_id, boxes, score, np.append(label, rng.integers(0, num_classes, 2))))
    return made


def make_evaluation(records: Sequence[ImageRecord], class_map: ClassMap) -> Evaluation:
    """Return the scores of two heads' made-up detections."""
    heads = ("one_to_one", "one_to_many")
    detections = {head: make_detections(records, len(class_map), seed) for seed, head in enumerate(heads)}
    return Evaluation({head: evaluate_boxes(records, rows, class_map) for head, rows in detections.items()}, detections)
