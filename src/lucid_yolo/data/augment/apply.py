"""A sample plan applied: targets always here, pixels here or, from numbers, on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

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

Picture = TypeVar("Picture")


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


@dataclass(frozen=True)
class AugmentedSample(MovedTargets):
    """One image of a batch before padding: its targets and its pixels.

    Attributes:
        sample_index: Position of the image in its split.
        image: ``[S, S, 3]`` RGB uint8.
    """

    sample_index: int
    image: np.ndarray


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
    image, targets = join(plan, records, PixelPen(prepared, out))
    image = shift_hsv(image, plan.hsv_gains, plan.is_bgr, out)
    return AugmentedSample(
        targets.boxes_xyxy_px, targets.labels, targets.is_ignored, sample_index=plan.sample_index, image=image
    )


@runtime_checkable
class Pen(Protocol[Picture]):
    """What makes the picture of a sample while :func:`join` moves its targets: of pixels, or as numbers."""

    def warp(self, plan: SamplePlan, shown: Sequence[Placement], is_partner: bool) -> Picture:
        """Return the placed sources under the plan's map."""

    def is_undecodable(self, source_index: int) -> bool:
        """True for a source that has been asked for and could not be read."""

    def paste(self, picture: Picture, partner: Picture | None, mask: np.ndarray) -> Picture:
        """Return the picture with another, or itself mirrored left and right, where the mask is not 0."""

    def paste_region(self, picture: Picture, partner: Picture, region_xyxy_px: tuple[int, int, int, int]) -> Picture:
        """Return the picture with a region of another in its place."""

    def blend(self, picture: Picture, partner: Picture, share: float) -> Picture:
        """Return the picture with another seen through it."""


class PixelPen:
    """Draws with OpenCV.

    Args:
        prepared: Pixels of the sources.
        out: Where the sample's own picture is written.
    """

    def __init__(self, prepared: PreparedSource, out: np.ndarray | None = None) -> None:
        self._prepared, self._out = prepared, out
        self.is_undecodable = prepared.is_undecodable

    def warp(self, plan: SamplePlan, shown: Sequence[Placement], is_partner: bool) -> np.ndarray:
        """Compose the canvas and resample it."""
        visible = visible_rectangle(plan.matrix, plan.perspective, plan.canvas_size_px, plan.output_size_px)
        images = [self._prepared(placement.source_index) for placement in shown]
        canvas = compose(shown, images, plan.canvas_size_px, visible)
        out = None if is_partner else self._out
        return warp_image(canvas, plan.matrix, plan.output_size_px, plan.perspective, out)

    def paste(self, picture: np.ndarray, partner: np.ndarray | None, mask: np.ndarray) -> np.ndarray:
        """Copy in place."""
        cv2.copyTo(cv2.flip(picture, 1) if partner is None else partner, mask, picture)
        return picture

    def paste_region(
        self, picture: np.ndarray, partner: np.ndarray, region_xyxy_px: tuple[int, int, int, int]
    ) -> np.ndarray:
        """Copy a rectangle."""
        return paste_region(picture, partner, region_xyxy_px)

    def blend(self, picture: np.ndarray, partner: np.ndarray, share: float) -> np.ndarray:
        """Mix codes."""
        return blend(picture, partner, share)


def join(
    plan: SamplePlan, records: Sequence[ImageRecord], pen: Pen[Picture], is_partner: bool = False
) -> tuple[Picture, MovedTargets]:
    """Make a sample's picture, colours left aside, and its targets.

    Args:
        plan: The sample.
        records: Images of the split.
        pen: Makes the picture.
        is_partner: The picture becomes part of another.
    """
    shown = shown_placements(plan)
    picture = pen.warp(plan, shown, is_partner)
    readable = [placement for placement in shown if not pen.is_undecodable(placement.source_index)]
    targets = MovedTargets(*move_targets(plan, readable, records))
    if plan.paste is not None:
        picture, targets = _paste(plan, plan.paste, picture, targets, records, pen)
    if plan.cut is not None and is_region_free(targets.boxes_xyxy_px, plan.cut.region_xyxy_px):
        partner, others = join(plan.cut.partner, records, pen, is_partner=True)
        picture = pen.paste_region(picture, partner, plan.cut.region_xyxy_px)
        boxes, keep = cut_boxes(others.boxes_xyxy_px, others.is_ignored, plan.cut.region_xyxy_px)
        targets = targets.joined(MovedTargets(boxes, others.labels, others.is_ignored).where(keep))
    if plan.mix is not None:
        partner, others = join(plan.mix.partner, records, pen, is_partner=True)
        picture, targets = pen.blend(picture, partner, plan.mix.share), targets.joined(others)
    return picture, targets


def _paste(
    plan: SamplePlan,
    paste: CopyPaste,
    picture: Picture,
    targets: MovedTargets,
    records: Sequence[ImageRecord],
    pen: Pen[Picture],
) -> tuple[Picture, MovedTargets]:
    """Paste objects; of the targets return what is left of the picture's own, and the pasted ones."""
    source = paste.partner or plan
    partner = None if paste.partner is None else join(paste.partner, records, pen, is_partner=True)[0]
    indices = [placement.source_index for placement in source.placements]
    readable = [(place, row) for place, row in paste.objects if not pen.is_undecodable(indices[place])]
    cutouts = cut_out(source, readable, records)
    boxes = cutouts.boxes_xyxy_px
    if partner is None:
        boxes = mirror_boxes(boxes, plan.output_size_px)
    keep = covers_little(boxes, targets.boxes_xyxy_px)
    if not keep.any():
        return picture, targets
    mask = draw_mask(source, cutouts.where(keep))
    if partner is None:
        mask = cv2.flip(mask, 1)
    picture = pen.paste(picture, partner, mask)
    left = uncovered_boxes(targets.boxes_xyxy_px, mask)
    is_left = stays(left, targets.boxes_xyxy_px, targets.is_ignored)
    pasted = MovedTargets(boxes, cutouts.labels, np.zeros(len(boxes), bool)).where(keep)
    return picture, MovedTargets(left, targets.labels, targets.is_ignored).where(is_left).joined(pasted)


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
