"""The assignment kernel equals the plain form byte for byte on the GPU, eagerly and inside a recording."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "kernels"))
from assignment_cases import cases, differing, to

from lucid_yolo.graphs import ReplayRunner
from lucid_yolo.kernels.assignment import assign_points
from lucid_yolo.kernels.assignment.reference import AssignInputs, AssignOutputs

CASES = dict(cases(is_small=False))


@pytest.mark.parametrize("name", CASES)
def test_kernel_equals_the_plain_form(name: str) -> None:
    inputs = to(CASES[name], "cuda")
    assert differing(assign_points(inputs, "reference"), assign_points(inputs, "kernel")) == []


def test_kernel_gives_the_same_bytes_every_time() -> None:
    inputs = to(CASES["large 0"], "cuda")
    first = assign_points(inputs, "kernel")
    assert all(differing(first, assign_points(inputs, "kernel")) == [] for _ in range(20))


def test_kernel_inside_a_recording() -> None:
    first, second = (to(CASES[name], "cuda") for name in ("large 0", "large 1"))

    def run(_key: object, prob: torch.Tensor, boxes: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs = assign_points(AssignInputs(prob, boxes, *rest), "kernel")
        return outputs.target_index, outputs.weight, outputs.is_positive, outputs.is_in_ignored

    rest = [getattr(first, name) for name in list(AssignInputs.__dataclass_fields__)[2:]]
    replay = ReplayRunner(run, list)
    for inputs in (first, second, first):
        expected = assign_points(AssignInputs(inputs.class_prob, inputs.boxes_xyxy_px, *rest), "reference")
        assert differing(expected, AssignOutputs(*replay(None, inputs.class_prob, inputs.boxes_xyxy_px))) == []
