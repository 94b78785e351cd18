"""Reducing a one-to-many candidate list to one point per target."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def keep_first(is_kept: Bool[Tensor, "*N k"]) -> Bool[Tensor, "*N k"]:
    """Return ``is_kept`` with only the first True of every row left.

    Candidates are ranked best first, so this is the best one that survived the conflict rule.
    """
    slots = torch.arange(is_kept.shape[-1], device=is_kept.device)
    first = torch.where(is_kept, slots, is_kept.shape[-1]).amin(-1, keepdim=True)
    return is_kept & (slots == first)


def chosen_point(is_kept: Bool[Tensor, "*N k"], point_index: Int[Tensor, "*N k"]) -> Int[Tensor, "*N"]:
    """Return the point of the one kept slot of every row; -1 where there is none."""
    return torch.where(is_kept, point_index, -1).amax(-1)
