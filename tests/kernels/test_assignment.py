"""The assignment kernel equals the plain form; on a CPU under Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from assignment_cases import make_inputs
from kernel_scripts import run_script

from lucid_yolo.kernels.assignment import assign_points


def test_interpreted_kernel_equals_the_plain_form() -> None:
    lines = run_script("assignment_cases.py", TRITON_INTERPRET="1").splitlines()
    assert len(lines) == 6
    assert all(line.endswith("equal") for line in lines), lines


def test_the_kernel_is_refused_where_it_cannot_run() -> None:
    with pytest.raises(ValueError, match="needs a CUDA device"):
        assign_points(make_inputs(0), "kernel")
    assert assign_points(make_inputs(0), "auto").weight.device == torch.device("cpu")
