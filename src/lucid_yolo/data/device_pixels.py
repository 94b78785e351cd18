"""Source images where the device can read them: on the device if they fit, else in page-locked memory of the host."""

from __future__ import annotations

import ctypes
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from lucid_yolo.data import host
from lucid_yolo.data.augment.planned import SourceTable
from lucid_yolo.data.records import SharedArray
from lucid_yolo.data.sources import PreparedSource
from lucid_yolo.kernels.augment.planned_batch import MAX_PLACEMENTS, PlannedBatch

DEVICE_SHARE = 0.4
"""Share of the device's free memory that source images may take; the rest is for training."""

_AHEAD_PER_CORE = 4
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
        return BatchPositions(self._prepared)

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


@runtime_checkable
class DevicePixels(Protocol):
    """Sources that the device can read."""

    @property
    def positions(self) -> SourcePositions | BatchPositions:
        """Where they lie; for worker processes."""

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

    def __init__(self, prepared: PreparedSource, device: torch.device) -> None:
        self.positions = SourcePositions(prepared)
        pixels = torch.empty(self.positions.num_values, dtype=torch.uint8, device=device)
        start = 0
        for image in _read_ahead(prepared, range(len(self.positions))):
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
        prepared: The sources; they must be kept in RAM as prepared.
        device: Where to.

    Raises:
        ValueError: The cache is not of that kind, or cannot be page-locked.
    """

    def __init__(self, prepared: PreparedSource, device: torch.device) -> None:
        if prepared.kept is None:
            raise ValueError(
                "augment_device gpu: the source images do not fit on the device, so they must be kept in RAM as "
                "prepared; set cache_prepared_train_images: true"
            )
        for _ in _read_ahead(prepared, range(len(prepared))):  # what cannot be decoded is known from here on
            pass
        self.positions = BatchPositions(prepared)
        self.resident: Tensor | None = None
        self._prepared, self._device = prepared, device
        self._buffers: deque[Tensor] = deque()
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._locked = _page_lock(prepared.kept) if device.type == "cuda" else None  # last: close() unlocks it

    def attach(self, batch: PlannedBatch) -> Attached:
        """Begin to copy the sources of a batch, beside what the current stream is doing.

        Batches have one shape: the first settles how much can be sent.
        """
        placements = batch.plan_field("placements").numpy().reshape(-1, 9)
        rows = placements[placements[:, 6] > placements[:, 4]]
        starts = dict(zip(rows[:, 8].tolist(), rows[:, 0].tolist(), strict=True))
        if not self._buffers:
            num_values = len(batch) * batch.num_layers * MAX_PLACEMENTS * batch.image_size_px**2 * 3
            self._buffers.extend(torch.zeros((_NUM_BUFFERS, num_values), dtype=torch.uint8, device=self._device))
        buffer = self._buffers[0]
        self._buffers.rotate(-1)
        if self._stream is None:
            self._copy(starts, buffer)
            return batch.with_pixels(buffer), _nothing_to_wait_for
        # Everything in the current stream up to here may read the buffer; what follows until the batch is used may not.
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            self._copy(starts, buffer)
        copied = self._stream.record_event()
        return batch.with_pixels(buffer), lambda: torch.cuda.current_stream(self._device).wait_event(copied)

    def close(self) -> None:
        """Give the memory back, when nothing is being copied any more."""
        if self._stream is not None:
            torch.cuda.synchronize(self._device)
        self._buffers.clear()
        if self._locked is not None:
            torch.cuda.check_error(torch.cuda.cudart().cudaHostUnregister(self._locked))  # type: ignore[no-untyped-call]
            self._locked = None

    def _copy(self, starts: dict[int, int], buffer: Tensor) -> None:
        for index, start in starts.items():
            values = _as_tensor(self._prepared(index))
            buffer[start : start + len(values)].copy_(values, non_blocking=True)


def _nothing_to_wait_for() -> None:
    pass


def fits(prepared: PreparedSource, device: torch.device) -> bool:
    """True when all sources leave a device enough memory to train."""
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return int(prepared.sizes_px.prod(1).sum()) * 3 <= DEVICE_SHARE * free


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


def _read_ahead(prepared: PreparedSource, indices: Iterable[int]) -> Iterator[np.ndarray]:
    """Yield sources in order, read by threads that stay a few images ahead."""
    cores, rest = host.usable_cores(), iter(indices)
    with ThreadPoolExecutor(cores) as pool:
        first = islice(rest, cores * _AHEAD_PER_CORE)
        pending: deque[Future[np.ndarray]] = deque(pool.submit(prepared, index) for index in first)
        while pending:
            image = pending.popleft().result()
            pending.extend(pool.submit(prepared, index) for index in islice(rest, 1))
            yield image


def _as_tensor(image: np.ndarray) -> Tensor:
    """Return an image's values in a row, which are only read, without a copy where its memory allows."""
    if image.flags.writeable or not image.flags.c_contiguous:
        return torch.from_numpy(np.ascontiguousarray(image).reshape(-1))
    # A cache is mapped read-only, which torch cannot express: the tensor borrows the address alone.
    borrowed = (ctypes.c_uint8 * image.size).from_address(image.ctypes.data)
    return torch.from_numpy(np.ctypeslib.as_array(borrowed))
