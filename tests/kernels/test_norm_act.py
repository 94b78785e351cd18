"""The normalisation kernels agree with float64; under Triton's interpreter, and compiled for two GPUs."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from norm_act_cases import SMALL_SHAPES, errors, fixed_error
from test_assignment import run_script
from torch import nn

from lucid_yolo.kernels.norm_act import norm_act, norm_act_fixed
from lucid_yolo.kernels.norm_act.reference import norm_act_fixed_reference, norm_act_reference
from lucid_yolo.models.blocks import BatchNorm2d, ConvNormAct
from lucid_yolo.models.network import use_norm_kernel


def test_interpreted_kernels_agree_with_float64() -> None:
    lines = run_script("norm_act_cases.py", TRITON_INTERPRET="1").splitlines()
    assert len(lines) == 2 * len(SMALL_SHAPES)
    assert all(line.endswith("close") for line in lines), lines


@pytest.mark.parametrize("capability", ["80", "90"])
def test_kernels_compile_without_atomics(capability: str, tmp_path: Path) -> None:
    lines = run_script("compile_norm_act.py", capability, TRITON_CACHE_DIR=str(tmp_path)).splitlines()
    assert [line.split()[1] for line in lines] == ["no-atomic"] * 7


@pytest.mark.parametrize("has_act", [True, False])
def test_the_plain_form_is_what_a_layer_does(has_act: bool) -> None:
    layer = ConvNormAct(3, 8, has_act=has_act).train()
    again = copy.deepcopy(layer)
    x = torch.randn(2, 3, 5, 5)
    norm = again.norm
    y = norm_act(again.conv(x), norm.weight, norm.bias, norm.running_mean, norm.running_var, 0.03, 1e-3, has_act)  # type: ignore[arg-type]
    assert torch.equal(layer(x), y)
    assert torch.equal(layer.norm.running_var, norm.running_var)  # type: ignore[arg-type]


def test_the_measure_of_agreement_sees_a_difference() -> None:
    def off(x: torch.Tensor, *rest: object) -> torch.Tensor:
        return norm_act_reference(x, *rest) * (1 + 1e-4)  # type: ignore[arg-type]

    assert max(errors(norm_act_reference, (2, 16, 9, 7), True, torch.float32, "cpu").values()) < 2e-5
    assert max(errors(off, (2, 16, 9, 7), True, torch.float32, "cpu").values()) > 5e-5


def test_the_measure_of_fixed_statistics_sees_a_difference() -> None:
    def off(x: torch.Tensor, *rest: object) -> torch.Tensor:
        return norm_act_fixed_reference(x, *rest) * (1 + 1e-4)  # type: ignore[arg-type]

    assert fixed_error(norm_act_fixed_reference, (2, 16, 9, 7), True, torch.float32, "cpu") < 2e-5
    assert fixed_error(off, (2, 16, 9, 7), True, torch.float32, "cpu") > 5e-5


@pytest.mark.parametrize("has_act", [True, False])
def test_the_plain_form_with_fixed_statistics_is_what_a_layer_does(has_act: bool) -> None:
    layer = ConvNormAct(3, 8, has_act=has_act).eval()
    x, norm = torch.randn(2, 3, 5, 5), layer.norm
    y = norm_act_fixed(layer.conv(x), norm.weight, norm.bias, norm.running_mean, norm.running_var, 1e-3, has_act)  # type: ignore[arg-type]
    assert torch.equal(layer(x), y)


def is_kernel_asked_for(network: nn.Module) -> bool:
    try:
        network(torch.ones(1, 3, 4, 4))
    except ValueError as error:
        return "needs a CUDA device" in str(error)
    return False


def test_layers_use_the_kernel_where_it_has_what_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    network = nn.Sequential(ConvNormAct(3, 8), ConvNormAct(8, 8, has_act=False))
    use_norm_kernel(network)
    assert is_kernel_asked_for(network.train())
    assert not is_kernel_asked_for(network.eval())  # it could be asked for gradients
    with torch.no_grad():
        assert not is_kernel_asked_for(network)  # a network fitted on a GPU runs on a CPU
        monkeypatch.setattr(torch.Tensor, "is_cuda", True)
        assert is_kernel_asked_for(network)


def test_frozen_layers_keep_their_statistics_in_training() -> None:
    network = nn.Sequential(ConvNormAct(3, 8), ConvNormAct(8, 8, has_act=False))
    x = torch.randn(2, 3, 4, 4)
    expected = network.eval()(x)
    use_norm_kernel(network)
    for module in network.train().modules():
        if isinstance(module, BatchNorm2d):
            module.is_frozen = True
    assert torch.equal(network(x), expected)
