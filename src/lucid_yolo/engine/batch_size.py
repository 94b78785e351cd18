"""How many images fit into memory: the training step at two small sizes, a line through them, one look at the end."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from lucid_yolo.graphs import RecordingError
from lucid_yolo.kernels.augment.planned_batch import TrainBatch
from lucid_yolo.runtime.step import TrainStep
from lucid_yolo.structures import Batch, ImageRecord, target_capacity

CPU_BATCH_SIZE = 16
MEMORY_SHARE = 0.85
"""Share of the free memory that a step may need; the rest is for validation and for what fragments."""
PROBE_SIZES = (4, 8)
MAX_SOURCES = 4

_log = logging.getLogger(__name__)

MakeBlank = Callable[[int, int, int], TrainBatch]
"""Returns a blank batch of so many images, of a side, with a target capacity; None takes one of pixels."""
Measure = Callable[[int], int]
"""Returns the bytes that a step of so many images needs; raises ``torch.OutOfMemoryError`` where it cannot run."""


@dataclass(frozen=True)
class MemoryLine:
    """Bytes that a step needs, as a function of its images.

    Attributes:
        fixed: Bytes without an image.
        per_image: Bytes per image.
    """

    fixed: int | float
    per_image: int | float

    @classmethod
    def through(cls, first: tuple[int, int], second: tuple[int, int]) -> MemoryLine:
        """Return the line through two (images, bytes); it never falls."""
        slope = max((second[1] - first[1]) / (second[0] - first[0]), 0.0)
        return cls(second[1] - slope * second[0], slope)

    def most_images(self, budget: float, limit: int) -> int:
        """Return how many images need at most ``budget`` bytes, [0, limit]."""
        if self.fixed > budget:
            return 0
        return limit if self.per_image * limit <= budget - self.fixed else int((budget - self.fixed) / self.per_image)


def round_down(num_images: int) -> int:
    """Return the largest multiple of 8 up to ``num_images``; below 8 the largest power of two."""
    return num_images // 8 * 8 if num_images >= 8 else 1 << max(num_images, 1).bit_length() - 1


def choose_batch_size(measure: Measure, free_bytes: int, limit: int) -> tuple[int, str]:
    """Return (images per step, one line that says why).

    Args:
        measure: Runs a step of so many images.
        free_bytes: Memory that is free before any step.
        limit: Most images that make sense; at least 1.

    Raises:
        ValueError: Not even one image fits.
    """
    budget = MEMORY_SHARE * free_bytes
    sizes = PROBE_SIZES if limit >= PROBE_SIZES[1] else (1, limit)
    first = _fitting(measure, sizes[0], 1, budget)
    if first is None:
        raise ValueError(f"batch_size: not one image fits into {_mib(budget)} of memory; use a smaller scale or image")
    second = _fitting(measure, sizes[1], first[0] + 1, budget) if sizes[1] > first[0] else None
    if second is None:
        return first[0], f"batch size {first[0]}: {_mib(first[1])} of {_mib(free_bytes)} free memory"
    line = MemoryLine.through(first, second)
    chosen = round_down(line.most_images(budget, limit))
    if chosen > second[0]:
        checked = _fitting(measure, chosen, second[0], budget)
        chosen = checked[0] if checked is not None else second[0]
    words = f"{_mib(line.fixed)} + {_mib(line.per_image)} per image, {_mib(free_bytes)} free"
    return chosen, f"batch size {chosen}: {words}, at most {limit} images"


def _fitting(measure: Measure, num_images: int, least: int, budget: float) -> tuple[int, int] | None:
    """Return (images, bytes) of the first size from ``num_images`` down that fits; None if none does."""
    while num_images >= least:
        try:
            needed = measure(num_images)
        except torch.OutOfMemoryError:
            needed = None
        if needed is not None and needed <= budget:
            return num_images, needed
        num_images = round_down(3 * num_images // 4) if num_images > 1 else 0
    return None


def largest_capacity(records: Sequence[ImageRecord]) -> int:
    """Return a target capacity that no batch of these images exceeds."""
    rows = sorted((record.num_label_rows for record in records), reverse=True)
    return target_capacity(sum(rows[:MAX_SOURCES]))


def auto_batch_size(
    build: Callable[[], TrainStep], device: torch.device, limit: int, capacity: int, blank: MakeBlank | None = None
) -> int:
    """Return the images per step that a device has memory for; 16 on a CPU.

    Random generators are left as they were, and every step that is built for it is dropped.

    Args:
        build: Builds the training step as the run will, on parameters of its own.
        device: Where it runs.
        limit: Most images that make sense.
        capacity: Padded targets of the fullest batch.
        blank: Makes blank batches as the run's loader does; None takes batches of pixels.

    Raises:
        ValueError: Not even one image fits.
    """
    if device.type != "cuda":
        _log.info("batch size %d: the device is %s, whose memory is not measured", CPU_BATCH_SIZE, device)
        return CPU_BATCH_SIZE
    with torch.random.fork_rng(devices=[device]):
        free = CudaMemory(device).free_bytes()
        chosen, line = choose_batch_size(
            lambda n: step_bytes(build, CudaMemory(device), n, capacity, blank), free, max(limit, 1)
        )
    _log.info(line)
    return chosen


class CudaMemory:
    """The memory of one GPU as the driver and the allocator count it.

    Args:
        device: The GPU.
    """

    def __init__(self, device: torch.device) -> None:
        torch.cuda.init()  # type: ignore[no-untyped-call]  # the allocator counts for devices that are in use
        self._device = device
        self._before = 0

    def free_bytes(self) -> int:
        """Return what a step could still reserve."""
        self._empty()
        return int(torch.cuda.mem_get_info(self._device)[0])

    def start(self) -> None:
        """Begin to watch."""
        self._empty()
        torch.cuda.reset_peak_memory_stats(self._device)
        self._before = torch.cuda.memory_reserved(self._device)

    def stop(self) -> int:
        """Return the most bytes that were reserved since the start."""
        torch.cuda.synchronize(self._device)
        return torch.cuda.max_memory_reserved(self._device) - self._before

    def _empty(self) -> None:
        gc.collect()
        torch.cuda.empty_cache()


def step_bytes(
    build: Callable[[], TrainStep],
    memory: CudaMemory,
    num_images: int,
    capacity: int,
    blank: MakeBlank | None = None,
) -> int:
    """Run a step twice on a blank batch; return the bytes that both needed.

    Raises:
        OutOfMemoryError: It does not fit.
    """
    memory.start()
    step = build()
    try:
        size_px = step.config.image_size_px
        made = blank(num_images, size_px[0], capacity) if blank else Batch.allocate(num_images, size_px, capacity)
        batch = made.to(step.state.device)
        for _ in range(2 * step.config.accumulate):
            step.run(batch)
        return memory.stop()
    except RecordingError as error:
        if isinstance(error.__cause__, torch.OutOfMemoryError):
            raise error.__cause__ from error
        raise
    finally:
        step.release()


def _mib(num_bytes: int | float) -> str:
    return f"{num_bytes / 2**20:.0f} MiB"
