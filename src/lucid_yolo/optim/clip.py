"""Gradient clipping by the global norm."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def clip_by_norm(grads: Float[Tensor, " n"], max_norm: float) -> tuple[Float[Tensor, " n"], Float[Tensor, ""]]:
    """Return (gradient scaled to at most ``max_norm``, its norm before).

    Args:
        grads: Flat gradient.
        max_norm: Upper bound of the norm; 0 switches clipping off.
    """
    norm = torch.linalg.vector_norm(grads)
    if max_norm == 0:
        return grads, norm
    return grads * (max_norm / (norm + 1e-6)).clamp(max=1.0), norm
