"""Objects cut out along their outlines and pasted into another picture.

Source:
    Ghiasi et al., "Simple Copy-Paste", 2021; the limit on what is covered: decision 0037.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from lucid_yolo.data.augment.affine import move_boxes, warp_points
from lucid_yolo.data.plan import SamplePlan
from lucid_yolo.geometry.letterbox import letterbox
from lucid_yolo.structures import ImageRecord

MAX_COVERED_FRACTION = 0.3
"""An object is pasted only where it covers less than this fraction of every box there."""

# Binary places of the corners that OpenCV draws outlines with.
_SHIFT = 4


@dataclass(frozen=True)
class Cutouts:
    """Objects of a sample in its output, after the drop rule.

    Attributes:
        boxes_xyxy_px: ``[n, 4]`` float64.
        labels: ``[n]`` int64.
        placements: For each object, the position of its source among the sample's placements.
        rings_xy_px: For each object, its rings, ``[k, 2]`` each, not cut to what its placement shows.
    """

    boxes_xyxy_px: np.ndarray
    labels: np.ndarray
    placements: list[int]
    rings_xy_px: list[list[np.ndarray]]

    def where(self, keep: np.ndarray) -> Cutouts:
        """Return the objects for which ``keep`` is True."""
        indices = np.flatnonzero(keep).tolist()
        rings = [self.rings_xy_px[i] for i in indices]
        return Cutouts(self.boxes_xyxy_px[keep], self.labels[keep], [self.placements[i] for i in indices], rings)


def cut_out(plan: SamplePlan, objects: Sequence[tuple[int, int]], records: Sequence[ImageRecord]) -> Cutouts:
    """Return objects of a sample that are left after its map; the box of each is that of its outline.

    Args:
        plan: The sample the objects are taken from.
        objects: (placement, row) of each, with an outline.
        records: Images of the split.
    """
    found = [records[plan.placements[placement].source_index] for placement, _ in objects]
    on_canvas = [
        _rings_on_canvas(plan, placement, record, row) for (placement, row), record in zip(objects, found, strict=True)
    ]
    points = [np.concatenate(rings) for rings in on_canvas]
    boxes = np.array([(*ring.min(0), *ring.max(0)) for ring in points]).reshape(-1, 4)
    clips = np.array([plan.placements[i].clip_xyxy_px for i, _ in objects], np.float64).reshape(-1, 4)
    labels = np.array([record.labels[row] for (_, row), record in zip(objects, found, strict=True)], np.int64)
    is_ignored = np.zeros(len(boxes), bool)
    moved, keep = move_boxes(boxes, clips, plan.matrix, plan.output_size_px, is_ignored, plan.perspective)
    rings_px = [[warp_points(ring, plan.matrix, plan.perspective) for ring in rings] for rings in on_canvas]
    return Cutouts(moved, labels, [placement for placement, _ in objects], rings_px).where(keep)


def _rings_on_canvas(plan: SamplePlan, placement: int, record: ImageRecord, row: int) -> list[np.ndarray]:
    assert record.polygons is not None
    box = letterbox(record.height_src, record.width_src, plan.output_size_px)
    scale, offset = np.array(box.scale_xy), plan.placements[placement].offset_xy_px
    return [ring * scale + offset for ring in record.polygons.rings(row)]


def draw_mask(plan: SamplePlan, cutouts: Cutouts) -> np.ndarray:
    """Return ``[S, S]`` uint8, 1 on the union of the objects as far as their placements show them.

    Args:
        plan: The sample the objects are taken from.
        cutouts: Its objects.
    """
    union = np.zeros((plan.output_size_px,) * 2, np.uint8)
    for placement in sorted(set(cutouts.placements)):
        x1, y1, x2, y2 = plan.placements[placement].clip_xyxy_px
        corners = np.array([(x1, y1), (x2, y1), (x2, y2), (x1, y2)], np.float64)
        shown, drawn = np.zeros_like(union), np.zeros_like(union)
        _fill(shown, warp_points(corners, plan.matrix, plan.perspective))
        for owner, rings in zip(cutouts.placements, cutouts.rings_xy_px, strict=True):
            for ring in rings if owner == placement else ():
                _fill(drawn, ring)
        union |= shown & drawn
    return union


def _fill(mask: np.ndarray, ring_xy_px: np.ndarray) -> None:
    # OpenCV puts the centre of the first pixel at 0, the plan at 0.5.
    corners = np.round((ring_xy_px - 0.5) * (1 << _SHIFT)).astype(np.int32)
    cv2.fillPoly(mask, [corners], (1,), shift=_SHIFT)


def mirror_boxes(boxes_xyxy_px: np.ndarray, size_px: int) -> np.ndarray:
    """Mirror boxes left and right.

    Args:
        boxes_xyxy_px: ``[n, 4]`` corners.
        size_px: Width of the picture.
    """
    mirrored: np.ndarray = boxes_xyxy_px[:, [2, 1, 0, 3]] * (-1, 1, -1, 1) + (size_px, 0, size_px, 0)
    return mirrored


def covers_little(boxes_xyxy_px: np.ndarray, others_xyxy_px: np.ndarray) -> np.ndarray:
    """Return ``[n]`` bool, True for boxes that cover less than ``MAX_COVERED_FRACTION`` of each of the others.

    Args:
        boxes_xyxy_px: ``[n, 4]`` boxes to paste.
        others_xyxy_px: ``[m, 4]`` boxes that are there, of more than no area.
    """
    low = np.maximum(boxes_xyxy_px[:, None, :2], others_xyxy_px[None, :, :2])
    high = np.minimum(boxes_xyxy_px[:, None, 2:], others_xyxy_px[None, :, 2:])
    covered = (high - low).clip(0).prod(2)
    areas = (others_xyxy_px[:, 2:] - others_xyxy_px[:, :2]).prod(1)
    is_little: np.ndarray = (covered < MAX_COVERED_FRACTION * areas).all(1)
    return is_little


def uncovered_boxes(boxes_xyxy_px: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Shrink boxes to the rows and columns of which the mask leaves something; of a box all covered nothing is left.

    Args:
        boxes_xyxy_px: ``[n, 4]`` corners within the picture.
        mask: ``[S, S]`` uint8, not 0 where something lies on top.
    """
    left = boxes_xyxy_px.copy()
    low, high = np.floor(boxes_xyxy_px[:, :2]).astype(int), np.ceil(boxes_xyxy_px[:, 2:]).astype(int)
    for i, ((x1, y1), (x2, y2)) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        window = mask[y1:y2, x1:x2] == 0
        if window.all():
            continue
        columns, rows = np.flatnonzero(window.any(0)), np.flatnonzero(window.any(1))
        if not len(columns):
            left[i] = 0
            continue
        limits = x1 + columns[0], y1 + rows[0], x1 + columns[-1] + 1, y1 + rows[-1] + 1
        left[i, :2], left[i, 2:] = np.maximum(left[i, :2], limits[:2]), np.minimum(left[i, 2:], limits[2:])
    return left
