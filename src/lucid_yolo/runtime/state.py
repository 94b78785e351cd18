"""Everything a training step changes, in flat buffers."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lucid_yolo.models.freeze import freeze_parameters, kept_statistics
from lucid_yolo.models.network import Network
from lucid_yolo.optim.groups import order_by_group
from lucid_yolo.runtime.flat import FlatLayout

INITIAL_LOSS_SCALE = 65536.0
_COUNTERS = ("update_index", "num_skipped", "bad_run_length", "first_bad_update", "loss_scale", "growth_count")


class TrainState:
    """Parameters, momentum, averaged parameters, batch-norm statistics, gradient and counters of one run.

    The network's parameters and buffers become views into the flat buffers, and are made so again whenever the network
    moves to another device.

    Args:
        network: The network to train, float32.
        frozen: Names of parameters that no update may change; see :meth:`freeze`.

    Attributes:
        layout: Order of the parameters: matrices first (see ``order_by_group``).
        buffer_layout: Order of the batch-norm statistics.
        params: Flat parameters.
        momentum: Flat momentum.
        ema: Flat averaged parameters.
        exchange: Gradient, batch-norm statistics and one validity flag behind each other: what ranks average.
        committed_buffers: Batch-norm statistics after the last update.
        update_index: Updates attempted so far.
        num_skipped: Updates skipped because something was not finite.
        bad_run_length: How many of the last updates in a row were skipped.
        first_bad_update: Update index at which the present run of skips began; -1 if there is none.
        loss_scale: Factor on the loss before backward; used in fp16 only.
        growth_count: Updates since the loss scale last changed.
        micro_index: Micro-steps since the last update (host).
        frozen: Names of the frozen parameters.
        is_trained: True where an element of the flat parameters may change; None if all may.
        is_tracked: The same of the flat batch-norm statistics.
    """

    def __init__(self, network: Network, frozen: Collection[str] = ()) -> None:
        named = order_by_group(dict(network.named_parameters()))
        buffers = dict(network.named_buffers())
        for name, tensor in (*named.items(), *buffers.items()):
            if tensor.dtype != torch.float32:
                raise ValueError(
                    f"network: expected float32, found {tensor.dtype} in {name!r}; precision is the step's"
                )
        self.network = network
        self.layout = FlatLayout.of(named)
        self.buffer_layout = FlatLayout.of(buffers)
        device = next(iter(named.values())).device
        self.params = torch.zeros(self.layout.length, device=device)
        self.momentum = torch.zeros_like(self.params)
        self.exchange = torch.zeros(self.layout.length + self.buffer_layout.length + 1, device=device)
        self.layout.pack({name: p.detach() for name, p in named.items()}, self.params)
        self.buffer_layout.pack(buffers, self.buffers)
        self.ema = self.params.clone()
        self.committed_buffers = self.buffers.clone()
        self.update_index = torch.zeros(1, dtype=torch.int64, device=device)
        self.num_skipped = torch.zeros_like(self.update_index)
        self.bad_run_length = torch.zeros_like(self.update_index)
        self.first_bad_update = torch.full_like(self.update_index, -1)
        self.loss_scale = torch.full((1,), INITIAL_LOSS_SCALE, device=device)
        self.growth_count = torch.zeros_like(self.update_index)
        self.micro_index = 0
        self._averaged_network: Network | None = None
        self.frozen: frozenset[str] = frozenset()
        self.is_trained: Bool[Tensor, " n"] | None = None
        self.is_tracked: Bool[Tensor, " m"] | None = None
        self._bind()
        network.after_apply = self._follow
        self.freeze(frozen)

    @property
    def device(self) -> torch.device:
        """Where the state lives."""
        return self.params.device

    @property
    def grads(self) -> Float[Tensor, " n"]:
        """Flat gradient, summed over the micro-steps so far. A view."""
        return self.exchange[: self.layout.length]

    @property
    def buffers(self) -> Float[Tensor, " m"]:
        """Flat batch-norm statistics as the forward passes leave them. A view."""
        return self.exchange[self.layout.length : -1]

    @property
    def flag(self) -> Float[Tensor, 1]:
        """0 while every loss was finite, NaN otherwise. A view."""
        return self.exchange[-1:]

    @property
    def averaged_network(self) -> Network:
        """A second network, in evaluation mode, whose parameters are views into :attr:`ema`.

        Batch-norm statistics are shared. It stays where the state is: moving it alone changes nothing.
        """
        if self._averaged_network is None:
            self._averaged_network = copy.deepcopy(self.network).requires_grad_(False).eval()
            self._averaged_network.after_apply = self._bind
            self._bind()
        return self._averaged_network

    def freeze(self, names: Collection[str]) -> None:
        """Freeze these parameters and no others; to be called between updates.

        Parameter, momentum and average of a frozen one keep their bytes, weight decay included. A normalisation with
        frozen parameters only uses its running statistics, as in evaluation, and they stay as they are.

        Args:
            names: Parameters of the network.

        Raises:
            ValueError: An unknown name.
        """
        if unknown := sorted(set(names) - self.layout.shapes.keys()):
            raise ValueError(f"freeze: the network has no parameters {', '.join(unknown[:8])}")
        freeze_parameters(self.network, names)
        self.frozen = frozenset(names)
        self.is_trained = _all_but(self.frozen, self.layout, self.device)
        self.is_tracked = _all_but(kept_statistics(self.network), self.buffer_layout, self.device)

    def tensors(self) -> dict[str, Tensor]:
        """Return every tensor of the state by name; views, for comparing and for restoring byte for byte."""
        flat = {name: getattr(self, name) for name in ("params", "momentum", "ema", "exchange", "committed_buffers")}
        return flat | {name: getattr(self, name) for name in _COUNTERS}

    def state_dict(self) -> dict[str, Any]:
        """Return plain copies, on the CPU, of everything but the network's own parameters and buffers.

        The partial gradient is there only between the micro-steps of an update.
        """
        state: dict[str, Any] = {
            "momentum": self.layout.unpack(self.momentum.cpu()),
            "ema": self.layout.unpack(self.ema.cpu()),
            "counters": {name: getattr(self, name).detach().cpu().clone() for name in _COUNTERS},
            "micro_index": self.micro_index,
        }
        if self.micro_index:
            state["grads"] = self.layout.unpack(self.grads.cpu())
            state["committed_buffers"] = self.buffer_layout.unpack(self.committed_buffers.cpu())
            state["flag"] = self.flag.cpu().clone()
        return state

    def network_state_dict(self) -> dict[str, Tensor]:
        """Return copies, on the CPU, of the network's parameters and buffers: one transfer for all of a kind."""
        buffers = self.buffer_layout.unpack(self.buffers.cpu())
        return {**self.layout.unpack(self.params.cpu()), **buffers}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy a saved state in place; the network's own state dict is loaded before.

        Raises:
            ValueError: Names or shapes differ.
        """
        self.layout.pack(state["momentum"], self.momentum)
        self.layout.pack(state["ema"], self.ema)
        for name in _COUNTERS:
            getattr(self, name).copy_(state["counters"][name])
        self.micro_index = int(state["micro_index"])
        if self.micro_index:
            self.layout.pack(state["grads"], self.grads)
            self.buffer_layout.pack(state["committed_buffers"], self.committed_buffers)
            self.flag.copy_(state["flag"])
        else:
            self.exchange[: self.layout.length].zero_()
            self.flag.zero_()
            self.committed_buffers.copy_(self.buffers)

    def _bind(self) -> None:
        """Make the networks' parameters and buffers views into the flat buffers."""
        _point(self.network, self.layout.views(self.params), self.buffer_layout.views(self.buffers))
        if self._averaged_network is not None:
            _point(self._averaged_network, self.layout.views(self.ema), self.buffer_layout.views(self.buffers))

    def _follow(self) -> None:
        """Move with the network after ``.to()`` and rebuild the views."""
        parameter = next(self.network.parameters())
        if parameter.dtype != torch.float32:
            raise ValueError(f"network: expected float32 while it is in training, found {parameter.dtype}")
        for name, tensor in self.tensors().items():
            setattr(self, name, tensor.to(parameter.device))
        if self.is_trained is not None:
            self.is_trained = self.is_trained.to(parameter.device)
        if self.is_tracked is not None:
            self.is_tracked = self.is_tracked.to(parameter.device)
        self._bind()


def _all_but(names: Collection[str], layout: FlatLayout, device: torch.device) -> Bool[Tensor, " n"] | None:
    """Return False at the elements of the named tensors, True elsewhere; None without a name."""
    if not names:
        return None
    marks = torch.ones(layout.length, dtype=torch.bool)
    for name in names:
        start = layout.offsets[name]
        marks[start : start + layout.shapes[name].numel()] = False
    return marks.to(device)


def _point(network: Network, params: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> None:
    for name, parameter in network.named_parameters():
        parameter.data = params[name]
        parameter.grad = None
    for name, buffer in network.named_buffers():
        buffer.data = buffers[name]
