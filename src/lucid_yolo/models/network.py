"""The whole network, and its fused form for deployment."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from lucid_yolo.models.backbone import Backbone
from lucid_yolo.models.blocks import BN_EPS, BatchNorm2d, ConvNormAct
from lucid_yolo.models.head import BRANCHES, Head, StemSpec
from lucid_yolo.models.neck import Neck
from lucid_yolo.models.scales import SCALES, Variant
from lucid_yolo.structures import Prediction

StemBuilder = Callable[[Sequence[int]], tuple[StemSpec, ...]]


class Network(nn.Module):
    """Backbone, neck and head.

    Args:
        variant: Scale, one of ``n s m l x``.
        stems: Builds the head's stems from the neck's channels.

    Attributes:
        after_apply: Called after ``.to()`` and its like have replaced the parameters' storage, if set; whoever
            keeps views into that storage rebuilds them here.
    """

    def __init__(self, variant: Variant, stems: StemBuilder) -> None:
        super().__init__()
        if variant not in SCALES:
            raise ValueError(f"variant: expected one of {', '.join(SCALES)}, found {variant!r}")
        scale = SCALES[variant]
        self.backbone = Backbone(scale)
        self.neck = Neck(scale, self.backbone.out_channels)
        self.head = Head(stems(self.neck.out_channels), self.neck.out_channels)
        self.after_apply: Callable[[], None] | None = None

    def forward(self, images: Float[Tensor, "B 3 H W"], branches: Sequence[str] = BRANCHES) -> Prediction:
        """Predict at every anchor point.

        Args:
            images: RGB in [0, 1]; H and W multiples of 32.
            branches: Which head branches to run; their rows are stacked on the batch axis.
        """
        outputs = self.head(self.neck(self.backbone(images)), branches)
        return Prediction(box_ltrb_cell=outputs["box"], class_logit=outputs["class"])

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Network:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.after_apply is not None:
            self.after_apply()
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "after_apply": None}


def fuse(network: Network, branches: Sequence[str] = ("one_to_one",)) -> Network:
    """Return a copy for deployment: batch normalisation folded into the convolutions, other branches removed.

    Args:
        network: A trained network; it is not changed.
        branches: Head branches to keep.
    """
    fused = copy.deepcopy(network).eval().requires_grad_(False)
    for name in BRANCHES:
        if name not in branches:
            del fused.head.branches[name]
    for module in fused.modules():
        if isinstance(module, ConvNormAct) and isinstance(module.norm, BatchNorm2d):
            _fold(module, module.norm)
    return fused


def use_norm_kernel(network: nn.Module) -> None:
    """Let a network normalise and activate in kernels; its parameters and names stay as they are."""
    for module in network.modules():
        if isinstance(module, ConvNormAct):
            module.norm_implementation = "kernel"


def convolution_weights(network: nn.Module) -> list[str]:
    """Return the names of the weights that autocast reads in half precision: those of every convolution of a block."""
    return [f"{name}.conv.weight" for name, module in network.named_modules() if isinstance(module, ConvNormAct)]


def _fold(block: ConvNormAct, norm: BatchNorm2d) -> None:
    weight, bias = fuse_conv_bn_weights(
        block.conv.weight, None, norm.running_mean, norm.running_var, BN_EPS, norm.weight, norm.bias
    )
    block.conv.weight = nn.Parameter(weight, requires_grad=False)
    block.conv.bias = nn.Parameter(bias, requires_grad=False)
    block.norm = nn.Identity()


def is_fused(network: Network) -> bool:
    """Return whether batch normalisation has been folded away."""
    return not any(isinstance(m, BatchNorm2d) for m in network.modules())


def count_parameters(network: nn.Module) -> int:
    """Return the number of parameters; buffers do not count."""
    return sum(p.numel() for p in network.parameters())


def on_meta(build: Callable[[], Network]) -> Network:
    """Build a network that has shapes but no storage."""
    with torch.device("meta"):
        return build()
