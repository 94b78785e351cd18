"""What may be accelerated, and what is chosen. No torch here, so that every command can show the options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Accelerate = Literal["none", "auto"]


@dataclass(frozen=True)
class Speed:
    """Options that change how fast a run is; but for :data:`ROUNDING_OPTIONS`, not one byte of its result.

    Attributes:
        accelerate: ``auto`` turns on whatever is possible here and changes no byte; ``none`` nothing beyond the options
            set to true.
        capture_step: Record the complete training step, and evaluation up to the detections, as CUDA graphs; replay
            them.
        fused_assignment: Assign targets to points in two kernels.
        fused_norm: Normalise and activate in kernels of their own: the same result up to rounding.
    """

    accelerate: Accelerate = "none"
    capture_step: bool = False
    fused_assignment: bool = False
    fused_norm: bool = False

    def __post_init__(self) -> None:
        if self.accelerate not in get_args(Accelerate):
            raise ValueError(f"speed.accelerate: expected one of {get_args(Accelerate)}, found {self.accelerate!r}")


OPTIONS = {
    "capture_step": "the complete step is recorded, one CUDA graph per target capacity",
    "fused_assignment": "targets are assigned in two kernels",
    "fused_norm": "normalisation and activation in kernels of their own",
}
ROUNDING_OPTIONS = frozenset({"fused_norm"})
"""Options that round in another way: never chosen by ``auto``, and used by both sides of a comparison."""


@dataclass(frozen=True)
class SpeedChoice:
    """What a run uses.

    Attributes:
        options: Names out of :data:`OPTIONS`.
        line: One line for the user; empty when nothing was asked for.
    """

    options: frozenset[str]
    line: str


def choose_speed(speed: Speed, obstacles: Mapping[str, Sequence[str]]) -> SpeedChoice:
    """Decide what to turn on.

    Args:
        speed: The options.
        obstacles: For each option why it cannot be used here; missing or empty if it can.

    Raises:
        ValueError: An option that is set to true cannot be honoured.
    """
    chosen, said = set(), []
    for option, meaning in OPTIONS.items():
        reasons = "; ".join(obstacles.get(option, ()))
        if getattr(speed, option) and reasons:
            raise ValueError(f"speed.{option} cannot be honoured: {reasons}")
        is_eligible = not reasons and option not in ROUNDING_OPTIONS
        if getattr(speed, option) or (speed.accelerate == "auto" and is_eligible):
            chosen.add(option)
            said.append(f"{option} ({meaning})")
        elif speed.accelerate == "auto" and not reasons:
            said.append(f"no {option} (it rounds in another way; model.speed.{option} true turns it on)")
        elif speed.accelerate == "auto":
            said.append(f"no {option} ({reasons})")
    return SpeedChoice(frozenset(chosen), f"accelerate {speed.accelerate}: {', '.join(said)}" if said else "")
