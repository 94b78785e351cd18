"""A sample plan as the numbers that the device draws it from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from lucid_yolo.data.augment.affine import output_to_canvas
from lucid_yolo.data.augment.apply import MovedTargets, join
from lucid_yolo.data.plan import Placement, SamplePlan
from lucid_yolo.structures import ImageRecord

Region = tuple[int, int, int, int]


@runtime_checkable
class SourceTable(Protocol):
    """Where source images lie among the pixels that the device draws from."""

    def locate(self, source_index: int) -> tuple[int, int]:
        """Return (position of the first value, width in pixels) of a source."""

    def is_undecodable(self, source_index: int) -> bool:
        """True for a source that could not be read; its pixels are grey, its targets do not count."""

    def pixels(self) -> Tensor | None:
        """Return the pixels of the sources that were located, where they travel with the batch; else None."""


@dataclass(frozen=True)
class PlannedLayer:
    """One picture that a sample is made of.

    Attributes:
        plan: Its map.
        placements: Those of its sources that are seen.
        is_mirrored: It is mirrored left and right.
        region_xyxy_px: Part of the output that it takes.
    """

    plan: SamplePlan
    placements: Sequence[Placement]
    is_mirrored: bool = False
    region_xyxy_px: Region = (0, 0, 0, 0)


@dataclass(frozen=True)
class PlannedPicture:
    """The pictures that a sample is made of.

    Attributes:
        base: Its own.
        paste: What is pasted where ``mask`` is not 0.
        mask: ``[S, S]`` uint8.
        cut: What takes a region.
        mix: What is seen through it.
        share: Weight of what it is seen through.
    """

    base: PlannedLayer
    paste: PlannedLayer | None = None
    mask: np.ndarray | None = None
    cut: PlannedLayer | None = None
    mix: PlannedLayer | None = None
    share: float = 1.0


@dataclass(frozen=True)
class PlannedSample(MovedTargets):
    """One image of a batch before packing: its targets and the numbers its pixels come from.

    Attributes:
        plan: The plan; its colours are still to be applied.
        picture: All else.
    """

    plan: SamplePlan
    picture: PlannedPicture


def apply_to_targets(plan: SamplePlan, records: Sequence[ImageRecord], sources: SourceTable) -> PlannedSample:
    """Move a sample's targets, exactly as with its pixels, and keep for the device what to draw.

    Args:
        plan: The sample.
        records: Images of the split.
        sources: Where their pixels will be.
    """
    picture, targets = join(plan, records, NumberPen(sources))
    return PlannedSample(targets.boxes_xyxy_px, targets.labels, targets.is_ignored, plan=plan, picture=picture)


class NumberPen:
    """Writes down instead of drawing.

    Args:
        sources: Tells which sources cannot be read.
    """

    def __init__(self, sources: SourceTable) -> None:
        self.is_undecodable = sources.is_undecodable

    def warp(self, plan: SamplePlan, shown: Sequence[Placement], is_partner: bool) -> PlannedPicture:  # noqa: ARG002
        """Begin a picture; whose part it becomes is of no matter."""
        return PlannedPicture(PlannedLayer(plan, shown))

    def paste(self, picture: PlannedPicture, partner: PlannedPicture | None, mask: np.ndarray) -> PlannedPicture:
        """Add the objects' picture."""
        layer = replace(picture.base, is_mirrored=True) if partner is None else partner.base
        return replace(picture, paste=layer, mask=mask)

    def paste_region(self, picture: PlannedPicture, partner: PlannedPicture, region_xyxy_px: Region) -> PlannedPicture:
        """Add the region's picture."""
        return replace(picture, cut=replace(partner.base, region_xyxy_px=region_xyxy_px))

    def blend(self, picture: PlannedPicture, partner: PlannedPicture, share: float) -> PlannedPicture:
        """Add the picture that is blended in."""
        return replace(picture, mix=partner.base, share=share)


def layer_map(plan: SamplePlan) -> np.ndarray:
    """Return ``[9]`` float32, the map from output pixels to canvas pixels as OpenCV computes it."""
    return output_to_canvas(plan.matrix, plan.perspective).astype(np.float32).reshape(9)
