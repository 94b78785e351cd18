"""Hardware, versions and commit, to stand beside every figure; tables and files of reports."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from lucid_yolo.data.host import usable_cores
from lucid_yolo.runtime.detector import choose_device


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
        "lucid_yolo": importlib.metadata.version("lucid-yolo"),
        "commit": commit(),
    }


def commit() -> str:
    """Return the commit of this checkout, marked if files differ from it; ``unknown`` outside a checkout."""
    folder = Path(__file__).parents[1]
    found = _output_of(["git", "-C", str(folder), "rev-parse", "HEAD"])
    if not found:
        return "unknown"
    is_changed = bool(_output_of(["git", "-C", str(folder), "status", "--porcelain", "."]))
    return f"{found}{' with changes' if is_changed else ''}"


def to_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table; None is shown as a dash, floats with four significant digits."""
    lines = [columns, ["---"] * len(columns), *([_cell(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def to_lines(values: Mapping[str, object]) -> str:
    """Return a Markdown list of names and values."""
    return "\n".join(f"* {name}: {value}" for name, value in values.items())


def write_reports(content: Mapping[str, Any], text: str, json_path: str | None, report_path: str | None) -> None:
    """Write a result where the user asked for it.

    Args:
        content: For the JSON file.
        text: For the Markdown file.
        json_path: None for no JSON.
        report_path: None for no Markdown.
    """
    for path, written in ((json_path, json.dumps(content, indent=1, ensure_ascii=False)), (report_path, text)):
        if path is not None:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(written + "\n", encoding="utf-8")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


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
