"""Which part of the optimiser a parameter belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from torch import Tensor

Group = Literal["matrix", "decayed", "plain"]
GROUPS: tuple[Group, ...] = ("matrix", "decayed", "plain")


def parameter_group(parameter: Tensor) -> Group:
    """Return ``matrix`` (2-D and 4-D: orthogonalised, decayed), ``decayed`` (other >= 2-D) or ``plain``."""
    if parameter.dim() in (2, 4):
        return "matrix"
    return "decayed" if parameter.dim() > 2 else "plain"


def order_by_group(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the parameters group by group, so that every group is one slice of a flat buffer."""
    order = {group: position for position, group in enumerate(GROUPS)}
    return dict(sorted(parameters.items(), key=lambda item: order[parameter_group(item[1])]))
