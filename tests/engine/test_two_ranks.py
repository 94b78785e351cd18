"""Two processes do what one does."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

SCRIPT = Path(__file__).with_name("two_ranks.py")


def launch(data_root: Path, out: Path, num_ranks: int, mode: str) -> subprocess.CompletedProcess[str]:
    out.mkdir()
    source = str(Path(__file__).parents[2] / "src")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": source}
    argv = [sys.executable, str(SCRIPT), str(data_root), str(out), str(num_ranks), mode]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=240, check=False)


def result(data_root: Path, out: Path, num_ranks: int, mode: str) -> list[dict[str, Any]]:
    done = launch(data_root, out, num_ranks, mode)
    assert done.returncode == 0, done.stderr[-3000:]
    return [torch.load(out / f"rank{rank}.pt", weights_only=True) for rank in range(num_ranks)]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_two_ranks_hold_one_state_and_equal_one_process(shapes_root: Path, tmp_path: Path, mode: str) -> None:
    first, second = result(shapes_root, tmp_path / "two", 2, mode)
    for name, tensor in first["state"].items():
        assert torch.equal(tensor, second["state"][name]), name
    assert int(first["state"]["update_index"]) == 4
    (single,) = result(shapes_root, tmp_path / "one", 1, mode)
    with (tmp_path / "two" / "metrics.csv").open(encoding="utf-8", newline="") as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["1", "2", "3", "3", "4"]
    if mode == "eval":  # in training mode batch statistics are those of each rank's own images
        for name in ("params", "momentum", "ema", "committed_buffers"):
            torch.testing.assert_close(first["state"][name], single["state"][name], rtol=1e-5, atol=1e-5)
        assert first["metrics"] == pytest.approx(single["metrics"], abs=1e-4, nan_ok=True)


@pytest.mark.slow
def test_two_ranks_stop_at_the_same_step_with_one_batch_size(shapes_root: Path, tmp_path: Path) -> None:
    first, second = result(shapes_root, tmp_path / "two", 2, "auto")
    assert 1 < int(first["state"]["update_index"]) < 20, "one update an epoch, and the wait was over"
    assert [name for name, tensor in first["state"].items() if not torch.equal(tensor, second["state"][name])] == []


@pytest.mark.slow
def test_a_fault_on_one_rank_ends_all(shapes_root: Path, tmp_path: Path) -> None:
    started = time.monotonic()
    done = launch(shapes_root, tmp_path / "two", 2, "fail")
    assert done.returncode != 0
    assert "a fault on one rank" in done.stderr
    assert time.monotonic() - started < 90
