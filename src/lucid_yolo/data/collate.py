"""Samples written into the one memory layout of a batch."""

from __future__ import annotations

import numpy as np
import torch

from lucid_yolo.data.augment.apply import AugmentedSample, MovedTargets
from lucid_yolo.data.augment.color import hsv_table
from lucid_yolo.data.augment.planned import PlannedLayer, PlannedSample, SourceTable, layer_map
from lucid_yolo.data.plan import IDENTITY_GAINS, SamplePlan
from lucid_yolo.kernels.augment.planned_batch import (
    BASE,
    CUT,
    MAX_PLACEMENTS,
    MIX,
    NUM_LAYERS,
    PASTE,
    PLAN_FIELDS,
    PlannedBatch,
)
from lucid_yolo.structures import Batch, PackedTargets


class TargetWriter:
    """NumPy views into a batch's targets; slots that are never written stay blanks.

    Args:
        batch: The batch.
    """

    def __init__(self, batch: PackedTargets) -> None:
        self._capacity, targets = batch.capacity, batch.targets
        self.sample_index = batch.sample_index.numpy()
        self._boxes, self._labels = targets.boxes_xyxy_px.numpy(), targets.labels.numpy()
        self._is_ignored, self._is_padded = targets.is_ignored.numpy(), targets.is_padded.numpy()

    def write_targets(self, slot: int, sample_index: int, targets: MovedTargets) -> None:
        """Put a sample's targets into its slot.

        Args:
            slot: Position in the batch, [0, B).
            sample_index: Position of its image in the split.
            targets: At most as many as the batch has room for.
        """
        num_rows, capacity = len(targets.labels), self._capacity
        assert num_rows <= capacity, f"sample {sample_index} has {num_rows} targets, planned for {capacity}"
        self.sample_index[slot] = sample_index
        self._boxes[slot, :num_rows] = targets.boxes_xyxy_px
        self._labels[slot, :num_rows] = targets.labels
        self._is_ignored[slot, :num_rows] = targets.is_ignored
        self._is_padded[slot, :num_rows] = False


class BatchWriter(TargetWriter):
    """Writes samples with pixels.

    Args:
        batch_size: Number of images ``B``.
        image_size_px: Side of the square images.
        capacity: Padded target count ``G``.
    """

    def __init__(self, batch_size: int, image_size_px: int, capacity: int) -> None:
        self.batch = Batch.allocate(batch_size, (image_size_px, image_size_px), capacity)
        # [B, H, W, 3]: every slot is contiguous, so that a sample can be made in place.
        self.images = self.batch.images.permute(0, 2, 3, 1).numpy()
        super().__init__(self.batch)

    def write(self, slot: int, sample: AugmentedSample) -> None:
        """Put a sample into its slot; its image may be the slot's own memory.

        Args:
            slot: Position in the batch, [0, B).
            sample: At most as many targets as the batch has room for.
        """
        if sample.image.ctypes.data != self.images[slot].ctypes.data:
            self.images[slot] = sample.image
        self.write_targets(slot, sample.sample_index, sample)


class PlanWriter(TargetWriter):
    """Writes samples whose pixels the device will draw.

    Args:
        batch_size: Number of images ``B``.
        image_size_px: Side of the square images.
        capacity: Padded target count ``G``.
        num_layers: 1 where samples are single pictures, else ``NUM_LAYERS``.
        has_masks: Objects may be pasted.
    """

    def __init__(
        self, batch_size: int, image_size_px: int, capacity: int, num_layers: int = 1, has_masks: bool = False
    ) -> None:
        assert num_layers in (1, NUM_LAYERS)
        self.batch = PlannedBatch.allocate(
            batch_size, image_size_px, capacity, num_layers=num_layers, has_masks=has_masks
        )
        self._fields = {field.name: self.batch.plan_field(field.name).numpy() for field in PLAN_FIELDS}
        self._masks = None if self.batch.masks is None else self.batch.masks.numpy()
        super().__init__(self.batch)

    def write(self, slot: int, sample: PlannedSample, sources: SourceTable) -> None:
        """Put a sample into its slot.

        Args:
            slot: Position in the batch, [0, B).
            sample: Targets and picture.
            sources: Where its source images lie.
        """
        self.write_targets(slot, sample.plan.sample_index, sample)
        picture = sample.picture
        layers = {BASE: picture.base, PASTE: picture.paste, CUT: picture.cut, MIX: picture.mix}
        for index, layer in layers.items():
            if layer is not None:
                self._write_layer(slot, index, layer, sources)
        if picture.mask is not None:
            assert self._masks is not None
            self._masks[slot] = picture.mask
        self._fields["shares"][slot] = picture.share, 1 - picture.share
        self.write_colors(slot, sample.plan)

    def write_drawn(self, slot: int, plan: SamplePlan) -> None:
        """Say that a sample's picture lies in the batch's own pixels, finished but for its colours.

        Args:
            slot: Position in the batch, [0, B).
            plan: The sample.
        """
        size = self.batch.image_size_px
        self._fields["placements"][slot, BASE, 0] = slot * size * size * 3, 0, 0, size, 0, 0, size, size, -1
        self._fields["maps"][slot, BASE] = np.eye(3).reshape(9)
        self.write_colors(slot, plan)

    def write_colors(self, slot: int, plan: SamplePlan) -> None:
        """Put a sample's colour changes into its slot."""
        is_recolored = plan.hsv_gains != IDENTITY_GAINS
        self._fields["colors"][slot] = is_recolored, plan.is_bgr
        if is_recolored:
            self._fields["tables"][slot] = hsv_table(plan.hsv_gains)[0].T

    def _write_layer(self, slot: int, index: int, layer: PlannedLayer, sources: SourceTable) -> None:
        assert len(layer.placements) <= MAX_PLACEMENTS, f"{len(layer.placements)} sources, room for {MAX_PLACEMENTS}"
        for row, placement in zip(self._fields["placements"][slot, index], layer.placements, strict=False):
            start, width = sources.locate(placement.source_index)
            row[:] = start, *placement.offset_xy_px, width, *placement.clip_xyxy_px, placement.source_index
        self._fields["layers"][slot, index] = True, layer.is_mirrored, *layer.region_xyxy_px
        self._fields["maps"][slot, index] = layer_map(layer.plan)


def with_drawn_pixels(planned: PlannedBatch, drawn: Batch) -> PlannedBatch:
    """Return the plans of a batch together with the pixels that workers have drawn for them."""
    return planned.with_pixels(drawn.images.permute(0, 2, 3, 1).reshape(-1).view(torch.uint8))
