"""A fit on one or two CPU processes; run as a script, since Lightning starts the second process from it.

Arguments: data set, output folder, number of processes, ``eval`` or ``train`` for the batch-norm layers.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer

from lucid_yolo.data.plan import AugmentPolicy
from lucid_yolo.engine.checkpoint import AtomicCheckpointIO, RunCheckpoint
from lucid_yolo.engine.datamodule import DetectorDataModule
from lucid_yolo.engine.metrics_writer import MetricsWriter
from lucid_yolo.engine.module import DetectorModule
from lucid_yolo.engine.patience import Patience
from lucid_yolo.engine.strategy import StepDDPStrategy
from lucid_yolo.models.blocks import BatchNorm2d
from lucid_yolo.optim.schedule import ScheduleConfig

GLOBAL_BATCH_SIZE = 4


class Freeze(Callback):
    """Keeps batch normalisation on its running statistics, so that it does not see how a batch is shared out."""

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        for module in pl_module.network.modules():
            if isinstance(module, BatchNorm2d):
                module.eval()


class FailOn(Callback):
    """Raises on one rank only."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_rank == self.rank and trainer.global_step == 1:
            raise KeyError("a fault on one rank")


def main(data_root: str, out: str, num_ranks: int, mode: str) -> None:
    torch.set_num_threads(1)
    run_dir = Path(out)
    extra: list[Callback] = {"eval": [Freeze()], "train": [], "fail": [FailOn(1)], "auto": [Patience(1)]}[mode]
    trainer = Trainer(
        accelerator="cpu",
        devices=num_ranks,
        strategy=StepDDPStrategy(process_group_backend="gloo") if num_ranks > 1 else "auto",
        max_steps=20 if mode == "auto" else 4,
        num_sanity_val_steps=0,
        log_every_n_steps=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        plugins=[AtomicCheckpointIO()],
        callbacks=[MetricsWriter(run_dir), RunCheckpoint(run_dir), *extra],
        default_root_dir=out,
    )
    freeze = "backbone" if mode == "auto" else 0
    model = DetectorModule(image_size=64, schedule=ScheduleConfig(warmup_epochs=0.0), freeze=freeze)
    data = DetectorDataModule(
        data_root,
        batch_size="auto" if mode == "auto" else GLOBAL_BATCH_SIZE // num_ranks,
        num_workers=0,
        augment=AugmentPolicy(close_mosaic=1),
    )
    trainer.fit(model, datamodule=data)
    assert model.state is not None
    assert model.evaluation is not None
    tensors = {name: tensor.clone() for name, tensor in model.state.tensors().items()}
    scalars = model.evaluation.scalars()
    torch.save({"state": tensors, "metrics": scalars}, run_dir / f"rank{trainer.global_rank}.pt")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
