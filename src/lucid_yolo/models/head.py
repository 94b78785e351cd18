"""Prediction head: per level and branch, one small convolution stem for every predicted quantity.

A task is a tuple of :class:`StemSpec`; the classes below know nothing of what a stem predicts.
Source: arXiv:2606.03748 Sec. 3.2 (two branches, four direct distances); stem shapes: arXiv:2405.14458 Sec. 3.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from lucid_yolo.graphs import side_by_side
from lucid_yolo.models.blocks import ConvNormAct

BRANCHES = ("one_to_many", "one_to_one")
DENSE, DEPLOYED = BRANCHES
CLASS_PRIOR = 0.01
OUTPUT_STD = 0.01


@dataclass(frozen=True)
class StemSpec:
    """One predicted quantity.

    Attributes:
        name: Key of the output.
        width: Hidden channels.
        out_channels: Predicted values per point.
        bias: Initial bias of the last layer.
        is_separable: Depthwise-separable hidden layers instead of full 3x3 ones.
    """

    name: str
    width: int
    out_channels: int
    bias: float
    is_separable: bool = False


def detection_stems(in_channels: Sequence[int], num_classes: int) -> tuple[StemSpec, StemSpec]:
    """Return the box and class stems that every task has.

    Args:
        in_channels: Channels of the neck maps, finest first.
        num_classes: Number of classes ``K``.
    """
    finest = in_channels[0]
    class_bias = -math.log((1 - CLASS_PRIOR) / CLASS_PRIOR)
    return (
        StemSpec("box", max(16, finest // 4), 4, 1.0),
        StemSpec("class", max(finest, min(num_classes, 80)), num_classes, class_bias, is_separable=True),
    )


class OutputConv(nn.Conv2d):
    """The last 1x1 convolution of a stem: float32 under any autocast, small normal weights, a given bias.

    Computed as a matrix product over positions, which is what it is on channels-last memory: the deterministic
    convolution algorithms for float32 go through Fourier transforms (gain: ``docs/log.md``).
    """

    def __init__(self, in_channels: int, out_channels: int, bias: float) -> None:
        super().__init__(in_channels, out_channels, 1)
        assert self.bias is not None
        nn.init.normal_(self.weight, std=OUTPUT_STD)
        nn.init.constant_(self.bias, bias)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B HW D"]:
        """Return one float32 row per position, row by row of the map."""
        positions, weight = x.permute(0, 2, 3, 1).flatten(1, 2), self.weight.flatten(1)
        if not (torch.amp.is_autocast_available(x.device.type) and torch.is_autocast_enabled(x.device.type)):
            return F.linear(positions, weight, self.bias)
        with torch.autocast(x.device.type, enabled=False):
            return F.linear(positions.float(), weight, self.bias)


def _stem(spec: StemSpec, in_channels: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (in_channels, spec.width):
        if spec.is_separable:
            layers.append(ConvNormAct(channels, channels, 3, groups=channels))
            layers.append(ConvNormAct(channels, spec.width))
        else:
            layers.append(ConvNormAct(channels, spec.width, 3))
    return nn.Sequential(*layers, OutputConv(spec.width, spec.out_channels, spec.bias))


class Branch(nn.Module):
    """All stems of one branch.

    Args:
        stems: Quantities to predict.
        in_channels: Channels of the neck maps.
    """

    def __init__(self, stems: Sequence[StemSpec], in_channels: Sequence[int]) -> None:
        super().__init__()
        self.stems = nn.ModuleDict(
            {spec.name: nn.ModuleList(_stem(spec, channels) for channels in in_channels) for spec in stems}
        )

    def stems_on(self, maps: Sequence[Float[Tensor, "B _ _ _"]]) -> list[Callable[[], Float[Tensor, "B HW _"]]]:
        """Return every stem on its map, to be called: stem by stem, the levels in a row, finest first."""
        return [
            partial(stem, x)
            for levels in self.stems.values()
            for stem, x in zip(cast(nn.ModuleList, levels), maps, strict=True)
        ]


class Head(nn.Module):
    """Both branches on the same maps; separate weights.

    Args:
        stems: Quantities to predict.
        in_channels: Channels of the neck maps.
    """

    def __init__(self, stems: Sequence[StemSpec], in_channels: Sequence[int]) -> None:
        super().__init__()
        self.branches = nn.ModuleDict({name: Branch(stems, in_channels) for name in BRANCHES})

    def forward(
        self, maps: Sequence[Float[Tensor, "B _ _ _"]], branches: Sequence[str]
    ) -> dict[str, Float[Tensor, "N A _"]]:
        """Return every stem's output with the chosen branches stacked on the batch axis.

        Args:
            maps: Neck maps, finest first.
            branches: Names out of :data:`BRANCHES`.
        """
        chosen = [cast(Branch, self.branches[name]) for name in branches]
        rows = iter(side_by_side([stem for branch in chosen for stem in branch.stems_on(maps)], saved=maps))
        outputs = [{key: torch.cat([next(rows) for _ in maps], 1) for key in branch.stems} for branch in chosen]
        if len(outputs) == 1:
            return outputs[0]
        return {key: torch.cat([out[key] for out in outputs]) for key in outputs[0]}
