"""Source images for a device that draws: all of them on it if they fit, else those of a batch, sent along with it."""

from __future__ import annotations

import ctypes
import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from lucid_yolo.data.augment.planned import SourceTable
from lucid_yolo.data.read_ahead import read_ahead
from lucid_yolo.data.records import SharedArray
from lucid_yolo.data.sources import PreparedSource
from lucid_yolo.kernels.augment.planned_batch import MAX_PLACEMENTS, PlannedBatch

DEVICE_SHARE = 0.4
"""Share of the device's free memory that source images may take; the rest is for training."""
EVAL_SHARE = 0.05
"""The same for evaluation images."""

_NUM_BUFFERS = 2
_READ_ONLY = 0x08  # cudaHostRegisterReadOnly

Attached = tuple[PlannedBatch, Callable[[], None]]
"""A batch, and what to call before it is used: the current stream then waits for its pixels."""

logger = logging.getLogger(__name__)


class SourcePositions:
    """Where every prepared source lies in one row of pixels; cheap to send to worker processes.

    Args:
        prepared: The sources.
    """

    def __init__(self, prepared: PreparedSource) -> None:
        sizes = prepared.sizes_px
        num_values = sizes.prod(1) * 3
        ends = np.cumsum(num_values)
        self._widths, self._starts = SharedArray(sizes[:, 1].copy()), SharedArray(ends - num_values)
        self._prepared = prepared
        self.num_values = int(ends[-1]) if len(ends) else 0

    def __len__(self) -> int:
        return len(self._starts.array)

    def for_batch(self) -> SourceTable:
        """Return the table to use for one batch."""
        return self

    def locate(self, source_index: int) -> tuple[int, int]:
        """Return (position of the first value, width in pixels) of a source."""
        return int(self._starts.array[source_index]), int(self._widths.array[source_index])

    def is_undecodable(self, source_index: int) -> bool:
        """True for a source that could not be read; its pixels are grey, its targets do not count."""
        return self._prepared.is_undecodable(source_index)

    def pixels(self) -> None:
        """None: they lie on the device."""


class BatchPositions:
    """Where sources lie among the pixels that are sent along with one batch: one after another, each once.

    Args:
        prepared: The sources.
    """

    def __init__(self, prepared: PreparedSource) -> None:
        self._prepared = prepared
        self._starts: dict[int, int] = {}
        self._end = 0

    def for_batch(self) -> SourceTable:
        """Return the table to use for one batch."""
        return type(self)(self._prepared)

    def locate(self, source_index: int) -> tuple[int, int]:
        """Return (position of the first value, width in pixels) of a source."""
        height, width = self._prepared.size_px(source_index)
        if source_index not in self._starts:
            self._starts[source_index] = self._end
            self._end += height * width * 3
        return self._starts[source_index], width

    def is_undecodable(self, source_index: int) -> bool:
        """True for a source that could not be read."""
        return self._prepared.is_undecodable(source_index)

    def pixels(self) -> UInt8[Tensor, " num_values"] | None:
        """None: who sends the batch to the device finds them."""
        return None


class BatchSources(BatchPositions):
    """The same, with the pixels: read when they are first asked about, by the process that makes the batch.

    Args:
        prepared: The sources.
    """

    def __init__(self, prepared: PreparedSource) -> None:
        super().__init__(prepared)
        self._images: dict[int, np.ndarray] = {}

    def is_undecodable(self, source_index: int) -> bool:
        """True for a source that cannot be read."""
        self._read(source_index)
        return super().is_undecodable(source_index)

    def pixels(self) -> UInt8[Tensor, " num_values"]:
        """Return the pixels of every source that was located."""
        values = np.empty(self._end, np.uint8)
        for index, start in self._starts.items():
            image = self._read(index)
            values[start : start + image.size] = image.reshape(-1)
        return torch.from_numpy(values)

    def _read(self, source_index: int) -> np.ndarray:
        if source_index not in self._images:
            self._images[source_index] = self._prepared(source_index)
        return self._images[source_index]


@runtime_checkable
class DevicePixels(Protocol):
    """Sources that the device can read."""

    @property
    def positions(self) -> SourcePositions | BatchPositions:
        """Where they lie; for worker processes."""

    @property
    def is_read_by_workers(self) -> bool:
        """Whether the workers decode."""

    @property
    def resident(self) -> Tensor | None:
        """All pixels on the device, where they are there."""

    def attach(self, batch: PlannedBatch) -> Attached:
        """Return a batch with the pixels that it needs and that are not resident, on their way to the device."""

    def close(self) -> None:
        """Give the memory back."""


class ResidentPixels:
    """Every prepared source on the device, decoded there once with one thread per core.

    Args:
        prepared: The sources; those that cannot be decoded are known afterwards.
        device: Where to.
    """

    is_read_by_workers = False

    def __init__(self, prepared: PreparedSource, device: torch.device) -> None:
        self.positions = SourcePositions(prepared)
        pixels = torch.empty(self.positions.num_values, dtype=torch.uint8, device=device)
        start = 0
        for image in read_ahead(prepared, range(len(self.positions))):
            values = _as_tensor(image)
            pixels[start : start + len(values)].copy_(values)
            start += len(values)
        self.resident: UInt8[Tensor, " num_values"] | None = pixels
        logger.info(
            "%d source images, %.2f GiB, lie on %s", len(self.positions), self.positions.num_values / 2**30, device
        )

    def attach(self, batch: PlannedBatch) -> Attached:
        """Return the batch as it is."""
        return batch, _nothing_to_wait_for

    def close(self) -> None:
        """Give the memory back."""
        self.resident = None


class StagedPixels:
    """Prepared sources in the RAM cache, page-locked; those of a batch are copied while the one before is in use.

    Args:
        prepared: The sources, kept in RAM as prepared.
        device: Where to.

    Raises:
        ValueError: The cache cannot be page-locked.
    """

    is_read_by_workers = False
    resident: Tensor | None = None

    def __init__(self, prepared: PreparedSource, device: torch.device) -> None:
        assert prepared.kept is not None
        for _ in read_ahead(prepared, range(len(prepared))):  # what cannot be decoded is known from here on
            pass
        self.positions = BatchPositions(prepared)
        self._prepared, self._buffers = prepared, _Buffers(device)
        self._locked = _page_lock(prepared.kept) if device.type == "cuda" else None  # last: close() unlocks it

    def attach(self, batch: PlannedBatch) -> Attached:
        """Begin to copy the sources of a batch, beside what the current stream is doing."""
        placements = batch.plan_field("placements").numpy().reshape(-1, 9)
        rows = placements[placements[:, 6] > placements[:, 4]]
        starts = dict(zip(rows[:, 8].tolist(), rows[:, 0].tolist(), strict=True))

        def copy(buffer: Tensor) -> None:
            for index, start in starts.items():
                values = _as_tensor(self._prepared(index))
                buffer[start : start + len(values)].copy_(values, non_blocking=True)

        return self._buffers.fill(batch, copy)

    def close(self) -> None:
        """Give the memory back, when nothing is being copied any more."""
        self._buffers.close()
        if self._locked is not None:
            torch.cuda.check_error(torch.cuda.cudart().cudaHostUnregister(self._locked))  # type: ignore[no-untyped-call]
            self._locked = None


class StreamedPixels:
    """Sources that are kept nowhere: the workers decode those of a batch and send them along with its plan.

    Args:
        prepared: The sources.
        device: Where to.
    """

    is_read_by_workers = True
    resident: Tensor | None = None

    def __init__(self, prepared: PreparedSource, device: torch.device) -> None:
        self.positions = BatchSources(prepared)
        self._buffers = _Buffers(device)
        logger.info(
            "%d source images, %.2f GiB, do not fit on %s: the workers decode those of each batch; with enough RAM "
            "cache_prepared_train_images: true spares them that",
            len(prepared),
            prepared.num_values / 2**30,
            device,
        )

    def attach(self, batch: PlannedBatch) -> Attached:
        """Begin to copy the pixels that came with a batch, beside what the current stream is doing."""
        values = batch.pixels
        assert values is not None
        return self._buffers.fill(batch, lambda buffer: buffer[: len(values)].copy_(values, non_blocking=True))

    def close(self) -> None:
        """Give the memory back, when nothing is being copied any more."""
        self._buffers.close()


class _Buffers:
    """Two buffers on the device for the source pixels of a batch, in use and on the way by turns.

    Args:
        device: Where they are.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._buffers: deque[Tensor] = deque()

    def fill(self, batch: PlannedBatch, copy: Callable[[Tensor], object]) -> Attached:
        """Return the batch with the next buffer as its pixels; ``copy`` fills it beside the current stream."""
        buffer = self._next(len(batch) * batch.num_layers * MAX_PLACEMENTS * batch.image_size_px**2 * 3)
        if self._stream is None:
            copy(buffer)
            return batch.with_pixels(buffer), _nothing_to_wait_for
        # Everything in the current stream up to here may read the buffer; what follows until the batch is used may not.
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            copy(buffer)
        copied = self._stream.record_event()
        return batch.with_pixels(buffer), lambda: torch.cuda.current_stream(self._device).wait_event(copied)

    def close(self) -> None:
        """Give the memory back, when nothing is being copied any more."""
        if self._stream is not None:
            torch.cuda.synchronize(self._device)
        self._buffers.clear()

    def _next(self, num_values: int) -> Tensor:
        """Return the buffer whose turn it is; new ones where batches get another shape."""
        if not self._buffers or len(self._buffers[0]) != num_values:
            self.close()
            self._buffers.extend(torch.zeros((_NUM_BUFFERS, num_values), dtype=torch.uint8, device=self._device))
        self._buffers.rotate(-1)
        return self._buffers[-1]


def _nothing_to_wait_for() -> None:
    pass


def fits(num_bytes: int, device: torch.device, share: float = DEVICE_SHARE) -> bool:
    """True when images take no more than a share of a device's free memory; always on a CPU."""
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return num_bytes <= share * free


def _page_lock(values: np.ndarray) -> int:
    """Lock an array's memory; return its address."""
    runtime, address = torch.cuda.cudart(), values.ctypes.data  # type: ignore[no-untyped-call]
    code = int(runtime.cudaHostRegister(address, values.nbytes, _READ_ONLY))
    if code:
        raise ValueError(
            f"augment_device gpu: {values.nbytes / 2**30:.2f} GiB of the RAM cache cannot be page-locked (CUDA error "
            f"{code}); use augment_device: cpu"
        )
    return address


def _as_tensor(image: np.ndarray) -> Tensor:
    """Return an image's values in a row, which are only read, without a copy where its memory allows."""
    if image.flags.writeable or not image.flags.c_contiguous:
        return torch.from_numpy(np.ascontiguousarray(image).reshape(-1))
    # A cache is mapped read-only, which torch cannot express: the tensor borrows the address alone.
    borrowed = (ctypes.c_uint8 * image.size).from_address(image.ctypes.data)
    return torch.from_numpy(np.ctypeslib.as_array(borrowed))
