"""Convolution blocks of backbone, neck and heads.

Source: arXiv:2501.13400 (C3k, C3k2, C2PSA), arXiv:2405.14458 Sec. 3.2 (partial self-attention); widths and repeats
confirmed by the published parameter totals.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from lucid_yolo.kernels.norm_act import NormActImplementation, norm_act, norm_act_fixed

BN_EPS = 1e-3
BN_MOMENTUM = 0.03


class BatchNorm2d(nn.Module):
    """Batch normalisation whose only state is the running mean and variance.

    ``torch.nn.BatchNorm2d`` also counts batches, one integer kernel per layer and step that nothing here reads.

    Attributes:
        is_frozen: Normalise with running statistics, and keep them, in training too.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.is_frozen = False

    @property
    def has_batch_statistics(self) -> bool:
        """Whether a forward pass takes, and keeps, the statistics of its batch."""
        return self.training and not self.is_frozen

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        """Normalise with batch statistics in training, with running statistics otherwise."""
        statistics, parameters = (self.running_mean, self.running_var), (self.weight, self.bias)
        return F.batch_norm(x, *statistics, *parameters, self.has_batch_statistics, BN_MOMENTUM, BN_EPS)


class ConvNormAct(nn.Module):
    """Convolution without bias, batch normalisation, SiLU.

    Args:
        in_channels: Input channels.
        out_channels: Output channels.
        kernel_size: Odd side of the kernel; padding keeps the size at stride 1.
        stride: 1 or 2.
        groups: ``in_channels`` for a depthwise convolution.
        has_act: False leaves out the SiLU.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 1,
        stride: int = 1,
        *,
        groups: int = 1,
        has_act: bool = True,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(
            in_channels, out_channels, kernel_size, stride, kernel_size // 2, groups=groups, bias=False
        )
        self.norm: nn.Module = BatchNorm2d(out_channels)
        self.act: nn.Module = nn.SiLU() if has_act else nn.Identity()
        self.norm_implementation: NormActImplementation = "reference"

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D h w"]:
        """Apply the three layers; the last two may be one operation."""
        x, norm = self.conv(x), self.norm
        if self.norm_implementation == "reference" or not isinstance(norm, BatchNorm2d):
            return self.act(norm(x))
        tensors = x, norm.weight, norm.bias, norm.running_mean, norm.running_var
        has_act = isinstance(self.act, nn.SiLU)
        if norm.has_batch_statistics:
            return norm_act(*tensors, BN_MOMENTUM, BN_EPS, has_act, self.norm_implementation)
        # The kernel for fixed statistics has no backward pass, which frozen layers need; a network fitted on a GPU may
        # be evaluated elsewhere.
        if torch.is_grad_enabled() or not x.is_cuda:
            return self.act(norm(x))
        return norm_act_fixed(*tensors, BN_EPS, has_act, self.norm_implementation)


class Bottleneck(nn.Module):
    """Two 3x3 convolutions with an identity shortcut; ``expansion`` sets the channels between them."""

    def __init__(self, channels: int, expansion: float) -> None:
        super().__init__()
        hidden = int(channels * expansion)
        self.reduce = ConvNormAct(channels, hidden, 3)
        self.expand = ConvNormAct(hidden, channels, 3)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        """Return ``x`` plus the two convolutions of it."""
        return x + self.expand(self.reduce(x))


class C3k(nn.Module):
    """Cross-stage block: two half-width streams, one of them through two bottlenecks, joined by a 1x1 convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        hidden = channels // 2
        self.stream = ConvNormAct(channels, hidden)
        self.bypass = ConvNormAct(channels, hidden)
        self.units = nn.Sequential(*(Bottleneck(hidden, 1.0) for _ in range(2)))
        self.join = ConvNormAct(2 * hidden, channels)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        """Join the processed and the bypassed stream."""
        return self.join(torch.cat((self.units(self.stream(x)), self.bypass(x)), 1))


class Attention(nn.Module):
    """Multi-head self-attention over all positions; queries and keys have half the width of values.

    The positional term is a depthwise 3x3 convolution of the values. Plain matrix products and softmax, since the
    fused kernels are not deterministic in the backward pass.

    Source: arXiv:2405.14458 Sec. 3.2.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.num_heads = max(1, channels // 64)
        self.head_dim = channels // self.num_heads
        self.key_dim = self.head_dim // 2
        self.qkv = ConvNormAct(channels, self.num_heads * (2 * self.key_dim + self.head_dim), has_act=False)
        self.position = ConvNormAct(channels, channels, 3, groups=channels, has_act=False)
        self.project = ConvNormAct(channels, channels, has_act=False)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        """Attend over the H x W positions."""
        batch, channels, height, width = x.shape
        heads = self.qkv(x).reshape(batch, self.num_heads, -1, height * width)
        query, key, value = heads.split((self.key_dim, self.key_dim, self.head_dim), 2)
        weight = (query.transpose(2, 3) @ key * self.key_dim**-0.5).softmax(3)
        mixed = (value @ weight.transpose(2, 3)).reshape(batch, channels, height, width)
        return self.project(mixed + self.position(value.reshape(batch, channels, height, width)))


class PSABlock(nn.Module):
    """Attention and a two-layer feed-forward convolution, each with a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.attention = Attention(channels)
        self.feed_forward = nn.Sequential(
            ConvNormAct(channels, 2 * channels), ConvNormAct(2 * channels, channels, has_act=False)
        )

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        """Apply both residual steps."""
        x = x + self.attention(x)
        return x + self.feed_forward(x)


UnitKind = Literal["bottleneck", "c3k", "attention"]


def _unit(kind: UnitKind, channels: int) -> nn.Module:
    if kind == "bottleneck":
        return Bottleneck(channels, 0.5)
    if kind == "c3k":
        return C3k(channels)
    return nn.Sequential(Bottleneck(channels, 0.5), PSABlock(channels))


class C3k2(nn.Module):
    """Split into halves, chain ``repeats`` units from the second, keep every output, join all of them.

    Args:
        in_channels: Input channels.
        out_channels: Output channels.
        unit: What is chained.
        repeats: How many units.
        expansion: Channels of a half, relative to ``out_channels``.
    """

    def __init__(
        self, in_channels: int, out_channels: int, unit: UnitKind, repeats: int, expansion: float = 0.5
    ) -> None:
        super().__init__()
        hidden = int(out_channels * expansion)
        self.split = ConvNormAct(in_channels, 2 * hidden)
        self.units = nn.ModuleList(_unit(unit, hidden) for _ in range(repeats))
        self.join = ConvNormAct((2 + repeats) * hidden, out_channels)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D H W"]:
        """Join both halves and every unit's output."""
        parts = list(self.split(x).chunk(2, 1))
        for unit in self.units:
            parts.append(unit(parts[-1]))
        return self.join(torch.cat(parts, 1))


class SPPF(nn.Module):
    """Three chained 5x5 max pools joined by 1x1 convolutions, with the input added to the output.

    Source: arXiv:2602.14582 Sec. 4 (the shortcut).
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduce = ConvNormAct(channels, channels // 2)
        self.pool = nn.MaxPool2d(5, stride=1, padding=2)
        self.join = ConvNormAct(2 * channels, channels)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        """Return ``x`` plus its pooled pyramid."""
        parts = [self.reduce(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        return x + self.join(torch.cat(parts, 1))


class C2PSA(nn.Module):
    """Split into halves, ``repeats`` attention blocks on the second, join."""

    def __init__(self, channels: int, repeats: int) -> None:
        super().__init__()
        self.split = ConvNormAct(channels, channels)
        self.units = nn.Sequential(*(PSABlock(channels // 2) for _ in range(repeats)))
        self.join = ConvNormAct(channels, channels)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        """Join the untouched and the attended half."""
        kept, attended = self.split(x).chunk(2, 1)
        return self.join(torch.cat((kept, self.units(attended)), 1))
