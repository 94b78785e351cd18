"""The normalisation kernels agree with float64; under Triton's interpreter, and compiled for two GPUs."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from norm_act_cases import SMALL_SHAPES, errors
from test_assignment import run_script
from torch import nn

from lucid_yolo.kernels.norm_act import norm_act
from lucid_yolo.kernels.norm_act.reference import norm_act_reference
from lucid_yolo.models.blocks import ConvNormAct
from lucid_yolo.models.network import use_norm_kernel


def test_interpreted_kernels_agree_with_float64() -> None:
    lines = run_script("norm_act_cases.py", TRITON_INTERPRET="1").splitlines()
    assert len(lines) == 2 * len(SMALL_SHAPES)
    assert all(line.endswith("close") for line in lines), lines


@pytest.mark.parametrize("capability", ["80", "90"])
def test_kernels_compile_without_atomics(capability: str, tmp_path: Path) -> None:
    lines = run_script("compile_norm_act.py", capability, TRITON_CACHE_DIR=str(tmp_path)).splitlines()
    assert [line.split()[1] for line in lines] == ["no-atomic"] * 6


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


def test_only_layers_in_training_use_the_kernel() -> None:
    network = nn.Sequential(ConvNormAct(3, 8), ConvNormAct(8, 8, has_act=False))
    expected = network.eval()(torch.ones(1, 3, 4, 4))
    use_norm_kernel(network)
    assert torch.equal(network(torch.ones(1, 3, 4, 4)), expected)
    with pytest.raises(ValueError, match="needs a CUDA device"):
        network.train()(torch.ones(1, 3, 4, 4))
