"""Top-k with one defined order among equals."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

_INDEX_MASK = 0xFFFFFFFF


def rank_keys(values: Float[Tensor, "*N A"]) -> Int[Tensor, "*N A"]:
    """Return unique integer keys that order ``values`` first and, among equals, the lower index first.

    The bits of a non-negative float order like the float; they form the high half of the key, the inverted position
    along the last axis the low half.

    Args:
        values: Non-negative float32.
    """
    index = torch.arange(values.shape[-1], device=values.device)
    return (values.view(torch.int32).long() << 32) | (_INDEX_MASK - index)


def split_keys(keys: Int[Tensor, "*N k"]) -> tuple[Float[Tensor, "*N k"], Int[Tensor, "*N k"]]:
    """Invert :func:`rank_keys`: return (values, index)."""
    values = (keys >> 32).int().view(torch.float32)
    return values, _INDEX_MASK - (keys & _INDEX_MASK)


def top_k(values: Float[Tensor, "*N A"], k: int) -> tuple[Float[Tensor, "*N k"], Int[Tensor, "*N k"]]:
    """Return the ``k`` largest values, best first, and their index; equal values come in index order.

    ``torch.topk`` alone promises no order among equals, in deterministic mode neither.

    Args:
        values: Non-negative float32.
        k: How many; at most the length of the last axis.
    """
    return split_keys(rank_keys(values).topk(k, -1).values)
