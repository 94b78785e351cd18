from __future__ import annotations

import math

import pytest
import torch

from lucid_yolo.bench.compare import (
    describe_difference,
    first_difference,
    has_same_bytes,
    place_in_state,
    sha256_of,
    state_difference,
)
from lucid_yolo.bench.fault import flip_last_bit
from tiny_run import make_step


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        (torch.tensor([1.0, math.nan]), torch.tensor([1.0, math.nan]), True),
        (torch.tensor([0.0]), torch.tensor([-0.0]), False),
        (torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64), False),
        (torch.zeros(2, 3), torch.zeros(3, 2), False),
        (torch.arange(24.0).view(1, 2, 3, 4), torch.arange(24.0).view(1, 2, 3, 4), True),
        (torch.tensor(True), torch.tensor(False), False),
        (torch.zeros(0), torch.zeros(0), True),
    ],
    ids=["NaN", "signed zero", "dtype", "shape", "same", "bool", "empty"],
)
def test_bytes_and_not_values_are_compared(first: torch.Tensor, second: torch.Tensor, is_same: bool) -> None:
    assert has_same_bytes(first, second) is is_same
    assert (sha256_of({"x": first}) == sha256_of({"x": second})) is is_same
    assert (describe_difference("x", first, second) is None) is is_same


def test_memory_format_is_no_difference() -> None:
    x = torch.randn(2, 3, 4, 5)
    assert has_same_bytes(x, x.to(memory_format=torch.channels_last))
    assert sha256_of({"x": x}) == sha256_of({"x": x.to(memory_format=torch.channels_last)})


def test_the_first_element_is_named_with_its_bits() -> None:
    first = torch.ones(2, 3, dtype=torch.bfloat16)
    second = first.clone()
    second[1, 0] = 1.0078125
    second[1, 2] = 2
    found = describe_difference("x", first, second)
    assert found is not None
    assert found.item == "x[1, 0]"
    assert (found.first, found.second) == ("1.0 (0x3f80)", "1.0078125 (0x3f81)")
    assert found.num_elements == 2


def test_a_missing_tensor_is_a_difference() -> None:
    found = first_difference({"a": torch.zeros(1)}, {"a": torch.zeros(1), "b": torch.zeros(1)})
    assert found is not None
    assert (found.item, found.first, found.second) == ("b", "missing", "present")


def test_a_flat_position_is_told_as_the_parameters_element() -> None:
    """Every element of every parameter and statistic is found where its view writes it."""
    state = make_step().state
    weight, index = (
        next((n, p) for n, p in state.network.named_parameters() if p.dim() == 4 and p.shape[2] == 3)[0],
        (
            3,
            1,
            2,
            0,
        ),
    )
    for name, flat in (("params", state.params), ("exchange", state.exchange)):
        before = {name: flat.clone()}
        flip_last_bit(state.layout.views(flat[: state.layout.length])[weight][index])
        found = state_difference(state, before, {name: flat})
        assert found is not None
        kind = {"params": "params", "exchange": "gradient"}[name]
        assert found.item == f"{kind}: {weight}[3, 1, 2, 0]"
    statistic = next(iter(state.buffer_layout.shapes))
    assert place_in_state(state, "committed_buffers", 5) == f"committed_buffers: {statistic}[5]"
    assert place_in_state(state, "exchange", state.layout.length + 5) == f"statistics: {statistic}[5]"
    assert place_in_state(state, "exchange", len(state.exchange) - 1) == "validity flag"
    assert place_in_state(state, "update_index", 0) == "update_index"
    gap = next(
        end
        for name, start in state.layout.offsets.items()
        if (end := start + state.layout.shapes[name].numel()) % 32 and end < state.layout.length
    )
    assert place_in_state(state, "params", gap) == "params: a gap between two tensors"
