"""Detections as rows of a COCO results file, written and read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid_yolo.evaluate.coco import ImageDetections
from lucid_yolo.structures import ClassMap


def to_coco_rows(detections: Sequence[ImageDetections], class_map: ClassMap) -> list[dict[str, Any]]:
    """Return COCO detection rows with the data set's own image and category ids.

    Args:
        detections: Detections per image.
        class_map: Classes of the data set.
    """
    rows = []
    for found in detections:
        boxes = found.boxes_xyxy_src.tolist()
        for (x1, y1, x2, y2), score, label in zip(boxes, found.score.tolist(), found.label.tolist(), strict=True):
            category_id, bbox = class_map.source_ids[label], [x1, y1, x2 - x1, y2 - y1]
            rows.append({"image_id": found.image_id, "category_id": category_id, "bbox": bbox, "score": score})
    return rows
