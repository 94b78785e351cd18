"""A fault on purpose: one bit, so that a proof can be seen to find it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lucid_yolo.bench.compare import bits
from lucid_yolo.runtime.step import TrainStep

UPDATE = "update"


def plant_fault(step: TrainStep, place: str) -> None:
    """Let one bit of every step be wrong.

    Args:
        step: The step to spoil; not recorded yet.
        place: A module of the network, whose output's first element is off by one unit in the last place, or
            ``update``, whose first parameter is.

    Raises:
        ValueError: No such module. When the step runs: its output is more than one tensor.
    """
    if place == UPDATE:
        _spoil_update(step)
        return
    modules = dict(step.state.network.named_modules())
    if place not in modules:
        raise ValueError(f"fault: expected {UPDATE!r} or a module such as {list(modules)[-1]}, found {place!r}")
    modules[place].register_forward_hook(_spoil_output)


def flip_last_bit(tensor: Tensor) -> None:
    """Change the last bit of a tensor's first element, in place and unseen by autograd."""
    element = tensor.detach()[(0,) * tensor.dim()]
    element.copy_((bits(element) ^ 1).view(tensor.dtype))


def _spoil_output(module: nn.Module, _inputs: Any, output: Any) -> Tensor:
    if not isinstance(output, Tensor):
        raise ValueError(f"fault: expected a module with one output, found a {type(module).__name__}")
    spoiled = output.clone()
    flip_last_bit(spoiled)
    return spoiled


def _spoil_update(step: TrainStep) -> None:
    update = step.update

    @torch.no_grad()
    def spoiled() -> tuple[Tensor, Tensor]:
        result = update()
        flip_last_bit(step.state.params)
        return result

    step.update = spoiled  # type: ignore[method-assign]
