"""The kernels compile for GPUs that are not here, without fused multiply-add and with true division."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_scripts import run_script


@pytest.mark.parametrize("capability", ["80", "90"])
def test_kernels_compile_without_fused_multiply_add(capability: str, tmp_path: Path) -> None:
    lines = run_script("compile_kernels.py", capability, TRITON_CACHE_DIR=str(tmp_path)).splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["rank", "no-fma", "div"],
        ["resolve", "no-fma", "div"],
        ["suppress", "no-fma", "div"],
    ]
