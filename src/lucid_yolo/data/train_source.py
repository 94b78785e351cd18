"""Where the pixels of training batches are made: in the workers, on the device, or the colours alone there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lucid_yolo.data.cache import CacheKind
from lucid_yolo.data.device_pixels import (
    Attached,
    DevicePixels,
    ResidentPixels,
    StagedPixels,
    StreamedPixels,
    fits,
)
from lucid_yolo.data.makers import (
    AugmentDevice,
    BatchMaker,
    NumberMaker,
    PixelMaker,
    UncoloredMaker,
)
from lucid_yolo.data.policy import AugmentPolicy
from lucid_yolo.data.sources import PreparedSource
from lucid_yolo.kernels.augment.planned_batch import TrainBatch
from lucid_yolo.structures import ImageRecord


@dataclass(frozen=True)
class TrainSource:
    """How batches are made.

    Attributes:
        make: Makes them, in the workers.
        pixels: Source images that the device reads; None where the workers make the pixels.
    """

    make: BatchMaker
    pixels: DevicePixels | None = None

    @property
    def resident(self) -> Tensor | None:
        """Source pixels that lie on the device for the whole run."""
        return None if self.pixels is None else self.pixels.resident

    @property
    def attach(self) -> Callable[[Any], Attached] | None:
        """What adds to a batch the pixels that travel with it; None if none do."""
        return None if self.pixels is None or self.resident is not None else self.pixels.attach

    @property
    def has_light_workers(self) -> bool:
        """Whether the workers neither decode nor resize."""
        return self.pixels is not None and not self.pixels.is_read_by_workers

    def blank(self, batch_size: int, image_size_px: int, capacity: int) -> TrainBatch:
        """Return a batch of blanks, of the shapes that the batches have."""
        blank = self.make.blank(batch_size, image_size_px, capacity)
        if self.attach is None:
            return blank
        attached, wait = self.attach(blank)
        wait()
        return attached

    def close(self) -> None:
        """Give the device's memory back."""
        if self.pixels is not None:
            self.pixels.close()


def is_read_once(is_resident: bool, cache: CacheKind, num_ranks: int) -> bool:
    """Return whether images are read once in all, by one process, so that keeping a copy in RAM serves nobody.

    Args:
        is_resident: They go to the device at once.
        cache: Kind of cache that is asked for; one on disk serves later runs.
        num_ranks: Processes that read the images.
    """
    return is_resident and cache != "disk" and num_ranks == 1


def open_train_source(
    records: Sequence[ImageRecord],
    prepared: PreparedSource,
    policy: AugmentPolicy,
    device: torch.device,
    augment_device: AugmentDevice = "cpu",
    device_hsv: bool = False,
    is_resident: bool | None = None,
) -> TrainSource:
    """Make ready to make batches; with ``augment_device`` ``gpu`` the device draws them from source images.

    These lie on the device, else in the RAM cache of prepared images, else the workers read them batch by batch.

    Args:
        records: Images of the split.
        prepared: Their pixels.
        policy: How images are varied.
        device: Device of the run.
        augment_device: Where plans are applied to pixels.
        device_hsv: Change the colours on the device, where the workers do the rest.
        is_resident: With ``gpu``, whether the source images go to the device; None looks whether they fit.

    Raises:
        ValueError: The RAM cache cannot be page-locked.
    """
    if augment_device == "gpu":
        is_resident = fits(prepared.num_values, device) if is_resident is None else is_resident
        kind = ResidentPixels if is_resident else StreamedPixels if prepared.kept is None else StagedPixels
        pixels: DevicePixels = kind(prepared, device)
        return TrainSource(NumberMaker(records, pixels.positions, policy), pixels)
    return TrainSource((UncoloredMaker if device_hsv else PixelMaker)(records, prepared))
