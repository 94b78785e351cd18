"""Checkpoints are written beside the training: what is in them, when they are there, and where errors go."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from lucid_yolo.engine.checkpoint import AtomicCheckpointIO
from lucid_yolo.runtime.checkpoint_file import SECTION


@pytest.fixture
def blocked() -> Any:
    """A writer that writes nothing before the event is set."""
    gate, writer = threading.Event(), AtomicCheckpointIO()

    def wait_for_gate() -> None:
        assert gate.wait(20)

    writer.run_next(wait_for_gate)
    yield gate, writer
    gate.set()
    writer.teardown()


def checkpoint(**more: Any) -> dict[str, Any]:
    return {"state_dict": {}, SECTION: {}, **more}


def test_a_later_change_does_not_get_into_the_file(blocked: Any, tmp_path: Path) -> None:
    gate, writer = blocked
    history, tensor = [1], torch.zeros(2)
    content = checkpoint(callbacks={"history": history, "tensor": tensor})
    threading.Timer(0.2, gate.set).start()  # the save waits for what came before
    writer.save_checkpoint(content, tmp_path / "a.ckpt")
    history.append(2)
    tensor.fill_(7)
    content["step"] = 3
    saved = writer.load_checkpoint(tmp_path / "a.ckpt")
    assert saved["callbacks"]["history"] == [1]
    assert torch.equal(saved["callbacks"]["tensor"], torch.zeros(2))
    assert "step" not in saved


def test_jobs_run_in_order_and_the_end_waits_for_them(tmp_path: Path) -> None:
    writer, seen, path = AtomicCheckpointIO(), list[bool](), tmp_path / "a.ckpt"
    writer.save_checkpoint(checkpoint(), path)
    writer.run_next(lambda: seen.append(path.exists()))
    writer.teardown()
    assert seen == [True]
    writer.save_checkpoint(checkpoint(), tmp_path / "b.ckpt")  # usable again, as a Trainer is
    writer.teardown()
    assert (tmp_path / "b.ckpt").exists()


def test_nothing_is_done_after_a_file_that_could_not_be_written(tmp_path: Path) -> None:
    writer, seen = AtomicCheckpointIO(), list[int]()
    (tmp_path / "file").write_text("not a folder")
    writer.save_checkpoint(checkpoint(), tmp_path / "file" / "last.ckpt")
    writer.run_next(lambda: seen.append(1))  # as best.ckpt is copied from last.ckpt
    writer.run_next(lambda: seen.append(2))
    with pytest.raises(OSError, match="file"):
        writer.wait()
    writer.run_next(lambda: seen.append(3))
    writer.teardown()
    assert seen == [3]


@pytest.mark.parametrize("touch", ["save", "load", "remove", "teardown"])
def test_an_error_surfaces_at_the_next_call(touch: str, tmp_path: Path) -> None:
    writer = AtomicCheckpointIO()
    (tmp_path / "file").write_text("not a folder")
    writer.save_checkpoint(checkpoint(), tmp_path / "file" / "a.ckpt")
    calls = {
        "save": lambda: writer.save_checkpoint(checkpoint(), tmp_path / "b.ckpt"),
        "load": lambda: writer.load_checkpoint(tmp_path / "b.ckpt"),
        "remove": lambda: writer.remove_checkpoint(tmp_path / "b.ckpt"),
        "teardown": writer.teardown,
    }
    with pytest.raises(OSError, match="file"):
        calls[touch]()
    writer.teardown()


def test_a_fit_that_cannot_write_fails(fit: Any, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "checkpoints").write_text("not a folder")
    with pytest.raises(OSError, match="checkpoints"):
        fit(run_dir, max_epochs=1)
