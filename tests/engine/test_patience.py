"""Runs that end early, and the metric that chooses the best checkpoint."""

from __future__ import annotations

import csv
import logging
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import EarlyStopping

from lucid_yolo.engine.checkpoint import RunCheckpoint
from lucid_yolo.engine.patience import Patience
from lucid_yolo.runtime.checkpoint_file import read_checkpoint

FLAGS: dict[str, Any] = {"max_epochs": 9, "limit_train_batches": 1}


class Killed(BaseException):
    """Stands for a kill."""


class KillAt(Callback):
    """Ends the process inside an epoch."""

    def __init__(self, update: int) -> None:
        self.update = update

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == self.update:
            raise Killed


def early_stopping() -> Callback:
    return EarlyStopping(monitor="val/map", mode="max", patience=2)


def scores_of(run_dir: Path, name: str) -> list[float]:
    """Return a metric of every epoch."""
    with (run_dir / "metrics.csv").open(encoding="utf-8", newline="") as file:
        return [float(row[name]) for row in csv.DictReader(file) if row[name]]


def last_epoch(scores: list[float], patience: int) -> int:
    """Return the first epoch so many epochs after the best one before it."""
    for epoch in range(len(scores)):
        seen = scores[: epoch + 1]
        if epoch - seen.index(max(seen)) >= patience:
            return epoch
    raise AssertionError("the run went on to its end")


@pytest.mark.parametrize("make", [lambda: Patience(2), early_stopping], ids=["ours", "Lightning's"])
def test_a_run_ends_when_the_wait_is_over_also_after_a_kill(fit: Any, tmp_path: Path, make: Any) -> None:
    trainer, _ = fit(tmp_path / "whole", callbacks=(make(),), **FLAGS)
    scores = scores_of(tmp_path / "whole", "val/map")
    assert last_epoch(scores, 2) == len(scores) - 1 < FLAGS["max_epochs"] - 1
    assert trainer.global_step == len(scores)
    assert read_checkpoint(tmp_path / "whole/checkpoints/best.ckpt")["epoch"] == len(scores) - 3

    with pytest.raises(Killed):
        fit(tmp_path / "parts", callbacks=(make(), KillAt(2)), **FLAGS)
    fit(tmp_path / "parts", tmp_path / "parts/checkpoints/last.ckpt", callbacks=(make(),), **FLAGS)
    whole, parts = (read_checkpoint(tmp_path / name / "checkpoints/last.ckpt") for name in ("whole", "parts"))
    assert whole["callbacks"] == parts["callbacks"]
    assert all(value.equal(parts["state_dict"][name]) for name, value in whole["state_dict"].items())
    assert (tmp_path / "whole/metrics.csv").read_bytes() == (tmp_path / "parts/metrics.csv").read_bytes()


def test_it_says_so_and_a_stopped_run_stays_stopped(fit: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    trainer, _ = fit(tmp_path / "run", callbacks=(Patience(1),), **FLAGS)
    best, last = (tmp_path / "run/checkpoints" / name for name in ("best.ckpt", "last.ckpt"))
    num_epochs, epoch = trainer.global_step, read_checkpoint(best)["epoch"]
    line = f"stopped after epoch {num_epochs - 1}: val/map has not been above its "
    assert line in caplog.text
    assert f" of epoch {epoch} for 1 epochs (--patience); that epoch's weights are {best}" in caplog.text

    caplog.clear()
    trainer, _ = fit(tmp_path / "run", last, callbacks=(Patience(1),), **FLAGS)
    assert trainer.global_step == num_epochs
    assert line in caplog.text
    trainer, _ = fit(tmp_path / "run", last, callbacks=(Patience(2),), **FLAGS)
    assert trainer.global_step > num_epochs, "a longer wait goes on"


def test_min_epochs_come_first(fit: Any, tmp_path: Path) -> None:
    trainer, _ = fit(tmp_path / "run", callbacks=(Patience(1),), **{**FLAGS, "min_epochs": 6, "max_epochs": 7})
    assert trainer.global_step >= 6
    assert last_epoch(scores_of(tmp_path / "run", "val/map"), 1) < 5, "it would have ended before"


@pytest.mark.parametrize("make", [lambda: Patience(2, "val/mAP"), lambda: RunCheckpoint("x", monitor="val/mAP")])
def test_an_unknown_metric_is_refused_at_once(make: Any) -> None:
    with pytest.raises(ValueError, match=r"monitor: expected one of val/map, val/map50, .*, found 'val/mAP'"):
        make()


def test_another_metric_chooses_the_best(fit: Any, tmp_path: Path) -> None:
    fit(tmp_path / "run", monitor="val_o2m/ar_max")
    scores = scores_of(tmp_path / "run", "val_o2m/ar_max")
    best = read_checkpoint(tmp_path / "run/checkpoints/best.ckpt")
    assert best["epoch"] == scores.index(max(scores))
    state = best["callbacks"]["RunCheckpoint"]
    assert state == {"monitor": "val_o2m/ar_max", "best_score": pytest.approx(max(scores))}


def test_patience_is_at_least_one_epoch() -> None:
    with pytest.raises(ValueError, match="expected at least 1 epoch, found 0"):
        Patience(0)
