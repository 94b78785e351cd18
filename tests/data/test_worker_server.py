"""The fork server of loader workers: when it starts, and how little it holds."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lucid_yolo.data.worker_server import WORKER_MODULE, wants_workers

HEAVY = ("lightning", "matplotlib", "torchmetrics", "triton", "torchvision", "scipy", "jsonargparse", "torch._dynamo")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], True),
        (["--config", "detect", "--data.num_workers=4"], True),
        (["--data.num_workers", "0"], False),
        (["--data.num_workers=0", "--data.batch_size=4"], False),
        (["--data.batch_size=0"], True),
        (["--help"], False),
        (["--config=detect", "--print_config"], False),
        (["--print_config=skip_null"], False),
        (["--trainer.help_text=0"], True),
    ],
)
def test_command_lines_that_need_workers(flags: list[str], expected: bool) -> None:
    assert wants_workers(flags) is expected


def test_workers_hold_no_heavy_module() -> None:
    code = f"import sys, {WORKER_MODULE}; print([m for m in {HEAVY} if m in sys.modules], 'torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert found.stdout.strip() == "[] True"


@pytest.mark.skipif(sys.platform != "linux", reason="fork servers and /proc")
def test_server_imports_beside_the_main_process_and_ends_with_it() -> None:
    code = """
import os, sys, time
from lucid_yolo.data.worker_server import start_worker_server
from multiprocessing import forkserver
start_worker_server()
first = forkserver._forkserver._forkserver_pid
start_worker_server()
print(first, forkserver._forkserver._forkserver_pid, "torch" in sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    first, second, has_torch = found.stdout.split()
    assert (first == second, has_torch, found.stderr) == (True, "False", "")
