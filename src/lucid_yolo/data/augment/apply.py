"""A sample plan applied on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lucid_yolo.data.augment.affine import move_boxes, warp_image
from lucid_yolo.data.augment.canvas import compose
from lucid_yolo.data.augment.color import shift_hsv
from lucid_yolo.data.plan import Placement, SamplePlan
from lucid_yolo.data.sources import PreparedSource
from lucid_yolo.geometry.letterbox import letterbox
from lucid_yolo.structures import ImageRecord


@dataclass(frozen=True)
class AugmentedSample:
    """One image of a batch before padding.

    Attributes:
        sample_index: Position of the image in its split.
        image: ``[S, S, 3]`` RGB uint8.
        boxes_xyxy_px: ``[n, 4]`` float64.
        labels: ``[n]`` int64.
        is_ignored: ``[n]`` bool.
    """

    sample_index: int
    image: np.ndarray
    boxes_xyxy_px: np.ndarray
    labels: np.ndarray
    is_ignored: np.ndarray


def apply_plan(plan: SamplePlan, records: Sequence[ImageRecord], prepared: PreparedSource) -> AugmentedSample:
    """Compose, warp and colour one image and move its boxes along.

    Args:
        plan: The sample.
        records: Images of the split.
        prepared: Their pixels, at the image size of the plan.
    """
    images = [prepared(placement.source_index) for placement in plan.placements]
    image = warp_image(compose(plan.placements, images, plan.canvas_size_px), plan.matrix, plan.output_size_px)
    readable = [p for p in plan.placements if not prepared.is_undecodable(p.source_index)]
    boxes, labels, is_ignored = move_targets(plan, readable, records)
    return AugmentedSample(plan.sample_index, shift_hsv(image, plan.hsv_gains), boxes, labels, is_ignored)


def move_targets(
    plan: SamplePlan, placements: Sequence[Placement], records: Sequence[ImageRecord]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return boxes, labels and ignore flags of the placed sources in output pixels, after the drop rule.

    Args:
        plan: The sample.
        placements: Those of its placements whose targets count.
        records: Images of the split.
    """
    boxes, labels, ignored = [np.empty((0, 4))], [np.empty(0, np.int64)], [np.empty(0, bool)]
    for placement in placements:
        record = records[placement.source_index]
        moved, keep = move_boxes(
            _boxes_on_canvas(record, placement, plan.output_size_px),
            np.array(placement.clip_xyxy_px, np.float64),
            plan.matrix,
            plan.output_size_px,
            record.is_ignored,
        )
        boxes.append(moved[keep])
        labels.append(record.labels[keep])
        ignored.append(record.is_ignored[keep])
    return np.concatenate(boxes), np.concatenate(labels), np.concatenate(ignored)


def _boxes_on_canvas(record: ImageRecord, placement: Placement, image_size_px: int) -> np.ndarray:
    box = letterbox(record.height_src, record.width_src, image_size_px)
    boxes_xyxy_px: np.ndarray = record.boxes_xyxy_src * np.tile(box.scale_xy, 2) + np.tile(placement.offset_xy_px, 2)
    return boxes_xyxy_px
