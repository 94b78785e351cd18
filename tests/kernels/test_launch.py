"""A rehearsal compiles what will be launched and launches nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_scripts import run_script

MOST_VARIANTS = 30


@pytest.mark.parametrize("capability", ["80", "90"])
def test_a_rehearsal_compiles_everything_once(capability: str, tmp_path: Path) -> None:
    lines = run_script("rehearse.py", capability, "256", "2", TRITON_CACHE_DIR=str(tmp_path)).splitlines()
    number, *names = lines[0].split()
    assert names == ["apply", "grad", "merge", "moments", "reduce", "sum"]
    assert len(names) < int(number) <= MOST_VARIANTS
    assert lines[1:] == ["0", "launched: a pretended GPU runs nothing"]
