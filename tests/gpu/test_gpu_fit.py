"""Whole fits on a GPU: recorded equals plain through validation, closing mosaic, a kill and a resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer, seed_everything

from lucid_yolo.data import device_pixels
from lucid_yolo.data.plan import AugmentPolicy
from lucid_yolo.data.synthetic import draw_shapes
from lucid_yolo.engine.checkpoint import AtomicCheckpointIO, RunCheckpoint
from lucid_yolo.engine.datamodule import DetectorDataModule
from lucid_yolo.engine.metrics_writer import MetricsWriter
from lucid_yolo.engine.module import DetectorModule
from lucid_yolo.engine.recording import RecordingOwner
from lucid_yolo.runtime.checkpoint_file import read_checkpoint
from lucid_yolo.runtime.speed import Speed

EPOCHS, STEPS_PER_EPOCH = 17, 3


class Killed(BaseException):
    """Stands for a kill."""


class KillAt(Callback):
    """Ends the run inside an epoch."""

    def __init__(self, update: int) -> None:
        self.update = update

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == self.update:
            raise Killed


@pytest.fixture(scope="module")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shapes") / "set"
    draw_shapes(root, num_train=10, num_val=5, image_size_px=64, object_px=(12, 40), seed=3)
    return root


def run_fit(
    data_root: Path,
    run_dir: Path,
    accelerate: str,
    precision: str,
    ckpt_path: Path | None = None,
    kill_at: int = 0,
    **data_options: Any,
) -> DetectorModule:
    callbacks = [RecordingOwner(), MetricsWriter(run_dir), RunCheckpoint(run_dir)]
    trainer = Trainer(
        accelerator="gpu",
        devices=1,
        max_epochs=EPOCHS,
        num_sanity_val_steps=0,
        log_every_n_steps=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        plugins=[AtomicCheckpointIO()],
        callbacks=[*callbacks, *([KillAt(kill_at)] if kill_at else [])],
        default_root_dir=str(run_dir),
    )
    seed_everything(0, verbose=False)
    module = DetectorModule(image_size=64, precision=precision, speed=Speed(accelerate=accelerate))
    policy = AugmentPolicy(close_mosaic=5)
    data = DetectorDataModule(str(data_root), batch_size=4, num_workers=2, augment=policy, **data_options)
    trainer.fit(module, datamodule=data, ckpt_path=ckpt_path)
    return module


def result_of(run_dir: Path) -> dict[str, Any]:
    """State and metrics of a finished run; how steps ran is left out, that is meant to differ."""
    checkpoint = read_checkpoint(run_dir / "checkpoints/last.ckpt")
    result: dict[str, Any] = {}

    def visit(name: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                visit(f"{name}.{key}", item)
        else:
            result[name] = value.numpy().tobytes() if isinstance(value, torch.Tensor) else value

    visit("network", checkpoint["state_dict"])
    visit("state", checkpoint["lucid_yolo"]["train_state"])
    header, *rows = [line.split(",") for line in (run_dir / "metrics.csv").read_text().splitlines()]
    kept = [i for i, name in enumerate(header) if not name.startswith("steps/")]
    result["metrics"] = [[row[i] for i in kept] for row in rows]
    return result


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_recorded_killed_and_resumed_equals_plain(data_root: Path, tmp_path: Path, precision: str) -> None:
    run_fit(data_root, tmp_path / "plain", "none", precision)
    module = run_fit(data_root, tmp_path / "recorded", "auto", precision)
    assert module.speed_options == {"capture_step", "fused_assignment"}
    with pytest.raises(Killed):
        run_fit(data_root, tmp_path / "parts", "auto", precision, kill_at=20)
    last = tmp_path / "parts/checkpoints/last.ckpt"
    run_fit(data_root, tmp_path / "parts", "none", precision, ckpt_path=last)  # recorded first, plain afterwards

    plain, recorded, parts = (result_of(tmp_path / name) for name in ("plain", "recorded", "parts"))
    assert len(plain["metrics"]) == EPOCHS * (STEPS_PER_EPOCH + 1)
    assert [key for key in plain if plain[key] != recorded[key]] == []
    assert [key for key in plain if plain[key] != parts[key]] == []


@pytest.mark.parametrize("options", [{"augment_device": "gpu"}, {"device_hsv": True}], ids=str)
def test_fits_with_images_from_the_device_are_equal(data_root: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    for accelerate in ("none", "auto"):
        run_fit(data_root, tmp_path / accelerate, accelerate, "bf16", **options)
    plain, accelerated = result_of(tmp_path / "none"), result_of(tmp_path / "auto")
    assert plain.keys() == accelerated.keys()
    for name, value in plain.items():
        equal = torch.equal(value, accelerated[name]) if isinstance(value, torch.Tensor) else value == accelerated[name]
        assert equal, name


def test_a_fit_is_the_same_wherever_its_source_images_lie(
    data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, share, is_kept in (("resident", 0.4, False), ("staged", 0.0, True), ("streamed", 0.0, False)):
        monkeypatch.setattr(device_pixels, "DEVICE_SHARE", share)
        options = {"augment_device": "gpu", "cache_prepared_train_images": is_kept}
        run_fit(data_root, tmp_path / name, "auto", "bf16", **options)
    resident, *others = (result_of(tmp_path / name) for name in ("resident", "staged", "streamed"))
    for other in others:
        assert [key for key in resident if resident[key] != other[key]] == []
