"""A tiny data set and a short way to fit on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Trainer, seed_everything

from lucid_yolo.data.plan import AugmentPolicy
from lucid_yolo.data.synthetic import draw_shapes
from lucid_yolo.engine.checkpoint import AtomicCheckpointIO, RunCheckpoint
from lucid_yolo.engine.datamodule import DetectorDataModule
from lucid_yolo.engine.metrics_writer import MetricsWriter
from lucid_yolo.engine.module import DetectorModule
from lucid_yolo.optim.schedule import ScheduleConfig

Fit = Callable[..., tuple[Trainer, DetectorModule]]


@pytest.fixture(scope="session")
def shapes_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten training and five validation pictures."""
    root = tmp_path_factory.mktemp("shapes")
    draw_shapes(root / "set", num_train=10, num_val=5, image_size_px=64, object_px=(12, 40), seed=3)
    return root / "set"


@pytest.fixture
def fit(shapes_root: Path) -> Fit:
    """Fit at 64 px with batches of 4: three batches an epoch."""

    def run(
        run_dir: Path,
        ckpt_path: Path | None = None,
        *,
        module: dict[str, Any] | None = None,
        data: dict[str, Any] | None = None,
        data_root: Path | None = None,
        every_n_updates: int | None = None,
        monitor: str | None = None,
        callbacks: tuple[Any, ...] = (),
        **trainer_flags: Any,
    ) -> tuple[Trainer, DetectorModule]:
        flags = {"max_epochs": 3, "num_sanity_val_steps": 0, "log_every_n_steps": 1, "logger": False, **trainer_flags}
        trainer = Trainer(
            accelerator="cpu",
            enable_progress_bar=False,
            enable_model_summary=False,
            plugins=[AtomicCheckpointIO()],
            callbacks=[MetricsWriter(run_dir), RunCheckpoint(run_dir, every_n_updates, monitor), *callbacks],
            default_root_dir=str(run_dir),
            **flags,
        )
        module_flags = {"image_size": 64, "schedule": ScheduleConfig(warmup_epochs=1.0), **(module or {})}
        data_flags = {
            "batch_size": 4,
            "num_workers": 0,
            "augment": AugmentPolicy(close_mosaic=1),
            **(data or {}),
        }
        seed_everything(0, verbose=False)
        model = DetectorModule(**module_flags)
        trainer.fit(
            model, datamodule=DetectorDataModule(str(data_root or shapes_root), **data_flags), ckpt_path=ckpt_path
        )
        return trainer, model

    return run
