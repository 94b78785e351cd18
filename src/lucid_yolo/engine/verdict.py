"""One line in a run's log: what limits its speed, and which option would help."""

from __future__ import annotations

import logging
import statistics
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from lucid_yolo.engine.datamodule import DetectorDataModule, detector_data
from lucid_yolo.engine.module import detector_module
from lucid_yolo.engine.moments import Moment, has_passed, mark, ms_between, wait_for

NUM_STEPS, NUM_SKIPPED = 50, 10
MIN_MARKS = 3
"""Steps of one epoch that say anything."""
MIN_IDLE_SHARE = 0.1
"""A device that waits less than this share of a step for the next batch is not held back by the loader."""
MIN_HOST_SHARE = 0.9
"""A host that is busy for this share of an eager step is what the device waits for inside it."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StepTimes:
    """Medians over some steps, in ms.

    Attributes:
        period: From one step's start to the next, on the device.
        idle: From a step's end to the next start, on the device.
        host: That the host needs to begin a step, waits for the device left aside.
    """

    period: float
    idle: float
    host: float


class SpeedVerdict(Callback):
    """Times the first steps of a fit and says once what limits them.

    Waits for the device only where an epoch ends before enough steps have passed.
    """

    def __init__(self) -> None:
        self._marks: list[tuple[Moment, Moment, float]] = []
        self._start: tuple[Moment, float] | None = None
        self._is_done = False

    @override
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Mark the moment."""
        if not self._is_done:
            self._start = mark(pl_module.device), time.perf_counter()

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Mark the moment; after enough steps of one epoch say what was found."""
        if self._is_done or self._start is None:
            return
        start, host_start_s = self._start
        self._marks.append((start, mark(pl_module.device), 1e3 * (time.perf_counter() - host_start_s)))
        if len(self._marks) > NUM_STEPS and has_passed(self._marks[NUM_STEPS - 1][1]):
            self._finish(trainer, pl_module)

    @override
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take what there is, if not in the first epoch; what happens between epochs is no step."""
        is_short = len(self._marks) < MIN_MARKS or (len(self._marks) <= NUM_STEPS and trainer.current_epoch == 0)
        if self._is_done or is_short:
            self._marks.clear()
            return
        wait_for(self._marks[-1][1])
        self._finish(trainer, pl_module)

    def _finish(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._is_done = True
        module = detector_module(pl_module)
        times = step_times(self._marks[min(NUM_SKIPPED, len(self._marks) - MIN_MARKS) : NUM_STEPS])
        self._marks.clear()
        if trainer.is_global_zero:
            is_recorded = "capture_step" in module.speed_options
            _log.info(judge(times, pl_module.device.type, is_recorded, detector_data(trainer)))


def step_times(marks: list[tuple[Moment, Moment, float]]) -> StepTimes:
    """Return medians.

    Args:
        marks: (start, end, host time in ms) of consecutive steps, at least two.
    """
    period = statistics.median(ms_between(a[0], b[0]) for a, b in pairwise(marks))
    idle = statistics.median(ms_between(a[1], b[0]) for a, b in pairwise(marks))
    return StepTimes(period, max(idle, 0.0), statistics.median(mark[2] for mark in marks))


def judge(times: StepTimes, device_type: str, is_recorded: bool, data: DetectorDataModule) -> str:
    """Return what limits training, with its number, and the option that would help.

    Args:
        times: Of the run's steps.
        device_type: ``cpu`` or ``cuda``.
        is_recorded: The step is replayed.
        data: Its options.
    """
    found = f"{times.period:.1f} ms a step"
    if times.idle > MIN_IDLE_SHARE * times.period:
        share = times.idle / times.period
        return f"loader-bound: {found}, of which {share:.0%} waiting for images; {loader_advice(device_type, data)}"
    if device_type == "cuda" and not is_recorded and times.host > MIN_HOST_SHARE * (times.period - times.idle):
        share = times.host / times.period
        return (
            f"launch-bound: {found}, of which the host needs {share:.0%} to launch kernels; "
            "model.speed.accelerate: auto would help"
        )
    return f"compute-bound: {found}, of which {times.idle / times.period:.0%} waiting for images"


def loader_advice(device_type: str, data: DetectorDataModule) -> str:
    """Return what makes the loader faster, beginning with what helps most."""
    if device_type == "cuda" and data.augment_device != "gpu":
        return "data.augment_device: gpu would help"
    if data.cache_train_images == "none" and not data.cache_prepared_train_images and data.augment_device != "gpu":
        return "data.cache_prepared_train_images: true would help"
    return "more data.num_workers or more cores would help"
