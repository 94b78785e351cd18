"""Detections as rows of a COCO results file, written and read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lucid_yolo.evaluate.coco import ImageDetections
from lucid_yolo.structures import ClassMap, ImageRecord


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


def from_coco_rows(
    rows: object, records: Sequence[ImageRecord], class_map: ClassMap, name: str = "predictions"
) -> list[ImageDetections]:
    """Return the detections of a COCO results file.

    Args:
        rows: Content of the file.
        records: Images of the data set; the file may leave out images without detections.
        class_map: Classes of the data set.
        name: How errors call the file.

    Raises:
        ValueError: The content is no list of such rows, or a row names an image or category that the data set has not.
    """
    if not isinstance(rows, list):
        raise ValueError(f"{name}: expected a list of COCO detection rows, found {type(rows).__name__}")
    labels = {source_id: label for label, source_id in enumerate(class_map.source_ids)}
    by_image: dict[int | str, list[tuple[list[float], float, int]]] = {record.image_id: [] for record in records}
    for number, row in enumerate(rows):
        try:
            x, y, width, height = (float(v) for v in row["bbox"])
            image_id, category_id, score = row["image_id"], row["category_id"], float(row["score"])
            is_known = {"image_id": image_id in by_image, "category_id": category_id in labels}
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(
                f"{name}, row {number}: expected image_id, category_id, bbox (x, y, width, height) and score, "
                f"found {row}"
            ) from error
        if unknown := [key for key, known in is_known.items() if not known]:
            key = unknown[0]
            raise ValueError(f"{name}, row {number}: expected {key} to be one of the data set's, found {row[key]!r}")
        by_image[image_id].append(([x, y, x + width, y + height], score, labels[category_id]))
    return [
        ImageDetections(
            image_id,
            np.array([box for box, _, _ in found]).reshape(-1, 4),
            np.array([score for _, score, _ in found], dtype=np.float64),
            np.array([label for _, _, label in found], dtype=np.int64),
        )
        for image_id, found in by_image.items()
    ]
