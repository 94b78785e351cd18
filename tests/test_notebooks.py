"""The notebooks run, cell by cell, in a kernel of Jupyter."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.py"))


def test_there_are_notebooks_and_each_has_a_title() -> None:
    assert len(NOTEBOOKS) >= 4
    assert all(path.read_text("utf-8").startswith("# %% [markdown]\n# # ") for path in NOTEBOOKS)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jupytext, nbclient = pytest.importorskip("jupytext"), pytest.importorskip("nbclient")
    if path.stem == "export":
        pytest.importorskip("onnxruntime")
    monkeypatch.setenv("LUCID_YOLO_NOTEBOOK_BUDGET", "fast")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p and "site-packages" not in p))
    notebook = jupytext.read(path)
    client = nbclient.NotebookClient(
        notebook, timeout=90, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    assert outputs
    assert not [out for out in outputs if out["output_type"] == "error"]
    if path.stem == "speed_and_proof":
        assert outputs[-1]["data"]["text/plain"] == "1", "the fault has to be found"
