"""Hardware, versions and commit, to stand beside every figure."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from lucid_yolo.data.host import usable_cores
from lucid_yolo.runtime.detector import choose_device
from lucid_yolo.runtime.version import package_version


def environment(device: str) -> dict[str, Any]:
    """Return hardware, versions and commit.

    Args:
        device: ``auto``, ``cpu``, ``cuda``, ...
    """
    chosen = choose_device(device)
    found: dict[str, Any] = {"device": _device_name(chosen), "cores": usable_cores()}
    if chosen.type == "cuda":
        found |= {"driver": _driver(), "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}  # type: ignore[no-untyped-call]
    return found | {
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "lucid_yolo": package_version(),
        "commit": commit(),
    }


def commit(folder: Path = Path(__file__).parents[1]) -> str:
    """Return the commit of this checkout, marked if files differ from it; ``unknown`` outside a checkout.

    Args:
        folder: The package. One that is installed inside another project's checkout is none of its files.
    """
    git = ["git", "-C", str(folder)]
    found = _output_of([*git, "rev-parse", "HEAD"]) if _output_of([*git, "ls-files", "__init__.py"]) else ""
    if not found:
        return "unknown"
    is_changed = bool(_output_of([*git, "status", "--porcelain", "."]))
    return f"{found}{' with changes' if is_changed else ''}"


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _driver() -> str:
    found = _output_of(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    return found.splitlines()[0] if found else "unknown"


def _output_of(command: Sequence[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
