"""A resumed run is the same run, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback

from lucid_yolo.runtime.checkpoint_file import copy_checkpoint, previous_path, read_checkpoint


class Killed(BaseException):
    """Stands for a kill: nothing of Lightning's own clean-up for errors runs on it."""


class KillAt(Callback):
    """Raises in a hook when the run has made so many updates."""

    def __init__(self, hook: str, update: int) -> None:
        self.update = update
        setattr(self, hook, self._raise_at)

    def _raise_at(self, trainer: Any, *args: Any) -> None:
        if trainer.global_step == self.update:
            raise Killed


def checkpoint_bytes(path: Path) -> dict[str, Any]:
    """Everything in a checkpoint that a run must reproduce."""
    checkpoint = read_checkpoint(path)
    flat: dict[str, Any] = {}

    def visit(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                visit(f"{prefix}.{key}", item)
        else:
            flat[prefix] = value.numpy().tobytes() if isinstance(value, torch.Tensor) else value

    visit("state_dict", checkpoint["state_dict"])
    visit("lucid", checkpoint["lucid_yolo"])
    for key in ("epoch", "global_step", "callbacks"):
        visit(key, checkpoint[key])
    visit("data", checkpoint["DetectorDataModule"])
    del flat["lucid.random.python"]  # the shape checks of the tests draw from it
    return flat


@pytest.fixture(scope="module")
def kinds() -> dict[str, tuple[str, int]]:
    """Where a run is killed: hook and update count (three updates an epoch)."""
    return {
        "inside an epoch": ("on_train_batch_end", 5),
        "at the end of an epoch": ("on_train_epoch_end", 6),
        "during validation": ("on_validation_batch_end", 6),
    }


@pytest.mark.parametrize("kind", ["inside an epoch", "at the end of an epoch", "during validation"])
@pytest.mark.parametrize("every_n_updates", [None, 2])
def test_killed_and_resumed_equals_uninterrupted(
    fit: Any, tmp_path: Path, kinds: Any, kind: str, every_n_updates: int | None
) -> None:
    fit(tmp_path / "whole", every_n_updates=every_n_updates)
    hook, update = kinds[kind]
    with pytest.raises(Killed):
        fit(tmp_path / "parts", every_n_updates=every_n_updates, callbacks=(KillAt(hook, update),))
    fit(tmp_path / "parts", tmp_path / "parts/checkpoints/last.ckpt", every_n_updates=every_n_updates)

    whole = checkpoint_bytes(tmp_path / "whole/checkpoints/last.ckpt")
    parts = checkpoint_bytes(tmp_path / "parts/checkpoints/last.ckpt")
    assert whole.keys() == parts.keys()
    assert [key for key in whole if whole[key] != parts[key]] == []
    assert (tmp_path / "whole/metrics.csv").read_text() == (tmp_path / "parts/metrics.csv").read_text()


def test_accumulation_across_an_epoch_end_resumes(fit: Any, tmp_path: Path) -> None:
    flags: dict[str, Any] = {"module": {"image_size": 64, "accumulate": 2}}
    fit(tmp_path / "whole", **flags)
    with pytest.raises(Killed):
        fit(tmp_path / "parts", callbacks=(KillAt("on_train_epoch_start", 1),), **flags)
    fit(tmp_path / "parts", tmp_path / "parts/checkpoints/last.ckpt", **flags)
    whole = checkpoint_bytes(tmp_path / "whole/checkpoints/last.ckpt")
    assert whole == checkpoint_bytes(tmp_path / "parts/checkpoints/last.ckpt")


def test_torn_checkpoint_falls_back_to_the_one_before(
    fit: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fit(tmp_path / "run", max_epochs=2)
    last = tmp_path / "run/checkpoints/last.ckpt"
    before = read_checkpoint(previous_path(last))["global_step"]
    last.write_bytes(last.read_bytes()[: last.stat().st_size // 2])
    assert read_checkpoint(last)["global_step"] == before
    assert "using the one before it" in caplog.text


def test_the_best_checkpoint_is_a_copy_of_the_last(fit: Any, tmp_path: Path) -> None:
    fit(tmp_path / "run", max_epochs=1)
    last, best = (tmp_path / f"run/checkpoints/{name}.ckpt" for name in ("last", "best"))
    assert best.read_bytes() == last.read_bytes()
    before = best.read_bytes()
    last.write_bytes(b"another")
    copy_checkpoint(last, best)
    assert (best.read_bytes(), previous_path(best).read_bytes()) == (b"another", before)


def test_finished_run_is_an_error(fit: Any, tmp_path: Path) -> None:
    fit(tmp_path / "run", max_epochs=1)
    with pytest.raises(ValueError, match="finished after 3 updates"):
        fit(tmp_path / "run", tmp_path / "run/checkpoints/last.ckpt", max_epochs=1)


def test_missing_checkpoint_is_an_error(fit: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fit(tmp_path / "run", tmp_path / "nothing.ckpt")


def test_another_schedule_is_an_error_unless_overridden(fit: Any, tmp_path: Path) -> None:
    fit(tmp_path / "run", max_epochs=1)
    last = tmp_path / "run/checkpoints/last.ckpt"
    with pytest.raises(ValueError, match="num_updates: 3 saved, 6 now"):
        fit(tmp_path / "run", last, max_epochs=2)
    trainer, _ = fit(tmp_path / "run", last, max_epochs=2, module={"image_size": 64, "resume_override": True})
    assert trainer.global_step == 6


def test_another_network_is_an_error(fit: Any, tmp_path: Path) -> None:
    fit(tmp_path / "run", max_epochs=1)
    with pytest.raises(ValueError, match=r"checkpoint holds .*image_size_px=64.* asks for .*image_size_px=96"):
        fit(tmp_path / "run", tmp_path / "run/checkpoints/last.ckpt", module={"image_size": 96})


def test_checkpoint_holds_one_copy_per_tensor(fit: Any, tmp_path: Path) -> None:
    fit(tmp_path / "run", max_epochs=1)
    path = tmp_path / "run/checkpoints/last.ckpt"
    checkpoint = read_checkpoint(path)
    network = sum(t.numel() for t in checkpoint["state_dict"].values())
    # network, momentum, average: three times the parameters, and the file's own overhead
    assert path.stat().st_size < 4 * (3.3 * network)
