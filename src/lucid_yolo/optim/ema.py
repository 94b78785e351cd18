"""Exponential moving average of flat parameters."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def ema_update(
    average: Float[Tensor, " n"], params: Float[Tensor, " n"], rate: Float[Tensor, ""]
) -> Float[Tensor, " n"]:
    """Return ``average + rate * (params - average)``; ``rate`` is one minus the decay."""
    return torch.addcmul(average, params - average, rate)
