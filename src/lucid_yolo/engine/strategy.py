"""Several devices: Lightning's launchers and ranks, without its gradient wrapper."""

from __future__ import annotations

import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy, Strategy
from torch import Tensor
from typing_extensions import override


class StepDDPStrategy(DDPStrategy):
    """Distributed data parallelism in which the training step averages gradients itself.

    The module is not wrapped: one all-reduce of the flat gradient replaces the wrapper's buckets and hooks.
    """

    @override
    def configure_ddp(self) -> None:
        """Leave the module as it is."""

    @override
    def _register_ddp_hooks(self) -> None:
        """There is no wrapper to register hooks on."""


class ProcessGroupCollective:
    """Averages over the ranks of the default process group."""

    def __init__(self) -> None:
        self._world_size = dist.get_world_size()

    def average(self, tensor: Tensor) -> None:
        """Replace ``tensor`` by its mean over all ranks."""
        dist.all_reduce(tensor)
        tensor.div_(self._world_size)


def collective_of(strategy: Strategy) -> ProcessGroupCollective | None:
    """Return how the training step averages over the devices of a strategy; None for a single one.

    Raises:
        ValueError: A strategy that would average by itself.
    """
    if isinstance(strategy, StepDDPStrategy):
        return ProcessGroupCollective()
    if not isinstance(strategy, SingleDeviceStrategy):
        raise ValueError(
            f"strategy: expected StepDDPStrategy (`ddp` in commands) or a single device, found "
            f"{type(strategy).__name__}; the training step averages over devices itself"
        )
    return None


def gather_objects(value: object) -> list[object]:
    """Return every rank's ``value``, in rank order, on every rank."""
    if not (dist.is_available() and dist.is_initialized()):
        return [value]
    gathered: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, value)
    return gathered
