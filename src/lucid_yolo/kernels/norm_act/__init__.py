"""Batch normalisation and SiLU of one layer: in training three kernels forward and three backward, else one.

The plain form runs four kernels forward and three backward, of which the two reductions use a small part of the device
on channels-last tensors; it writes the normalised tensor before it activates it, and reads it again. Here the
activation is recomputed. Sums are taken in another order and rounded once instead of twice, so the result is close to
the plain form's, not equal; the same bytes every time. Measured: ``docs/log.md``.
"""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float
from torch import Tensor

from lucid_yolo.kernels.needs import missing_for_kernel
from lucid_yolo.kernels.norm_act.reference import norm_act_fixed_reference, norm_act_reference

NormActImplementation = Literal["reference", "kernel"]


def norm_act(
    x: Float[Tensor, "B C H W"],
    weight: Float[Tensor, " C"],
    bias: Float[Tensor, " C"],
    running_mean: Float[Tensor, " C"],
    running_var: Float[Tensor, " C"],
    momentum: float,
    eps: float,
    has_act: bool = True,
    implementation: NormActImplementation = "reference",
) -> Float[Tensor, "B C H W"]:
    """Normalise with the batch's statistics and activate; the running statistics move in place.

    Args:
        x: At least two values per channel.
        weight: Scale of each channel, float32.
        bias: Shift of each channel, float32.
        running_mean: Moved towards the batch's mean.
        running_var: Moved towards the batch's unbiased variance.
        momentum: Share of the batch in the running statistics.
        eps: Added to the variance.
        has_act: Apply SiLU.
        implementation: Which form.

    Raises:
        ValueError: The kernel was asked for where it cannot run.

    Note:
        Graph-safe and deterministic, forward and backward.

    Source: arXiv:1502.03167 (normalisation), arXiv:1702.03118 (SiLU).
    """
    if implementation == "reference":
        return norm_act_reference(x, weight, bias, running_mean, running_var, momentum, eps, has_act)
    if missing := missing_for_kernel(x.device):
        raise ValueError(f"normalisation kernel: {missing}")
    from lucid_yolo.kernels.norm_act.kernel import norm_act_kernel

    return norm_act_kernel(x, weight, bias, running_mean, running_var, momentum, eps, has_act)


def norm_act_fixed(
    x: Float[Tensor, "B C H W"],
    weight: Float[Tensor, " C"],
    bias: Float[Tensor, " C"],
    running_mean: Float[Tensor, " C"],
    running_var: Float[Tensor, " C"],
    eps: float,
    has_act: bool = True,
    implementation: NormActImplementation = "reference",
) -> Float[Tensor, "B C H W"]:
    """Normalise with the running statistics and activate; the kernel has no backward pass.

    Args:
        x: Input.
        weight: Scale of each channel, float32.
        bias: Shift of each channel, float32.
        running_mean: Mean of each channel.
        running_var: Variance of each channel.
        eps: Added to the variance.
        has_act: Apply SiLU.
        implementation: Which form.

    Raises:
        ValueError: The kernel was asked for where it cannot run.

    Note:
        Graph-safe and deterministic.
    """
    if implementation == "reference":
        return norm_act_fixed_reference(x, weight, bias, running_mean, running_var, eps, has_act)
    if missing := missing_for_kernel(x.device):
        raise ValueError(f"normalisation kernel: {missing}")
    from lucid_yolo.kernels.norm_act.kernel import norm_act_fixed_kernel

    return norm_act_fixed_kernel(x, weight, bias, running_mean, running_var, eps, has_act)
