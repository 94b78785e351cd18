"""The assignment kernel equals the plain form; on a CPU under Triton's interpreter, and compiled for two GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from assignment_cases import make_inputs

from lucid_yolo.kernels.assignment import assign_points

HERE = Path(__file__).parent


def run_script(name: str, *arguments: str, **environment: str) -> str:
    source = str(HERE.parents[1] / "src")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((source, os.environ.get("PYTHONPATH", ""))), **environment}
    command = [sys.executable, str(HERE / name), *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout


def test_interpreted_kernel_equals_the_plain_form() -> None:
    lines = run_script("assignment_cases.py", TRITON_INTERPRET="1").splitlines()
    assert len(lines) == 6
    assert all(line.endswith("equal") for line in lines), lines


@pytest.mark.parametrize("capability", ["80", "90"])
def test_kernels_compile_without_fused_multiply_add(capability: str, tmp_path: Path) -> None:
    lines = run_script("compile_kernels.py", capability, TRITON_CACHE_DIR=str(tmp_path)).splitlines()
    assert [line.split()[:3] for line in lines] == [["rank", "no-fma", "div"], ["resolve", "no-fma", "div"]]


def test_the_kernel_is_refused_where_it_cannot_run() -> None:
    with pytest.raises(ValueError, match="needs a CUDA device"):
        assign_points(make_inputs(0), "kernel")
    assert assign_points(make_inputs(0), "auto").weight.device == torch.device("cpu")
