"""Batch normalisation, then SiLU: the plain forms."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def norm_act_reference(
    x: Float[Tensor, "B C H W"],
    weight: Float[Tensor, " C"],
    bias: Float[Tensor, " C"],
    running_mean: Float[Tensor, " C"],
    running_var: Float[Tensor, " C"],
    momentum: float,
    eps: float,
    has_act: bool,
) -> Float[Tensor, "B C H W"]:
    """Return the normalised and activated input; see :func:`lucid_yolo.kernels.norm_act.norm_act`."""
    y = F.batch_norm(x, running_mean, running_var, weight, bias, True, momentum, eps)
    return F.silu(y) if has_act else torch.clone(y)


def norm_act_fixed_reference(
    x: Float[Tensor, "B C H W"],
    weight: Float[Tensor, " C"],
    bias: Float[Tensor, " C"],
    running_mean: Float[Tensor, " C"],
    running_var: Float[Tensor, " C"],
    eps: float,
    has_act: bool,
) -> Float[Tensor, "B C H W"]:
    """Return the same with running statistics; see :func:`lucid_yolo.kernels.norm_act.norm_act_fixed`."""
    y = F.batch_norm(x, running_mean, running_var, weight, bias, False, 0.0, eps)
    return F.silu(y) if has_act else torch.clone(y)
