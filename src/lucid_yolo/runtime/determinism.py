"""Process-wide switches that make equal inputs give equal bytes."""

from __future__ import annotations

import os

import torch


def make_deterministic() -> None:
    """Choose deterministic algorithms and full float32 products for the rest of the process.

    ``CUBLAS_WORKSPACE_CONFIG`` takes effect only before the first cuBLAS call of the process. Memory that is written
    before it is read is not filled first.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
