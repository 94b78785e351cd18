"""Random evaluation cases and pycocotools as their oracle."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from lucid_yolo.evaluate import ImageDetections
from lucid_yolo.structures import ClassMap, ImageRecord


def record(image_id: int | str, boxes: Any, labels: Any, ignored: Any = None, area: Any = None) -> ImageRecord:
    boxes = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
    num = len(boxes)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) if area is None else np.asarray(area)
    ignored = np.zeros(num, dtype=bool) if ignored is None else np.asarray(ignored, dtype=bool)
    return ImageRecord(
        f"{image_id}.jpg", image_id, 640, 640, boxes, np.asarray(labels, dtype=np.int64), ignored, area, num
    )


def found(image_id: int | str, boxes: Any, score: Any, label: Any) -> ImageDetections:
    boxes = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
    return ImageDetections(image_id, boxes, np.asarray(score, dtype=np.float64), np.asarray(label, dtype=np.int64))


def random_boxes(rng: np.random.Generator, num: int, on_grid: bool) -> np.ndarray:
    corner, side = rng.uniform(0, 300, (num, 2)), np.exp(rng.uniform(np.log(6), np.log(250), (num, 2)))
    boxes = np.concatenate([corner, corner + side], axis=1)
    return np.round(boxes / 4) * 4 + [0, 0, 4, 4] if on_grid else boxes


def random_case(seed: int) -> tuple[list[ImageRecord], list[ImageDetections], ClassMap]:
    """Crowds, score ties, exact IoU ties (grid), empty classes, empty images, areas unlike the box, shuffled images."""
    rng = np.random.default_rng(seed)
    on_grid, num_classes = bool(rng.integers(2)), int(rng.integers(1, 6))
    records, detections = [], []
    for image_id in rng.choice(1000, int(rng.integers(1, 9)), replace=False).tolist():
        num = int(rng.choice([0, 1, 3, 12]))
        boxes, labels = random_boxes(rng, num, on_grid), rng.integers(0, num_classes, num)
        area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) * rng.choice([1.0, 0.4, 0.75], num)
        records.append(record(image_id, boxes, labels, rng.random(num) < 0.15, area))
        num_found = int(rng.choice([0, 2, 15, 60]))
        near = random_boxes(rng, num_found, on_grid)
        label = rng.integers(0, num_classes, num_found)
        if num:
            source = rng.integers(0, num, num_found)
            near = boxes[source] + (
                rng.integers(-2, 3, (num_found, 4)) * 4 if on_grid else rng.normal(0, 5, (num_found, 4))
            )
            near[:, 2:] = np.maximum(near[:, 2:], near[:, :2])
            label = np.where(rng.random(num_found) < 0.8, labels[source], label)
        score = rng.random(num_found).round(1 if rng.random() < 0.6 else 9)
        if num_found or rng.random() < 0.5:
            detections.append(found(image_id, near, score, label))
    source_ids = tuple(sorted(rng.choice(90, num_classes, replace=False).tolist()))
    return records, detections, ClassMap(tuple(f"c{i}" for i in source_ids), source_ids)


def oracle(
    records: Sequence[ImageRecord], detections: Sequence[ImageDetections], class_map: ClassMap, caps: list[int]
) -> COCOeval:
    """Return pycocotools' evaluator after its run."""

    def rows(image_id: Any, boxes: np.ndarray, labels: np.ndarray) -> list[dict[str, Any]]:
        xywh = np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1).tolist()
        return [
            {"image_id": image_id, "category_id": class_map.source_ids[k], "bbox": b, "area": b[2] * b[3], "iscrowd": 0}
            for b, k in zip(xywh, labels, strict=True)
        ]

    truths, dets = [], []
    for r in records:
        table = rows(r.image_id, r.boxes_xyxy_src, r.labels)
        truths += [
            t | {"area": float(a), "iscrowd": int(c)} for t, a, c in zip(table, r.area_src, r.is_ignored, strict=True)
        ]
    for d in detections:
        dets += [
            t | {"score": float(s)} for t, s in zip(rows(d.image_id, d.boxes_xyxy_src, d.label), d.score, strict=True)
        ]
    sides = []
    with contextlib.redirect_stdout(io.StringIO()):
        for annotations in (truths, dets):
            side = COCO()
            side.dataset = {
                "images": [{"id": r.image_id} for r in records],
                "annotations": [a | {"id": i} for i, a in enumerate(annotations, start=1)],
                "categories": [{"id": i} for i in class_map.source_ids],
            }
            side.createIndex()
            sides.append(side)
        run = COCOeval(*sides, "bbox")
        run.params.maxDets = caps
        run.evaluate()
        run.accumulate()
    return run
