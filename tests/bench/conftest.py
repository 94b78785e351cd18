"""A drawn data set, and both arms of a fit on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer

from lucid_yolo.data.synthetic import draw_shapes
from lucid_yolo.engine.arms import Arms, build_arms
from lucid_yolo.engine.datamodule import DetectorDataModule
from lucid_yolo.engine.module import DetectorModule
from lucid_yolo.optim.musgd import MuSGD

BuildArms = Callable[..., Arms]


@pytest.fixture(scope="session")
def drawn_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten training and five validation pictures of 64 px."""
    root = tmp_path_factory.mktemp("drawn") / "set"
    draw_shapes(root, num_train=10, num_val=5, image_size_px=64, object_px=(12, 40), seed=3)
    return root


@pytest.fixture
def arms(drawn_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BuildArms]:
    """Build both arms of a fit at 32 px with batches of two; on a CPU without the slow half of the optimiser."""
    if not torch.cuda.is_available():
        monkeypatch.setattr(MuSGD, "orthogonalize", lambda _, update: update)
    built: list[Arms] = []

    def build(accelerator: str = "cpu", *, ckpt_path: str | None = None, before: Any = None, **module: Any) -> Arms:
        trainer = Trainer(accelerator=accelerator, devices=1, max_epochs=2, logger=False, enable_checkpointing=False)
        data = DetectorDataModule(str(drawn_root), batch_size=2, num_workers=0)
        built.append(build_arms(trainer, DetectorModule(image_size=32, **module), data, ckpt_path, before))
        return built[-1]

    yield build
    for one in built:
        one.close()
