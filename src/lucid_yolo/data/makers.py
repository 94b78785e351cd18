"""Plans made into batches: with pixels, with pixels but for their colours, or as numbers that the device draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, Protocol, runtime_checkable

from lucid_yolo.data.augment.apply import apply_plan
from lucid_yolo.data.augment.planned import SourceTable, apply_to_targets
from lucid_yolo.data.collate import BatchWriter, PlanWriter, with_drawn_pixels
from lucid_yolo.data.plan import IDENTITY_GAINS, BatchPlan
from lucid_yolo.data.policy import AugmentPolicy
from lucid_yolo.data.records import SharedRecords
from lucid_yolo.data.sources import PreparedSource
from lucid_yolo.kernels.augment.planned_batch import NUM_LAYERS, PlannedBatch, TrainBatch
from lucid_yolo.structures import Batch, ImageRecord

AugmentDevice = Literal["cpu", "gpu"]


@runtime_checkable
class BatchMaker(Protocol):
    """Makes batches; sent to worker processes once."""

    def __call__(self, plan: BatchPlan) -> TrainBatch:
        """Return the batch of a plan."""

    def blank(self, batch_size: int, image_size_px: int, capacity: int) -> TrainBatch:
        """Return a batch of blanks, of the shapes that this maker's batches have."""


class PixelMaker:
    """Makes complete images.

    Args:
        records: Images of the split.
        prepared: Their pixels, at the image size of the plans.
    """

    def __init__(self, records: Sequence[ImageRecord], prepared: PreparedSource) -> None:
        self._records, self._prepared = SharedRecords.of(records), prepared

    def __call__(self, plan: BatchPlan) -> Batch:
        """Return the batch of a plan."""
        return make_batch(plan, self._records, self._prepared)

    def blank(self, batch_size: int, image_size_px: int, capacity: int) -> Batch:
        """Return a batch of blanks."""
        return Batch.allocate(batch_size, (image_size_px, image_size_px), capacity)


class UncoloredMaker:
    """Makes images whose colours the device still has to change.

    Args:
        records: Images of the split.
        prepared: Their pixels, at the image size of the plans.
    """

    def __init__(self, records: Sequence[ImageRecord], prepared: PreparedSource) -> None:
        self._records, self._prepared = SharedRecords.of(records), prepared

    def __call__(self, plan: BatchPlan) -> PlannedBatch:
        """Return the batch of a plan."""
        shape = len(plan.samples), self._prepared.image_size_px, plan.capacity
        drawn, planned = BatchWriter(*shape), PlanWriter(*shape)
        for slot, sample in enumerate(plan.samples):
            uncolored = replace(sample, hsv_gains=IDENTITY_GAINS, is_bgr=False)
            made = apply_plan(uncolored, self._records, self._prepared, drawn.images[slot])
            drawn.write(slot, made)
            planned.write_targets(slot, sample.sample_index, made)
            planned.write_drawn(slot, sample)
        return with_drawn_pixels(planned.batch, drawn.batch)

    def blank(self, batch_size: int, image_size_px: int, capacity: int) -> PlannedBatch:
        """Return a batch of blanks."""
        planned = PlanWriter(batch_size, image_size_px, capacity).batch
        return with_drawn_pixels(planned, Batch.allocate(batch_size, (image_size_px, image_size_px), capacity))


@runtime_checkable
class Positions(Protocol):
    """Tells where source images lie, batch by batch."""

    def for_batch(self) -> SourceTable:
        """Return the table to use for one batch."""


class NumberMaker:
    """Makes batches of numbers: targets, and plans that the device draws images from.

    Args:
        records: Images of the split.
        positions: Where their pixels lie.
        policy: How images are varied; it decides what a plan must have room for.
    """

    def __init__(self, records: Sequence[ImageRecord], positions: Positions, policy: AugmentPolicy) -> None:
        self._records, self._positions = SharedRecords.of(records), positions
        self.num_layers, self._has_masks = num_layers(policy), policy.copy_paste > 0

    def __call__(self, plan: BatchPlan) -> PlannedBatch:
        """Return the batch of a plan."""
        size, sources = plan.samples[0].output_size_px, self._positions.for_batch()
        writer = PlanWriter(len(plan.samples), size, plan.capacity, self.num_layers, self._has_masks)
        for slot, sample in enumerate(plan.samples):
            writer.write(slot, apply_to_targets(sample, self._records, sources), sources)
        return _with_pixels(writer.batch, sources)

    def blank(self, batch_size: int, image_size_px: int, capacity: int) -> PlannedBatch:
        """Return a batch of blanks; pixels that travel along are still to be attached."""
        writer = PlanWriter(batch_size, image_size_px, capacity, self.num_layers, self._has_masks)
        return _with_pixels(writer.batch, self._positions.for_batch())


def _with_pixels(batch: PlannedBatch, sources: SourceTable) -> PlannedBatch:
    pixels = sources.pixels()
    return batch if pixels is None else batch.with_pixels(pixels)


def num_layers(policy: AugmentPolicy) -> int:
    """Return the number of pictures that a sample may be made of under a policy: one, or several."""
    return NUM_LAYERS if policy.mixup or policy.cutmix or policy.copy_paste else 1


def make_batch(plan: BatchPlan, records: Sequence[ImageRecord], prepared: PreparedSource) -> Batch:
    """Apply a plan to pixels: in the loader, and when a batch is drawn or replayed.

    Args:
        plan: One rank's batch.
        records: Images of the split.
        prepared: Their pixels, at the image size of the plan.
    """
    writer = BatchWriter(len(plan.samples), prepared.image_size_px, plan.capacity)
    for slot, sample in enumerate(plan.samples):
        writer.write(slot, apply_plan(sample, records, prepared, writer.images[slot]))
    return writer.batch
