"""What every kernel needs to run."""

from __future__ import annotations

from importlib.util import find_spec

import torch


def missing_for_kernel(device: torch.device) -> str:
    """Return what the kernel lacks on ``device``; empty if it can run."""
    if device.type != "cuda":
        return f"it needs a CUDA device, found {device}"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return f"it needs compute capability 8.0, found {torch.cuda.get_device_capability(device)}"
    return "" if find_spec("triton") else "it needs the package triton"
