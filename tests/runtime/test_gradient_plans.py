"""What is planned ahead is what the backward pass asks for."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import pytest
import torch
from torch.profiler import profile

from lucid_yolo.models.network import Network, use_norm_kernel
from lucid_yolo.runtime.gradient_plans import GradientPlans, gradient_calls, run_in_backward_pass
from tiny_run import make_network

BATCH, SIZE_PX = 2, 96
CPU = torch.device("cpu")


def asked_for(profiled: Any) -> Counter[tuple[tuple[int, ...], ...]]:
    """Return the shapes of gradient, input and weight in each call of a convolution's backward pass."""
    name = "aten::convolution_backward"
    return Counter(tuple(map(tuple, event.input_shapes[:3])) for event in profiled.events() if event.name == name)


def real_backward(network: Network) -> Counter[tuple[tuple[int, ...], ...]]:
    prediction = network(torch.rand(BATCH, 3, SIZE_PX, SIZE_PX))
    with profile(record_shapes=True) as profiled:
        (prediction.box_ltrb_cell.sum() + prediction.class_logit.sum()).backward()
    return asked_for(profiled)


def test_the_calls_are_those_of_a_real_backward_pass() -> None:
    network = make_network()
    calls = gradient_calls(network, BATCH, SIZE_PX)
    planned = [(call.output_shape, call.input_shape, call.weight_shape) for call in calls]
    real = real_backward(network)
    assert len(planned) == len(set(planned)) > 40
    assert set(planned) == set(real)
    assert [call.groups == 1 for call in calls] == sorted(call.groups == 1 for call in calls), "depthwise ones first"
    first = [call for call in calls if call.is_first]
    assert [call.input_shape for call in first] == [(BATCH, 3, SIZE_PX, SIZE_PX)]


def test_they_run_in_a_backward_pass() -> None:
    calls = gradient_calls(make_network(), BATCH, SIZE_PX)
    with profile(record_shapes=True) as profiled:
        run_in_backward_pass(calls, torch.float32, CPU)
    assert asked_for(profiled) == Counter((c.output_shape, c.input_shape, c.weight_shape) for c in calls)
    order = [tuple(e.input_shapes[1]) for e in profiled.events() if e.name == "aten::convolution_backward"]
    assert order == [call.input_shape for call in calls]


def test_the_network_stays_as_it_is() -> None:
    network, untouched = make_network(), make_network()
    use_norm_kernel(network)
    GradientPlans(network, BATCH, SIZE_PX, torch.float32).wait()
    assert network.training
    assert all(parameter.grad is None for parameter in network.parameters())
    for name, value in untouched.state_dict().items():
        assert torch.equal(value, network.state_dict()[name]), name
    assert not any(module._forward_hooks for module in network.modules())


def test_what_cannot_be_planned_is_said_and_no_error(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        GradientPlans(make_network(), BATCH, SIZE_PX, torch.int64).wait()
    assert "plans of gradients could not be built ahead" in caplog.text
