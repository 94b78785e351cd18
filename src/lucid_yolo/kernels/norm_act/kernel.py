"""Batch normalisation and SiLU as Triton kernels on channels-last tensors, seen as ``[rows, C]``.

Reductions run in two stages with a fixed partition, so the same input gives the same bytes. Means and squared
deviations are merged pairwise (Chan et al., 1979), not subtracted as sums of squares.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from lucid_yolo.kernels.launch import launch

TILE = 4096
MAX_BLOCK_C = 64
MAX_PARTS = 512
TARGET_PROGRAMS = 528  # four for each multiprocessor of a large device
FEW_PARTS = 64
MERGE_TILE = 2048
SIZES = ("num_rows", "num_parts")  # numbers that would make a compiled variant each, for nothing


@triton.jit
def _tile(start, num_rows, channel, channels, BLOCK_R: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return rows and mask of a tile."""
    row = start + tl.arange(0, BLOCK_R)
    exists = (row < num_rows)[:, None] & (channel < channels)[None, :]
    return row.to(tl.int64)[:, None], exists, tl.minimum(num_rows - start, BLOCK_R)


@triton.jit(do_not_specialize=SIZES)
def _moments_kernel(  # type: ignore[no-untyped-def]
    x, part_mean, part_m2, part_count, num_rows, channels, num_parts, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr
):
    """Mean and sum of squared deviations of every num_parts-th tile."""
    part = tl.program_id(0)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    mean = tl.zeros((BLOCK_C,), tl.float32)
    m2 = tl.zeros((BLOCK_C,), tl.float32)
    count = 0.0
    for start in range(part * BLOCK_R, num_rows, num_parts * BLOCK_R):
        row, exists, rows = _tile(start, num_rows, channel, channels, BLOCK_R)
        value = tl.load(x + row * channels + channel[None, :], exists, 0.0).to(tl.float32)
        n = rows.to(tl.float32)
        tile_mean = tl.sum(value, 0) / n
        off = tl.where(exists, value - tile_mean[None, :], 0.0)
        tile_m2 = tl.sum(off * off, 0)
        total = count + n
        delta = tile_mean - mean
        mean += delta * (n / total)
        m2 += tile_m2 + delta * delta * (count * n / total)
        count = total
    tl.store(part_mean + part * channels + channel, mean, channel < channels)
    tl.store(part_m2 + part * channels + channel, m2, channel < channels)
    tl.store(part_count + part, count, tl.program_id(1) == 0)


@triton.jit(do_not_specialize=SIZES)
def _merge_kernel(  # type: ignore[no-untyped-def]
    part_mean,
    part_m2,
    part_count,
    running_mean,
    running_var,
    mean_out,
    rstd_out,
    num_rows,
    channels,
    num_parts,
    momentum,
    eps,
    BLOCK_P: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """Merge the parts of a block of channels, all at once; move the running statistics."""
    channel = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    is_channel = channel < channels
    part = tl.arange(0, BLOCK_P)
    exists = (part < num_parts)[:, None] & is_channel[None, :]
    at = part[:, None] * channels + channel[None, :]
    count = tl.load(part_count + part, part < num_parts, 0.0)[:, None]
    means, m2s = tl.load(part_mean + at, exists, 0.0), tl.load(part_m2 + at, exists, 0.0)
    mean = tl.sum(means * count, 0) / num_rows
    off = tl.where(exists, means - mean[None, :], 0.0)
    m2 = tl.sum(m2s + off * off * count, 0)
    tl.store(mean_out + channel, mean, is_channel)
    tl.store(rstd_out + channel, 1.0 / tl.sqrt_rn(m2 / num_rows + eps), is_channel)
    old_mean = tl.load(running_mean + channel, is_channel, 0.0)
    old_var = tl.load(running_var + channel, is_channel, 0.0)
    tl.store(running_mean + channel, old_mean + momentum * (mean - old_mean), is_channel)
    unbiased = m2 / tl.maximum(num_rows - 1, 1)
    tl.store(running_var + channel, old_var + momentum * (unbiased - old_var), is_channel)


@triton.jit(do_not_specialize=SIZES)
def _apply_kernel(  # type: ignore[no-untyped-def]
    x,
    weight,
    bias,
    mean,
    spread,
    y,
    eps,
    num_rows,
    channels,
    HAS_ACT: tl.constexpr,
    IS_FIXED: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """Scale, shift and activate; the spread is a variance where statistics are fixed, else 1 / deviation."""
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    is_channel = channel < channels
    row, exists, _ = _tile(tl.program_id(0) * BLOCK_R, num_rows, channel, channels, BLOCK_R)
    at = row * channels + channel[None, :]
    rstd = tl.load(spread + channel, is_channel, 0.0)
    if IS_FIXED:
        rstd = 1.0 / tl.sqrt_rn(rstd + eps)
    scale = tl.load(weight + channel, is_channel, 0.0) * rstd
    shift = tl.load(bias + channel, is_channel, 0.0) - tl.load(mean + channel, is_channel, 0.0) * scale
    z = tl.load(x + at, exists, 0.0).to(tl.float32) * scale[None, :] + shift[None, :]
    if HAS_ACT:
        z = z / (1.0 + tl.exp(-z))
    tl.store(y + at, z.to(y.dtype.element_ty), exists)


@triton.jit
def _slopes(x, grad, weight, bias, mean, rstd, exists, channel, is_channel, HAS_ACT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the normalised input and the gradient before the activation of a tile."""
    value = tl.load(x, exists, 0.0).to(tl.float32)
    m, r = tl.load(mean + channel, is_channel, 0.0), tl.load(rstd + channel, is_channel, 0.0)
    normal = tl.where(exists, (value - m[None, :]) * r[None, :], 0.0)
    slope = tl.load(grad, exists, 0.0).to(tl.float32)
    if HAS_ACT:
        w, b = tl.load(weight + channel, is_channel, 0.0), tl.load(bias + channel, is_channel, 0.0)
        z = normal * w[None, :] + b[None, :]
        sigmoid = 1.0 / (1.0 + tl.exp(-z))
        slope = slope * sigmoid * (1.0 + z * (1.0 - sigmoid))
    return normal, slope


@triton.jit(do_not_specialize=SIZES)
def _reduce_kernel(  # type: ignore[no-untyped-def]
    x,
    grad,
    grad_stride,
    weight,
    bias,
    mean,
    rstd,
    part_bias,
    part_weight,
    num_rows,
    channels,
    num_parts,
    HAS_ACT: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """Sums over every num_parts-th tile for the gradients of bias and weight."""
    part = tl.program_id(0)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    is_channel = channel < channels
    of_bias = tl.zeros((BLOCK_C,), tl.float32)
    of_weight = tl.zeros((BLOCK_C,), tl.float32)
    for start in range(part * BLOCK_R, num_rows, num_parts * BLOCK_R):
        row, exists, _ = _tile(start, num_rows, channel, channels, BLOCK_R)
        at, at_grad = row * channels + channel[None, :], row * grad_stride + channel[None, :]
        normal, slope = _slopes(x + at, grad + at_grad, weight, bias, mean, rstd, exists, channel, is_channel, HAS_ACT)
        of_bias += tl.sum(slope, 0)
        of_weight += tl.sum(slope * normal, 0)
    tl.store(part_bias + part * channels + channel, of_bias, is_channel)
    tl.store(part_weight + part * channels + channel, of_weight, is_channel)


@triton.jit(do_not_specialize=SIZES)
def _sum_kernel(  # type: ignore[no-untyped-def]
    part_bias, part_weight, grad_bias, grad_weight, channels, num_parts, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr
):
    channel = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    is_channel = channel < channels
    part = tl.arange(0, BLOCK_P)
    exists = (part < num_parts)[:, None] & is_channel[None, :]
    at = part[:, None] * channels + channel[None, :]
    tl.store(grad_bias + channel, tl.sum(tl.load(part_bias + at, exists, 0.0), 0), is_channel)
    tl.store(grad_weight + channel, tl.sum(tl.load(part_weight + at, exists, 0.0), 0), is_channel)


@triton.jit(do_not_specialize=SIZES)
def _grad_kernel(  # type: ignore[no-untyped-def]
    x,
    grad,
    grad_stride,
    weight,
    bias,
    mean,
    rstd,
    grad_bias,
    grad_weight,
    grad_x,
    num_rows,
    channels,
    HAS_ACT: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    is_channel = channel < channels
    row, exists, _ = _tile(tl.program_id(0) * BLOCK_R, num_rows, channel, channels, BLOCK_R)
    at, at_grad = row * channels + channel[None, :], row * grad_stride + channel[None, :]
    normal, slope = _slopes(x + at, grad + at_grad, weight, bias, mean, rstd, exists, channel, is_channel, HAS_ACT)
    scale = tl.load(weight + channel, is_channel, 0.0) * tl.load(rstd + channel, is_channel, 0.0)
    of_bias = tl.load(grad_bias + channel, is_channel, 0.0) / num_rows
    of_weight = tl.load(grad_weight + channel, is_channel, 0.0) / num_rows
    result = (slope - of_bias[None, :] - normal * of_weight[None, :]) * scale[None, :]
    tl.store(grad_x + at, result.to(grad_x.dtype.element_ty), exists)


class _Plan:
    """How a tensor is cut into tiles and parts."""

    def __init__(self, x: Tensor) -> None:
        batch, self.channels, height, width = x.shape
        self.num_rows = batch * height * width
        self.block_c = min(MAX_BLOCK_C, triton.next_power_of_2(self.channels))
        self.block_r = min(TILE // self.block_c, triton.next_power_of_2(self.num_rows))
        self.num_tiles = triton.cdiv(self.num_rows, self.block_r)
        self.num_blocks = triton.cdiv(self.channels, self.block_c)
        self.num_parts = min(self.num_tiles, MAX_PARTS, max(1, TARGET_PROGRAMS // self.num_blocks))

    @property
    def tiles(self) -> dict[str, int]:
        return {"BLOCK_R": self.block_r, "BLOCK_C": self.block_c}

    @property
    def merge(self) -> dict[str, int]:
        block_p = FEW_PARTS if self.num_parts <= FEW_PARTS else MAX_PARTS
        return {"BLOCK_P": block_p, "BLOCK_C": MERGE_TILE // block_p}

    @property
    def merge_grid(self) -> tuple[int]:
        return (triton.cdiv(self.channels, self.merge["BLOCK_C"]),)

    def parts(self, like: Tensor) -> tuple[Tensor, Tensor]:
        first, second = like.new_empty((2, self.num_parts, self.channels)).unbind()
        return first, second


def _has_rows(x: Tensor) -> bool:
    """True for channels-last memory, also of some channels of a wider tensor: pixels follow each other evenly."""
    _, _, height, width = x.shape
    step = x.stride(3)
    return x.stride(1) == 1 and x.stride(2) == width * step and x.stride(0) == height * width * step


def _apply(plan: _Plan, inputs: tuple[Tensor, ...], y: Tensor, eps: float, has_act: bool, *, is_fixed: bool) -> None:
    launch(
        _apply_kernel,
        (plan.num_tiles, plan.num_blocks),
        *inputs,
        y,
        eps,
        plan.num_rows,
        plan.channels,
        HAS_ACT=has_act,
        IS_FIXED=is_fixed,
        **plan.tiles,
    )


class _NormAct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        running_mean: Tensor,
        running_var: Tensor,
        momentum: float,
        eps: float,
        has_act: bool,
    ) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        plan, y = _Plan(x), torch.empty_like(x)
        part_mean, part_m2 = plan.parts(weight)
        part_count = weight.new_empty(plan.num_parts)
        mean, rstd = torch.empty_like(weight), torch.empty_like(weight)
        shape = plan.num_rows, plan.channels
        launch(
            _moments_kernel,
            (plan.num_parts, plan.num_blocks),
            x,
            part_mean,
            part_m2,
            part_count,
            *shape,
            plan.num_parts,
            **plan.tiles,
        )
        launch(
            _merge_kernel,
            plan.merge_grid,
            part_mean,
            part_m2,
            part_count,
            running_mean,
            running_var,
            mean,
            rstd,
            *shape,
            plan.num_parts,
            momentum,
            eps,
            **plan.merge,
        )
        _apply(plan, (x, weight, bias, mean, rstd), y, eps, has_act, is_fixed=False)
        ctx.save_for_backward(x, weight, bias, mean, rstd)
        ctx.plan, ctx.has_act = plan, has_act
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, mean, rstd = ctx.saved_tensors
        plan: _Plan = ctx.plan
        grad, grad_stride = grads[0], grads[0].stride(3)
        if not _has_rows(grad):
            grad, grad_stride = grad.contiguous(memory_format=torch.channels_last), plan.channels
        part_bias, part_weight = plan.parts(weight)
        grad_bias, grad_weight, grad_x = torch.empty_like(bias), torch.empty_like(weight), torch.empty_like(x)
        inputs, shape = (x, grad, grad_stride, weight, bias, mean, rstd), (plan.num_rows, plan.channels)
        launch(
            _reduce_kernel,
            (plan.num_parts, plan.num_blocks),
            *inputs,
            part_bias,
            part_weight,
            *shape,
            plan.num_parts,
            HAS_ACT=ctx.has_act,
            **plan.tiles,
        )
        launch(
            _sum_kernel,
            plan.merge_grid,
            part_bias,
            part_weight,
            grad_bias,
            grad_weight,
            plan.channels,
            plan.num_parts,
            **plan.merge,
        )
        launch(
            _grad_kernel,
            (plan.num_tiles, plan.num_blocks),
            *inputs,
            grad_bias,
            grad_weight,
            grad_x,
            *shape,
            HAS_ACT=ctx.has_act,
            **plan.tiles,
        )
        return grad_x, grad_weight, grad_bias, None, None, None, None, None


def norm_act_kernel(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
    has_act: bool,
) -> Tensor:
    """Normalise and activate on the device."""
    y: Tensor = _NormAct.apply(x, weight, bias, running_mean, running_var, momentum, eps, has_act)
    return y


def norm_act_fixed_kernel(
    x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, eps: float, has_act: bool
) -> Tensor:
    """Normalise with fixed statistics and activate on the device; no backward pass."""
    x = x.contiguous(memory_format=torch.channels_last)
    y = torch.empty_like(x)
    _apply(_Plan(x), (x, weight, bias, mean, variance), y, eps, has_act, is_fixed=True)
    return y
