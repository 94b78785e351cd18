"""Recording in a run: when it may happen, when it is made ready, when it is released."""

from __future__ import annotations

import logging

from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from lucid_yolo.engine.batch_size import largest_capacity
from lucid_yolo.engine.datamodule import DetectorDataModule, detector_data
from lucid_yolo.engine.module import detector_module
from lucid_yolo.runtime.step import TrainStep
from lucid_yolo.structures import target_capacity

_log = logging.getLogger(__name__)


def expected_capacities(data: DetectorDataModule) -> list[int]:
    """Return the target capacities that the first epoch uses, smallest first.

    Where even the four fullest images together fit the smallest capacity, nothing needs to be planned.
    """
    bound = largest_capacity(data.splits["train"].records)
    if bound == target_capacity(0):
        return [bound]
    planner = data.planner()
    return sorted({planner.plan(index).capacity for index in range(planner.batches_per_epoch)})


def prepare_step(step: TrainStep, data: DetectorDataModule) -> None:
    """Make a step's recordings for every capacity of the first epoch; no loader may be running.

    Args:
        step: The training step; no state changes.
        data: Set up for a fit.
    """
    source = data.train_source()
    for capacity in expected_capacities(data):
        step.prepare(source.blank(data.batch_size, step.config.image_size_px[0], capacity).to(step.state.device))


class RecordingOwner(Callback):
    """Makes recordings before the first epoch, while no loader runs, and releases them when the fit ends."""

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record the step for every capacity that the first epoch uses."""
        module, data = detector_module(pl_module), detector_data(trainer)
        assert module.train_step is not None
        if "capture_step" not in module.speed_options:
            return
        prepare_step(module.train_step, data)
        trainer.strategy.barrier("recorded")

    @override
    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Say how the steps ran, and release."""
        module = detector_module(pl_module)
        if module.train_step is not None:
            counts = module.train_step.counts
            _log.info("steps: %d replayed, %d eager, %d recordings", counts.replayed, counts.eager, counts.recorded)
        module.release()

    @override
    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Release before anything else is torn down."""
        detector_module(pl_module).release()
