"""A sample plan applied on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from lucid_yolo.data.augment.affine import move_boxes, stays, visible_rectangle, warp_boxes, warp_image
from lucid_yolo.data.augment.canvas import compose
from lucid_yolo.data.augment.color import shift_hsv
from lucid_yolo.data.augment.join import blend, cut_boxes, is_region_free, paste_region
from lucid_yolo.data.augment.paste import covers_little, cut_out, draw_mask, mirror_boxes, uncovered_boxes
from lucid_yolo.data.plan import CopyPaste, Placement, SamplePlan
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


@dataclass(frozen=True)
class MovedTargets:
    """Boxes in output pixels that are left after the drop rule.

    Attributes:
        boxes_xyxy_px: ``[n, 4]`` float64.
        labels: ``[n]`` int64.
        is_ignored: ``[n]`` bool.
    """

    boxes_xyxy_px: np.ndarray
    labels: np.ndarray
    is_ignored: np.ndarray

    def where(self, keep: np.ndarray) -> MovedTargets:
        """Return the rows for which ``keep`` is True."""
        return MovedTargets(self.boxes_xyxy_px[keep], self.labels[keep], self.is_ignored[keep])

    def joined(self, other: MovedTargets) -> MovedTargets:
        """Return these rows followed by another's."""
        boxes = np.concatenate((self.boxes_xyxy_px, other.boxes_xyxy_px))
        labels = np.concatenate((self.labels, other.labels))
        return MovedTargets(boxes, labels, np.concatenate((self.is_ignored, other.is_ignored)))


def apply_plan(
    plan: SamplePlan, records: Sequence[ImageRecord], prepared: PreparedSource, out: np.ndarray | None = None
) -> AugmentedSample:
    """Compose, warp, join and colour one image and move its boxes along.

    Args:
        plan: The sample.
        records: Images of the split.
        prepared: Their pixels, at the image size of the plan.
        out: Contiguous ``[S, S, 3]`` uint8 to write the image to, as a slot of a batch is.
    """
    image, targets = _joined(plan, records, prepared, out)
    image = shift_hsv(image, plan.hsv_gains, plan.is_bgr, out)
    return AugmentedSample(plan.sample_index, image, targets.boxes_xyxy_px, targets.labels, targets.is_ignored)


def _joined(
    plan: SamplePlan, records: Sequence[ImageRecord], prepared: PreparedSource, out: np.ndarray | None = None
) -> tuple[np.ndarray, MovedTargets]:
    image, targets = _warped(plan, records, prepared, out)
    if plan.paste is not None:
        targets = _paste(plan, plan.paste, image, targets, records, prepared)
    if plan.cut is not None and is_region_free(targets.boxes_xyxy_px, plan.cut.region_xyxy_px):
        partner, others = _joined(plan.cut.partner, records, prepared)
        image = paste_region(image, partner, plan.cut.region_xyxy_px)
        boxes, keep = cut_boxes(others.boxes_xyxy_px, others.is_ignored, plan.cut.region_xyxy_px)
        targets = targets.joined(MovedTargets(boxes, others.labels, others.is_ignored).where(keep))
    if plan.mix is not None:
        partner, others = _joined(plan.mix.partner, records, prepared)
        image, targets = blend(image, partner, plan.mix.share), targets.joined(others)
    return image, targets


def _paste(
    plan: SamplePlan,
    paste: CopyPaste,
    image: np.ndarray,
    targets: MovedTargets,
    records: Sequence[ImageRecord],
    prepared: PreparedSource,
) -> MovedTargets:
    """Paste objects into the image and return its targets: what is left of its own, and the pasted ones."""
    source = paste.partner or plan
    picture = image if paste.partner is None else _joined(paste.partner, records, prepared)[0]
    indices = [placement.source_index for placement in source.placements]
    readable = [(place, row) for place, row in paste.objects if not prepared.is_undecodable(indices[place])]
    cutouts = cut_out(source, readable, records)
    boxes = cutouts.boxes_xyxy_px
    if paste.partner is None:
        boxes = mirror_boxes(boxes, plan.output_size_px)
    keep = covers_little(boxes, targets.boxes_xyxy_px)
    if not keep.any():
        return targets
    mask = draw_mask(source, cutouts.where(keep))
    if paste.partner is None:
        picture, mask = cv2.flip(image, 1), cv2.flip(mask, 1)
    cv2.copyTo(picture, mask, image)
    left = uncovered_boxes(targets.boxes_xyxy_px, mask)
    is_left = stays(left, targets.boxes_xyxy_px, targets.is_ignored)
    pasted = MovedTargets(boxes, cutouts.labels, np.zeros(len(boxes), bool)).where(keep)
    return MovedTargets(left, targets.labels, targets.is_ignored).where(is_left).joined(pasted)


def _warped(
    plan: SamplePlan, records: Sequence[ImageRecord], prepared: PreparedSource, out: np.ndarray | None
) -> tuple[np.ndarray, MovedTargets]:
    shown = shown_placements(plan)
    visible = visible_rectangle(plan.matrix, plan.perspective, plan.canvas_size_px, plan.output_size_px)
    images = [prepared(placement.source_index) for placement in shown]
    canvas = compose(shown, images, plan.canvas_size_px, visible)
    image = warp_image(canvas, plan.matrix, plan.output_size_px, plan.perspective, out)
    readable = [placement for placement in shown if not prepared.is_undecodable(placement.source_index)]
    return image, MovedTargets(*move_targets(plan, readable, records))


def shown_placements(plan: SamplePlan) -> list[Placement]:
    """Return the placements that reach the output, about nine of ten; the others need no pixels."""
    # Bilinear taps reach one canvas pixel beyond a rectangle.
    rectangles = np.array([placement.clip_xyxy_px for placement in plan.placements]) + np.array([-1, -1, 1, 1])
    moved = warp_boxes(rectangles, plan.matrix, plan.perspective)
    is_shown = (moved[:, :2] < plan.output_size_px).all(1) & (moved[:, 2:] > 0).all(1)
    return [plan.placements[i] for i in np.flatnonzero(is_shown)]


def move_targets(
    plan: SamplePlan, placements: Sequence[Placement], records: Sequence[ImageRecord]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return boxes, labels and ignore flags of the placed sources in output pixels, after the drop rule.

    Args:
        plan: The sample; its partners are left aside.
        placements: Those of its placements whose targets count.
        records: Images of the split.
    """
    boxes, clips = [np.empty((0, 4))], [np.empty((0, 4))]
    labels, ignored = [np.empty(0, np.int64)], [np.empty(0, bool)]
    for placement in placements:
        record = records[placement.source_index]
        boxes.append(_boxes_on_canvas(record, placement, plan.output_size_px))
        clips.append(np.full((len(record.labels), 4), placement.clip_xyxy_px, np.float64))
        labels.append(record.labels)
        ignored.append(record.is_ignored)
    is_ignored = np.concatenate(ignored)
    moved, keep = move_boxes(
        np.concatenate(boxes), np.concatenate(clips), plan.matrix, plan.output_size_px, is_ignored, plan.perspective
    )
    return moved[keep], np.concatenate(labels)[keep], is_ignored[keep]


def _boxes_on_canvas(record: ImageRecord, placement: Placement, image_size_px: int) -> np.ndarray:
    box = letterbox(record.height_src, record.width_src, image_size_px)
    boxes_xyxy_px: np.ndarray = record.boxes_xyxy_src * (box.scale_xy * 2) + placement.offset_xy_px * 2
    return boxes_xyxy_px
