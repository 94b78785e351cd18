"""A training batch whose images are still numbers: which source pixels go where. The device draws them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from jaxtyping import UInt8
from torch import Tensor

from lucid_yolo.structures import BOX_FIELDS, Batch, PackedTargets, TargetField, allocate_targets

MAX_PLACEMENTS, PLACEMENT_COLUMNS = 4, 9
BASE, PASTE, CUT, MIX = range(4)
NUM_LAYERS = 4
"""Pictures that a sample may be made of: its own, objects pasted, a region pasted, one blended in, in this order."""


@dataclass(frozen=True)
class PlanField:
    """One array of the packed plans: its name, dtype and shape per image (per image and layer, if layered)."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    is_layered: bool

    def row_shape(self, num_layers: int) -> tuple[int, ...]:
        """Return the shape per image."""
        return (num_layers, *self.shape) if self.is_layered else self.shape


PLAN_FIELDS = (
    # position of the source's first value among the pixels; x, y of its top left pixel on the canvas; its width; the
    # canvas rectangle that it fills, x1, y1, x2, y2, empty where there is no source; its position in the split
    PlanField("placements", torch.int64, (MAX_PLACEMENTS, PLACEMENT_COLUMNS), True),
    # is_used, is_mirrored, region of the output: x1, y1, x2, y2
    PlanField("layers", torch.int64, (6,), True),
    # is_recolored, is_bgr
    PlanField("colors", torch.int64, (2,), False),
    # output pixel to canvas pixel, both counted from the centre of the first, row by row
    PlanField("maps", torch.float32, (9,), True),
    # weights of the sample and of the picture blended in
    PlanField("shares", torch.float32, (2,), False),
    # old to new hue, saturation and value codes
    PlanField("tables", torch.uint8, (3, 256), False),
)


@dataclass(frozen=True)
class PlannedBatch(PackedTargets):
    """Plans and packed targets of a batch; a few kilobytes an image.

    Attributes:
        plans: Every field of ``PLAN_FIELDS`` for all images, raw bytes.
        packed: As in :class:`~lucid_yolo.structures.Batch`.
        masks: ``[B, S, S]``, not 0 where objects are pasted; None without pasting.
        pixels: Source pixels that the plans point into; None where they lie on the device already.
        num_images: Number of images ``B``.
        image_size_px: Side of the square images ``S``.
        num_layers: 1 where samples are single pictures, else ``NUM_LAYERS``.
        capacity: Padded target count ``G``.
        target_fields: Which arrays ``packed`` holds, in order.
    """

    plans: UInt8[Tensor, " plan_bytes"]
    packed: UInt8[Tensor, " num_bytes"]
    masks: UInt8[Tensor, "B S S"] | None
    pixels: UInt8[Tensor, " num_values"] | None
    num_images: int
    image_size_px: int
    num_layers: int
    capacity: int
    target_fields: tuple[TargetField, ...] = BOX_FIELDS

    @classmethod
    def allocate(
        cls,
        batch_size: int,
        image_size_px: int,
        capacity: int,
        *,
        num_layers: int = 1,
        has_masks: bool = False,
        target_fields: tuple[TargetField, ...] = BOX_FIELDS,
    ) -> PlannedBatch:
        """Return a CPU batch of blanks: grey images, ``sample_index`` -1, every target padded.

        Args:
            batch_size: Number of images ``B``.
            image_size_px: Side of the square images.
            capacity: Padded target count ``G``, a multiple of 64.
            num_layers: 1 or ``NUM_LAYERS``.
            has_masks: Make room for masks of pasted objects.
            target_fields: Arrays to hold.
        """
        num_bytes = sum(_num_bytes(field, batch_size, num_layers) for field in PLAN_FIELDS)
        masks = torch.zeros((batch_size, image_size_px, image_size_px), dtype=torch.uint8) if has_masks else None
        packed = allocate_targets(batch_size, capacity, target_fields)
        plans = torch.zeros(num_bytes, dtype=torch.uint8)
        return cls(plans, packed, masks, None, batch_size, image_size_px, num_layers, capacity, target_fields)

    def __len__(self) -> int:
        return self.num_images

    def plan_field(self, name: str) -> Tensor:
        """Return one array of the plans, ``[B, ...]``, as a view.

        Raises:
            KeyError: There is no such field.
        """
        for field, view in self._plan_views():
            if field.name == name:
                return view
        raise KeyError(f"plans have no field {name!r}; they have {[field.name for field in PLAN_FIELDS]}")

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors; with :attr:`constants` they are the whole batch."""
        return tuple(x for x in (self.plans, self.packed, self.masks, self.pixels) if x is not None)

    @property
    def constants(self) -> tuple[Any, ...]:
        """What the tensors do not show, hashable."""
        kinds = self.masks is not None, self.pixels is not None
        return *kinds, self.num_images, self.image_size_px, self.num_layers, self.capacity, self.target_fields

    @classmethod
    def restore(cls, constants: tuple[Any, ...], tensors: Sequence[Tensor]) -> PlannedBatch:
        """Invert :attr:`tensors` and :attr:`constants`; nothing is copied."""
        has_masks, has_pixels, *rest = constants
        plans, packed, *others = tensors
        masks = others.pop(0) if has_masks else None
        pixels = others.pop(0) if has_pixels else None
        return cls(plans, packed, masks, pixels, *rest)

    def with_pixels(self, pixels: UInt8[Tensor, " num_values"]) -> PlannedBatch:
        """Return the batch with the pixels that its plans point into."""
        return replace(self, pixels=pixels)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> PlannedBatch:
        """Return the batch on ``device``; itself when it is there already."""
        return PlannedBatch.restore(self.constants, [x.to(device, non_blocking=non_blocking) for x in self.tensors])

    def pin_memory(self) -> PlannedBatch:
        """Return the batch in page-locked host memory."""
        return PlannedBatch.restore(self.constants, [x.pin_memory() for x in self.tensors])

    def _plan_views(self) -> Iterator[tuple[PlanField, Tensor]]:
        start = 0
        for field in PLAN_FIELDS:
            stop = start + _num_bytes(field, self.num_images, self.num_layers)
            shape = (self.num_images, *field.row_shape(self.num_layers))
            yield field, self.plans[start:stop].view(field.dtype).view(shape)
            start = stop


TrainBatch = Batch | PlannedBatch
"""What the training step takes: images, or plans to draw them from."""


def _num_bytes(field: PlanField, batch_size: int, num_layers: int) -> int:
    return batch_size * prod(field.row_shape(num_layers)) * field.dtype.itemsize
