"""Precision of the network's forward pass; everything after it is float32."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal, get_args

import torch

PrecisionName = Literal["auto", "fp32", "bf16", "fp16"]
ResolvedPrecision = Literal["fp32", "bf16", "fp16"]
HALF_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def resolve_precision(name: PrecisionName, device: torch.device) -> ResolvedPrecision:
    """Return what ``auto`` means on ``device``: bf16 on a GPU that has it, fp32 otherwise.

    Raises:
        ValueError: Unknown name, or fp16 without a GPU.
    """
    if name not in get_args(PrecisionName):
        raise ValueError(f"precision: expected one of {', '.join(get_args(PrecisionName))}, found {name!r}")
    if name == "fp16" and device.type != "cuda":
        raise ValueError(f"precision fp16 needs a CUDA device, found {device}; use bf16 or fp32")
    if name == "auto":
        return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"
    return name


def forward_context(precision: ResolvedPrecision, device: torch.device) -> AbstractContextManager[object]:
    """Return the autocast context of the network forward; inert in fp32."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, HALF_DTYPES[precision], cache_enabled=False)
