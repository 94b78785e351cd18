"""Runs a script of this folder in a process of its own: Triton reads its environment once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def run_script(name: str, *arguments: str, **environment: str) -> str:
    source = str(HERE.parents[1] / "src")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((source, os.environ.get("PYTHONPATH", ""))), **environment}
    command = [sys.executable, str(HERE / name), *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout
