"""Batches from plans: stateless workers, and one integer for the position in the run.

Each worker makes whole batches and holds nothing between them, so their number changes no byte. Workers come from a
fork server: it has no CUDA context, no locks and no threads that a plain fork would copy in an unknown state, and it
imports this module once for all workers, which plain spawning would repeat in each. As with spawning, a script that
starts workers needs ``if __name__ == "__main__":``.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import torch
from torch.utils.data import DataLoader, Dataset

from lucid_yolo.data.collate import BatchWriter
from lucid_yolo.data.device_pixels import Attached
from lucid_yolo.data.host import usable_cores
from lucid_yolo.data.makers import BatchMaker
from lucid_yolo.data.plan import TrainPlanner
from lucid_yolo.data.read_ahead import read_ahead
from lucid_yolo.data.records import SharedRecords
from lucid_yolo.data.sources import PreparedSource
from lucid_yolo.data.worker_server import worker_context
from lucid_yolo.geometry.letterbox import letterbox
from lucid_yolo.kernels.augment.planned_batch import TrainBatch
from lucid_yolo.structures import Batch, ImageRecord

BATCHES_AHEAD_PER_WORKER = 2
EVAL_CAPACITY = 64

# Options of the C library's mallopt.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def default_num_workers(ranks_per_node: int = 1) -> int:
    """Return one worker per core that this process may use, shared among the ranks of the node, at least 1.

    Affinity and the CPU quota of a container count.

    Args:
        ranks_per_node: Processes that start workers on this machine.
    """
    return max(1, usable_cores() // ranks_per_node)


class TrainLoader:
    """One epoch of training batches per iteration, continued from ``position``.

    Args:
        planner: Plans this rank's batches.
        make: Makes a planned batch, in the workers.
        num_workers: Worker processes; 0 makes batches in this process; None takes :func:`default_num_workers`.
        pin_memory: Hand out batches in page-locked memory.
        position: Batches handed out since the start of the run.
        prefetch_batches: Batches that each worker prepares ahead, at least 1.
        epoch_prefetch: Let the workers begin the next epoch when the last batch of one is handed out, so that it is
            ready after the validation in between.
        attach: Adds to a batch what this process must send to the device, one batch ahead, and says how to wait for it.
        batches_per_epoch: Batches that an iteration hands out at most, where a run's epochs are shorter than the
            plan's; the plan goes on where the iteration before has ended.
        num_batches: Batches of the whole run, after which ``epoch_prefetch`` begins nothing; default those of the plan.
    """

    def __init__(
        self,
        planner: TrainPlanner,
        make: BatchMaker,
        *,
        num_workers: int | None = None,
        pin_memory: bool = False,
        position: int = 0,
        prefetch_batches: int = BATCHES_AHEAD_PER_WORKER,
        epoch_prefetch: bool = False,
        attach: Callable[[Any], Attached] | None = None,
        batches_per_epoch: int | None = None,
        num_batches: int | None = None,
    ) -> None:
        self.planner = planner
        self._num_batches = planner.num_epochs * planner.batches_per_epoch if num_batches is None else num_batches
        self._cursor = _Cursor(position, batches_per_epoch or planner.batches_per_epoch)
        self._pool = _WorkerPool(_TrainBatches(planner, make), self._cursor, num_workers, pin_memory, prefetch_batches)
        self._attach = attach
        self._has_epoch_prefetch = epoch_prefetch
        self._begun: tuple[int, Iterator[TrainBatch]] | None = None

    def __len__(self) -> int:
        return self.planner.batches_per_epoch

    @property
    def position(self) -> int:
        """Batches handed out since the start of the run; a new value counts from the next iteration on."""
        return self._cursor.position

    @position.setter
    def position(self, value: int) -> None:
        self._cursor.position = value

    @property
    def epoch(self) -> int:
        """Epoch of the plan that the next batch belongs to."""
        return self.position // len(self)

    def __iter__(self) -> Iterator[TrainBatch]:
        begun, self._begun = self._begun, None
        batches = begun[1] if begun is not None and begun[0] == self.position else self._begin()
        for batch in batches:
            self.position += 1
            is_last = self.position % self._cursor.batches_per_epoch == 0
            if is_last and self._has_epoch_prefetch and self.position < self._num_batches:
                self._begun = self.position, self._begin()
            yield batch
            if is_last:
                return  # the workers' iterator is one object: it may be in the next epoch already

    def state_dict(self) -> dict[str, int]:
        """Return the position; with :meth:`load_state_dict` this is what Trainers call a resumable loader."""
        return {"position": self.position}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue from a saved position."""
        self.position = state["position"]

    def close(self) -> None:
        """Stop the workers; another iteration starts new ones."""
        self._begun = None
        self._pool.close()

    def _begin(self) -> Iterator[TrainBatch]:
        """Put the workers to work on the epoch at the position."""
        batches = iter(self._pool)
        return batches if self._attach is None else _one_ahead(batches, self._attach)


class EvalLoader:
    """Every image of a split once, letterboxed, in record order and in batches of one shape.

    Ranks take turns batch by batch and all hand out the same number; slots without an image are blanks
    (``sample_index`` -1). Targets stay empty: the ground truth is in the records.

    Args:
        records: Images of the split; may be empty.
        prepared: Their pixels.
        batch_size: Images per batch, at least 1.
        num_workers: As in :class:`TrainLoader`.
        pin_memory: Hand out batches in page-locked memory.
        world_size: Number of ranks.
        rank: This rank, [0, world_size).

    Raises:
        ValueError: ``batch_size`` or ``rank`` is out of range.
    """

    def __init__(
        self,
        records: Sequence[ImageRecord],
        prepared: PreparedSource,
        batch_size: int,
        *,
        num_workers: int | None = None,
        pin_memory: bool = False,
        world_size: int = 1,
        rank: int = 0,
    ) -> None:
        self._indices = _eval_batch_indices(len(records), batch_size, world_size, rank)
        self._pool = _WorkerPool(_EvalBatches(records, prepared, batch_size), self._indices, num_workers, pin_memory)

    def __len__(self) -> int:
        return len(self._indices)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._pool)

    def close(self) -> None:
        """Stop the workers; another iteration starts new ones."""
        self._pool.close()


class ResidentEvalLoader:
    """The batches of :class:`EvalLoader`, made once and kept on a device; they are only read.

    Args:
        records: Images of the split; may be empty.
        prepared: Their pixels.
        batch_size: Images per batch, at least 1.
        device: Where they are kept.
        world_size: Number of ranks.
        rank: This rank, [0, world_size).

    Raises:
        ValueError: ``batch_size`` or ``rank`` is out of range.
    """

    def __init__(
        self,
        records: Sequence[ImageRecord],
        prepared: PreparedSource,
        batch_size: int,
        device: torch.device,
        *,
        world_size: int = 1,
        rank: int = 0,
    ) -> None:
        indices = _eval_batch_indices(len(records), batch_size, world_size, rank)
        make = _EvalBatches(records, prepared, batch_size).__getitem__
        self._batches = [batch.to(device) for batch in read_ahead(make, indices, ahead_per_core=1)]

    @staticmethod
    def num_bytes(num_images: int, image_size_px: int, world_size: int = 1) -> int:
        """Return the bytes of the images that a rank keeps, roughly."""
        return -(-num_images // world_size) * image_size_px**2 * 3

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches)

    def close(self) -> None:
        """Give the device's memory back."""
        self._batches.clear()


def _eval_batch_indices(num_images: int, batch_size: int, world_size: int, rank: int) -> range:
    """Return the batches of a rank; ranks take turns and have the same number."""
    if batch_size < 1:
        raise ValueError(f"batch_size: expected at least 1, found {batch_size}")
    if not 0 <= rank < world_size:
        raise ValueError(f"rank: expected 0 <= rank < world_size, found rank {rank} of {world_size}")
    num_turns = -(-num_images // (batch_size * world_size))
    return range(rank, num_turns * world_size, world_size)


class _TrainBatches(Dataset[TrainBatch]):
    def __init__(self, planner: TrainPlanner, make: BatchMaker) -> None:
        self._planner, self._make = planner, make

    def __getitem__(self, batch_index: int) -> TrainBatch:
        return self._make(self._planner.plan(batch_index))


def _one_ahead(batches: Iterator[TrainBatch], attach: Callable[[Any], Attached]) -> Iterator[TrainBatch]:
    """Yield batches after beginning to send the one behind."""
    before: Attached | None = None
    for batch in batches:
        attached = attach(batch)
        if before is not None:
            yield _settled(before)
        before = attached
    if before is not None:
        yield _settled(before)


def _settled(attached: Attached) -> TrainBatch:
    batch, wait = attached
    wait()
    return batch


class _EvalBatches(Dataset[Batch]):
    def __init__(self, records: Sequence[ImageRecord], prepared: PreparedSource, batch_size: int) -> None:
        self._records, self._prepared, self._batch_size = SharedRecords.of(records), prepared, batch_size

    def __getitem__(self, batch_index: int) -> Batch:
        size, start = self._prepared.image_size_px, batch_index * self._batch_size
        writer = BatchWriter(self._batch_size, size, EVAL_CAPACITY)
        for slot, index in enumerate(range(start, min(start + self._batch_size, len(self._records)))):
            box = letterbox(*self._records.size_src(index), size)
            rows, columns = (
                slice(box.top_px, box.top_px + box.height_px),
                slice(box.left_px, box.left_px + box.width_px),
            )
            writer.images[slot, rows, columns] = self._prepared(index)  # the rest is grey already
            writer.sample_index[slot] = index
        return writer.batch


@dataclass
class _Cursor:
    """The position in the run; iterates over the batch indices that the epoch has left."""

    position: int
    batches_per_epoch: int

    def __iter__(self) -> Iterator[int]:
        epoch = self.position // self.batches_per_epoch
        return iter(range(self.position, (epoch + 1) * self.batches_per_epoch))


class _WorkerPool:
    """Worker processes that live across iterations.

    Nothing here may refer back to the owner: workers of a loader that dies in a reference cycle are not told to stop,
    and torch then waits five seconds for each.
    """

    def __init__(
        self,
        maker: Dataset[Any],
        indices: Iterable[int],
        num_workers: int | None,
        pin_memory: bool,
        prefetch_batches: int = BATCHES_AHEAD_PER_WORKER,
    ) -> None:
        workers = default_num_workers() if num_workers is None else num_workers
        self._options: dict[str, Any] = {
            "dataset": maker,
            "batch_size": None,
            "sampler": indices,
            "num_workers": workers,
            "collate_fn": _as_is,
            "pin_memory": pin_memory,
        }
        if workers:
            self._options |= {
                "multiprocessing_context": worker_context(),
                "persistent_workers": True,
                "prefetch_factor": prefetch_batches,
                "worker_init_fn": _start_worker,
            }
        self._loader = self._new_loader()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)

    def close(self) -> None:
        self._loader = self._new_loader()

    def _new_loader(self) -> DataLoader[Any]:
        # torch draws a seed that nothing here uses; with its own generator that leaves the run's generator alone.
        return DataLoader(**self._options, generator=torch.Generator())


def _start_worker(_worker_id: int) -> None:
    use_one_core()


def use_one_core() -> None:
    """Set this process up to make batches beside others that do the same: one thread, and freed memory kept.

    Images come and go by the megabyte. The C library would give each back to the system, and its pages would have to
    be faulted in again for the next: a fifth of the time of a sample.
    """
    cv2.setNumThreads(0)
    torch.set_num_threads(1)
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        for option, num_bytes in ((_M_TRIM_THRESHOLD, 256 << 20), (_M_MMAP_THRESHOLD, 32 << 20)):
            if mallopt is not None:
                mallopt(option, num_bytes)


def _as_is(batch: Any) -> Any:
    return batch
