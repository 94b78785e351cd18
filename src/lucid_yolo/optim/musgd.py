"""MuSGD: a weighted sum of orthogonalised momentum (Muon) and plain momentum (SGD), on flat buffers.

Source: arXiv:2606.03748 Sec. 3.3.1; arXiv:2502.16982 Eq. 4 (scale of the orthogonalised half). One shared momentum
buffer, Nesterov in both halves and decoupled decay are this project's choices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lucid_yolo.graphs import side_by_side
from lucid_yolo.optim.groups import parameter_group
from lucid_yolo.optim.newton_schulz import MatrixBatch, newton_schulz, plan_batches


@dataclass(frozen=True)
class MuSGDConfig:
    """Constants of the optimiser; learning rate and momentum come from the schedule.

    Attributes:
        muon_w: Weight of the orthogonalised half.
        sgd_w: Weight of the plain half; parameters that are not matrices have weight 1 and no other half.
        weight_decay: Decoupled decay of parameters with two or more axes.
        lr_1d: Factor on the learning rate of biases and normalisation weights.
    """

    muon_w: float = 0.5
    sgd_w: float = 0.5
    weight_decay: float = 5e-4
    lr_1d: float = 1.0


@dataclass(frozen=True)
class _PaddedBatch:
    """One batch of matrices: where its elements come from in the flat buffer and where they go back to."""

    source_index: Int[Tensor, " elements"]
    shape: tuple[int, int, int]
    scale: Float[Tensor, "n 1 1"]

    def orthogonalize(self, padded: Float[Tensor, " n"]) -> Float[Tensor, " elements"]:
        """Return the scaled orthogonalised matrices, given the flat update with a zero behind it."""
        matrices = padded.index_select(0, self.source_index).view(self.shape)
        return (newton_schulz(matrices) * self.scale).view(-1)


class MuSGD:
    """The update rule for one layout of flat buffers.

    Args:
        parameters: The parameters in flat order, matrices first: views into the flat parameter buffer.
        offsets: Position of each parameter in the flat buffer.
        config: Constants.
        is_frozen: Parameters whose update nobody uses: they are not orthogonalised; None for none of them.

    Raises:
        ValueError: The parameters are not ordered by group.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        offsets: Sequence[int],
        config: MuSGDConfig,
        is_frozen: Sequence[bool] | None = None,
    ) -> None:
        groups = [parameter_group(p) for p in parameters]
        if groups != sorted(groups, key=("matrix", "decayed", "plain").index):
            raise ValueError(
                "parameters: expected matrices, then other decayed ones, then plain ones; see order_by_group"
            )
        self.config = config
        self._num_matrix = _end_of(groups, parameters, offsets, {"matrix"})
        self._num_decayed = _end_of(groups, parameters, offsets, {"matrix", "decayed"})
        is_idle = is_frozen or [False] * len(parameters)
        rows = zip(parameters, offsets, groups, is_idle, strict=True)
        matrices = [(p, o) for p, o, g, idle in rows if g == "matrix" and not idle]
        self._batches, self._return_index = _pad_plan(matrices, self._num_matrix)

    def orthogonalize(self, update: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Return the scaled orthogonalised form of the matrix part of a flat update.

        Args:
            update: Flat matrix part; gaps between parameters hold zeros.
        """
        padded = torch.cat((update, update.new_zeros(1)))
        parts = side_by_side([partial(batch.orthogonalize, padded) for batch in self._batches])
        return torch.cat((update.new_zeros(1), *parts)).index_select(0, self._return_index)

    def step(
        self,
        params: Float[Tensor, " n"],
        grads: Float[Tensor, " n"],
        momentum: Float[Tensor, " n"],
        lr: Float[Tensor, ""],
        momentum_factor: Float[Tensor, ""],
    ) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """Return (new parameters, new momentum); nothing is changed in place.

        ``m = mu m + g``, ``u = g + mu m``; matrices move by
        ``muon_w * 0.2 sqrt(max(rows, columns)) * NS(u) + sgd_w * u``, the rest by ``u``.

        Args:
            params: Flat parameters.
            grads: Flat clipped gradient.
            momentum: Flat momentum.
            lr: Learning rate, on the device.
            momentum_factor: Momentum coefficient ``mu``, on the device.
        """
        new_momentum = torch.addcmul(grads, momentum, momentum_factor)
        update = torch.addcmul(grads, new_momentum, momentum_factor)
        matrix, decayed = self._num_matrix, self._num_decayed
        config = self.config
        mixed = update[:matrix] * config.sgd_w
        if config.muon_w and matrix:
            mixed = mixed.add(self.orthogonalize(update[:matrix]), alpha=config.muon_w)
        new_params = torch.cat(
            (
                torch.addcmul(params[:matrix] * (1 - lr * config.weight_decay), mixed, lr, value=-1),
                torch.addcmul(
                    params[matrix:decayed] * (1 - lr * config.weight_decay), update[matrix:decayed], lr, value=-1
                ),
                torch.addcmul(params[decayed:], update[decayed:], lr, value=-config.lr_1d),
            )
        )
        return new_params, new_momentum


def _end_of(groups: Sequence[str], parameters: Sequence[Tensor], offsets: Sequence[int], members: set[str]) -> int:
    """Return where the slice of the named groups ends: the start of the first parameter behind them."""
    behind = [o for o, g in zip(offsets, groups, strict=True) if g not in members]
    if behind:
        return min(behind)
    return max((o + p.numel() for p, o in zip(parameters, offsets, strict=True)), default=0)


def as_matrix(tensor: Tensor) -> Tensor:
    """View a 2-D or 4-D parameter (or an index of the same shape) as (out, everything else)."""
    return tensor.flatten(1)


def _pad_plan(matrices: Sequence[tuple[Tensor, int]], length: int) -> tuple[list[_PaddedBatch], Int[Tensor, " n"]]:
    """Return the padded batches, and for every flat element its position in their concatenation behind one zero."""
    device = matrices[0][0].device if matrices else torch.device("cpu")
    indices = [_flat_index(p, offset) for p, offset in matrices]
    indices = [i if i.shape[0] <= i.shape[1] else i.T for i in indices]
    return_index = torch.zeros(length, dtype=torch.int64)
    batches, start = [], 1
    for plan in plan_batches([(i.shape[0], i.shape[1]) for i in indices]):
        shape = (len(plan.members), plan.rows, plan.columns)
        source = torch.full(shape, length, dtype=torch.int64)
        position = torch.arange(start, start + source.numel()).view(source.shape)
        for slot, member in enumerate(plan.members):
            rows, columns = indices[member].shape
            source[slot, :rows, :columns] = indices[member]
            return_index[indices[member].reshape(-1)] = position[slot, :rows, :columns].reshape(-1)
        batches.append(_PaddedBatch(source.view(-1).to(device), shape, _scales(plan, indices, device)))
        start += source.numel()
    return batches, return_index.to(device)


def _scales(plan: MatrixBatch, indices: Sequence[Tensor], device: torch.device) -> Float[Tensor, "n 1 1"]:
    values = [0.2 * math.sqrt(max(indices[member].shape)) for member in plan.members]
    return torch.tensor(values, device=device).view(-1, 1, 1)


def _flat_index(parameter: Tensor, offset: int) -> Int[Tensor, "r c"]:
    """Return where each element of the parameter's matrix view lies in the flat buffer, whatever its strides."""
    index = torch.full(parameter.shape, offset, dtype=torch.int64)
    for axis, (size, stride) in enumerate(zip(parameter.shape, parameter.stride(), strict=True)):
        index += (torch.arange(size) * stride).view([-1 if a == axis else 1 for a in range(parameter.dim())])
    return as_matrix(index)
