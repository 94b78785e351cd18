"""Cases for comparing normalisation and activation with float64; run as a script it compares the kernel here."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor

from lucid_yolo.kernels.norm_act.reference import norm_act_fixed_reference, norm_act_reference

NAMES = ("output", "input gradient", "weight gradient", "bias gradient", "running mean", "running variance")
SMALL_SHAPES = ((2, 16, 9, 7), (1, 3, 5, 5), (3, 80, 4, 4), (2, 1, 33, 9), (1, 8, 1, 2), (4, 8, 1, 1))
LARGE_SHAPES = ((16, 16, 160, 160), (4, 256, 20, 20), (3, 33, 37, 41), (16, 64, 80, 80), (1, 1024, 3, 3))

Form = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, float, float, bool], Tensor]


def run(
    form: Form, shape: tuple[int, ...], has_act: bool, dtype: torch.dtype, device: str, x_dtype: torch.dtype
) -> list[Tensor]:
    """Return what :data:`NAMES` says, of inputs with a mean far from zero."""
    g = torch.Generator().manual_seed(sum(shape))
    x = (
        (torch.randn(shape, generator=g) * 3 + 20)
        .to(x_dtype)
        .to(device, dtype)
        .contiguous(memory_format=torch.channels_last)
    )
    grad = torch.randn(shape, generator=g).to(x_dtype).to(device, dtype)
    other = torch.float32 if dtype != torch.float64 else dtype
    weight, bias = ((torch.randn(shape[1], generator=g) * 0.5 + 1).to(device, other).requires_grad_() for _ in range(2))
    mean, var = (
        torch.full((shape[1],), 0.5, device=device, dtype=other),
        torch.ones(shape[1], device=device, dtype=other),
    )
    x.requires_grad_()
    y = form(x, weight, bias, mean, var, 0.03, 1e-3, has_act)
    wide = torch.cat((grad, grad), 1).contiguous(memory_format=torch.channels_last)
    y.backward(wide[:, : shape[1]])  # as of a tensor that was joined with another
    assert x.grad is not None
    assert weight.grad is not None
    assert bias.grad is not None
    return [y.detach(), x.grad, weight.grad, bias.grad, mean, var]


def fixed_error(
    form: Callable[..., Tensor], shape: tuple[int, ...], has_act: bool, dtype: torch.dtype, device: str
) -> float:
    """Return the largest error of a form with running statistics, as a share of the largest value."""
    g = torch.Generator().manual_seed(sum(shape))
    x = (torch.randn(shape, generator=g) * 3 + 20).to(dtype)
    x = x.contiguous(memory_format=torch.channels_last) if has_act else x
    weight, bias, mean, var = (torch.rand(shape[1], generator=g) + 0.5 for _ in range(4))
    found = form(*(t.to(device) for t in (x, weight, bias, mean * 20, var)), 1e-3, has_act)
    exact = norm_act_fixed_reference(*(t.double() for t in (x, weight, bias, mean * 20, var)), 1e-3, has_act)
    assert found.dtype == dtype
    return float((found.double().cpu() - exact).abs().max() / exact.abs().max())


def errors(form: Form, shape: tuple[int, ...], has_act: bool, dtype: torch.dtype, device: str) -> dict[str, float]:
    """Return the largest error of each result, as a share of its largest value."""
    found = run(form, shape, has_act, dtype, device, dtype)
    exact = run(norm_act_reference, shape, has_act, torch.float64, "cpu", dtype)
    return {
        name: float((a.double().cpu() - b).abs().max() / b.abs().max().clamp(min=1e-3))
        for name, a, b in zip(NAMES, found, exact, strict=True)
    }


def main() -> int:
    from lucid_yolo.kernels.norm_act.kernel import norm_act_fixed_kernel, norm_act_kernel

    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    failed = 0
    for shape in SMALL_SHAPES:
        for has_act in (True, False):
            worst = max(
                *errors(norm_act_kernel, shape, has_act, torch.float32, "cpu").values(),
                fixed_error(norm_act_fixed_kernel, shape, has_act, torch.float32, "cpu"),
            )
            failed += worst > 2e-5
            print(shape, has_act, "close" if worst <= 2e-5 else worst)
    return failed


if __name__ == "__main__":
    sys.exit(main())
