"""Both arms begin where a fit would, and the probe of a fit tells what the fit computed."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer

from lucid_yolo.engine.arms import build_arms, compared_speed
from lucid_yolo.engine.datamodule import DetectorDataModule
from lucid_yolo.engine.fit_probe import FitProbe
from lucid_yolo.engine.module import DetectorModule
from lucid_yolo.runtime.checkpoint_file import SECTION, read_checkpoint
from lucid_yolo.runtime.speed import Speed

Fit = Callable[..., tuple[Any, DetectorModule]]


@pytest.mark.parametrize(
    ("speed", "accelerate"),
    [
        (Speed(), "auto"),
        (Speed(accelerate="none"), "auto"),
        (Speed(capture_step=True), "none"),
        (Speed(accelerate="auto", fused_assignment=True), "auto"),
    ],
)
def test_options_that_are_set_are_compared_else_whatever_is_possible(speed: Speed, accelerate: str) -> None:
    assert compared_speed(speed).accelerate == accelerate
    assert compared_speed(speed).capture_step == speed.capture_step


def test_arms_continue_a_saved_run(fit: Fit, shapes_root: Path, tmp_path: Path) -> None:
    _, module = fit(tmp_path, max_epochs=1, limit_val_batches=0)
    ckpt_path = tmp_path / "checkpoints" / "last.ckpt"
    saved = read_checkpoint(ckpt_path)
    fresh = Trainer(accelerator="cpu", max_epochs=2, logger=False, enable_checkpointing=False)
    data = DetectorDataModule(str(shapes_root), batch_size=4, num_workers=0)
    arms = build_arms(fresh, DetectorModule(image_size=64), data, str(ckpt_path))
    assert module.state is not None
    for arm in (arms.plain, arms.accelerated):
        found = arm.step.state.tensors()
        assert all(torch.equal(found[name], tensor) for name, tensor in module.state.tensors().items())
        assert int(arm.step.state.update_index) == 3
        assert arm.step.state.network.training
    assert int(saved[SECTION]["train_state"]["counters"]["update_index"]) == 3
    assert data.train_dataloader().position == 3
    assert arms.plain.step.state.params.data_ptr() != arms.accelerated.step.state.params.data_ptr()
    arms.close()


def test_the_probe_tells_every_step_and_validation(fit: Fit, tmp_path: Path) -> None:
    _, module = fit(tmp_path / "run", max_epochs=2, callbacks=(FitProbe(str(tmp_path / "probe")),))
    losses = np.load(tmp_path / "probe" / "losses.npy")
    text = (tmp_path / "probe" / "fit.json").read_text("utf-8")
    assert "NaN" not in text
    summary = json.loads(text)
    with (tmp_path / "run" / "metrics.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["train/loss"]]
    assert losses.dtype == np.float32
    assert losses.shape == (6, len(summary["metric_names"]))
    assert [float(row["train/loss"]) for row in rows] == losses[:, 0].tolist()
    assert [row["step"] for row in summary["validations"]] == [3, 6]
    assert module.evaluation is not None
    scalars = module.evaluation.scalars()
    assert math.isnan(scalars["val/map_large"])
    assert summary["validations"][-1]["val/map_large"] is None
    assert summary["validations"][-1].keys() == {"step", *scalars}
    assert summary["counts"] == {"recorded": 0, "replayed": 0, "eager": 6}
    assert 0 < summary["step_ms"] < 1e3 * summary["fit_s"]
    assert (summary["peak_mib"], summary["device"], summary["speed_options"]) == (None, "cpu", [])
