"""The training step of a run, plain and accelerated, side by side and without the Trainer's loop."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lightning.pytorch import Trainer

from lucid_yolo.engine.datamodule import DetectorDataModule
from lucid_yolo.engine.eligibility import speed_obstacles
from lucid_yolo.engine.module import DetectorModule
from lucid_yolo.engine.recording import prepare_step
from lucid_yolo.runtime.checkpoint_file import NETWORK_PREFIX, SECTION, read_checkpoint
from lucid_yolo.runtime.evaluation import check_classes
from lucid_yolo.runtime.speed import OPTIONS, ROUNDING_OPTIONS, Speed, SpeedChoice, choose_speed
from lucid_yolo.runtime.state import TrainState
from lucid_yolo.runtime.step import TrainStep


@dataclass(frozen=True)
class Arm:
    """One way to run the training step.

    Attributes:
        name: ``plain`` or ``accelerated``.
        step: The step, with a state of its own.
        options: Names of the options of ``Speed`` that it uses.
    """

    name: str
    step: TrainStep
    options: frozenset[str] = frozenset()

    @property
    def is_recorded(self) -> bool:
        """Whether the step is recorded and replayed."""
        return "capture_step" in self.options


@dataclass(frozen=True)
class Arms:
    """Both ways, in equal states, and the data of the run.

    Attributes:
        plain: Eager, plain operations.
        accelerated: With every option that was chosen.
        choice: What was chosen and why not the rest.
        data: Set up for a fit; :meth:`close` ends it.
    """

    plain: Arm
    accelerated: Arm
    choice: SpeedChoice
    data: DetectorDataModule

    def close(self) -> None:
        """Free recordings, stop loader processes, give up caches."""
        self.accelerated.step.release()
        self.data.teardown("fit")


def build_arms(
    trainer: Trainer,
    module: DetectorModule,
    data: DetectorDataModule,
    ckpt_path: str | None = None,
    before_recording: Callable[[TrainStep], None] | None = None,
) -> Arms:
    """Build both arms as a fit would, on its device and with its data; recordings are made.

    Args:
        trainer: Says device and length of the run; single device.
        module: Not yet configured.
        data: Not yet set up.
        ckpt_path: State and data position to start from; None for those of a new run.
        before_recording: Called with the accelerated step before it is recorded.

    Raises:
        ValueError: More than one device, or an option that is set to true cannot be honoured.
    """
    if trainer.world_size > 1:
        raise ValueError(f"trainer.devices: expected one device to compare on, found {trainer.world_size}")
    _attach(trainer, module, data)
    check_classes(module.meta.class_map, data.class_map)
    choice = choose_speed(compared_speed(module.speed), speed_obstacles(trainer))
    network = module.network
    assert network is not None
    module.settle_batch_size(choice.options)
    if ckpt_path is None:
        module.initialize()
    steps = [
        module.make_step(copy.deepcopy(network), options)
        for options in (choice.options & ROUNDING_OPTIONS, choice.options)
    ]
    if ckpt_path is not None:
        checkpoint = read_checkpoint(ckpt_path)
        for step in steps:
            load_state(step.state, checkpoint)
        data.load_state_dict(checkpoint[type(data).__name__])
    arms = Arms(Arm("plain", steps[0]), Arm("accelerated", steps[1], choice.options), choice, data)
    if before_recording is not None:
        before_recording(steps[1])
    if arms.accelerated.is_recorded:
        arms.accelerated.step.record()
        prepare_step(arms.accelerated.step, data)
    return arms


def compared_speed(speed: Speed) -> Speed:
    """Return what plain execution is compared with: the options set to true, else whatever is possible here."""
    is_explicit = any(getattr(speed, name) for name in OPTIONS if name not in ROUNDING_OPTIONS)
    return speed if is_explicit else replace(speed, accelerate="auto")


def load_state(state: TrainState, checkpoint: Mapping[str, Any]) -> None:
    """Copy a saved run's network and training state in place."""
    saved = checkpoint["state_dict"].items()
    state.network.load_state_dict({key.removeprefix(NETWORK_PREFIX): value for key, value in saved})
    state.load_state_dict(checkpoint[SECTION]["train_state"])


def _attach(trainer: Trainer, module: DetectorModule, data: DetectorDataModule) -> None:
    """Do what the Trainer does before a fit, without starting it."""
    trainer.datamodule = data  # type: ignore[attr-defined]
    data.trainer = module.trainer = trainer
    data.setup("fit")
    module.configure_model()
    module.to(trainer.strategy.root_device)
    if module.network is not None:
        module.network.train()
