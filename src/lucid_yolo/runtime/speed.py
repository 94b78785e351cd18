"""What may be accelerated, and what is chosen. No torch here, so that every command can show the options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Accelerate = Literal["none", "auto"]


@dataclass(frozen=True)
class Speed:
    """Options that change how fast a run is and not one byte of its result.

    Attributes:
        accelerate: ``auto`` turns on whatever is possible here; ``none`` nothing beyond the options set to true.
        capture_step: Record the complete training step and the evaluation forward as CUDA graphs and replay them.
    """

    accelerate: Accelerate = "none"
    capture_step: bool = False

    def __post_init__(self) -> None:
        if self.accelerate not in get_args(Accelerate):
            raise ValueError(f"speed.accelerate: expected one of {get_args(Accelerate)}, found {self.accelerate!r}")


@dataclass(frozen=True)
class SpeedChoice:
    """What a run uses.

    Attributes:
        is_step_captured: Whether the step is recorded.
        line: One line for the user; empty when nothing was asked for.
    """

    is_step_captured: bool
    line: str


def choose_speed(speed: Speed, obstacles: Sequence[str]) -> SpeedChoice:
    """Decide what to turn on.

    Args:
        speed: The options.
        obstacles: Why the step cannot be recorded here; empty if it can.

    Raises:
        ValueError: An option that is set to true cannot be honoured.
    """
    if speed.capture_step and obstacles:
        raise ValueError(f"speed.capture_step: the step cannot be recorded here: {'; '.join(obstacles)}")
    if speed.accelerate == "none":
        return SpeedChoice(speed.capture_step, "capture_step: the step is recorded" if speed.capture_step else "")
    if obstacles:
        return SpeedChoice(False, f"accelerate auto: plain steps, because {'; '.join(obstacles)}")
    return SpeedChoice(True, "accelerate auto: the complete step is recorded, one CUDA graph per target capacity")
