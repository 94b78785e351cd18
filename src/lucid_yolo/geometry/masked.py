"""Removing background from a dense term, twice."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def masked_term(
    term: Callable[..., Float[Tensor, "*N"]],
    is_used: Bool[Tensor, "*N"],
    *inputs: Float[Tensor, "*N _"],
    filler: float = 1.0,
) -> Float[Tensor, "*N"]:
    """Evaluate ``term`` on the used rows; elsewhere its value and its gradient are exactly zero.

    Replacing the result alone is not enough: the gradient of an unused row would be 0 times infinity where the term
    is singular. So unused rows are replaced by ``filler``, where the term is regular, before it, and their result by
    zero after it.

    Args:
        term: Row-wise function of ``inputs``.
        is_used: Rows that count.
        *inputs: Rows for ``term``.
        filler: A value at which ``term`` and its gradient are finite when all inputs hold it.
    """
    rows = [torch.where(is_used.unsqueeze(-1), x, filler) for x in inputs]
    return torch.where(is_used, term(*rows), 0.0)
