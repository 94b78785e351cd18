"""What a benchmark wants to know of a complete fit: its time, its memory and every byte of its numbers."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from typing_extensions import override

from lucid_yolo.engine.module import detector_module
from lucid_yolo.engine.moments import Moment, mark, ms_between
from lucid_yolo.runtime.json_file import write_json

SUMMARY = "fit.json"
LOSSES = "losses.npy"


class FitProbe(Callback):
    """Times a fit between two synchronisations and keeps the values of every step on the device until its end.

    Inside the fit nothing waits: a step's time is that between the events at the ends of two batches of one epoch, the
    wait for the loader included.

    Args:
        folder: Where ``fit.json`` and ``losses.npy``, one float32 row per batch, are written at the end; rank 0 only.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._device = torch.device("cpu")
        self._start_s = 0.0
        self._losses: list[Tensor] = []
        self._epochs: list[list[Moment]] = []
        self._validations: list[dict[str, Any]] = []

    @override
    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock, before the step is built and recorded."""
        self._device = trainer.strategy.root_device  # at the end the module is on the CPU again
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        self._start_s = _now_s(self._device)

    @override
    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep epochs apart: what happens between them is no step."""
        self._epochs.append([])

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Mark the time and keep the step's values."""
        metrics = detector_module(pl_module).last_metrics
        assert metrics is not None
        self._losses.append(metrics)
        self._epochs[-1].append(mark(self._device))

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep the metrics."""
        evaluation = detector_module(pl_module).evaluation
        if evaluation is not None and not trainer.sanity_checking:
            scalars = {name: None if math.isnan(x) else x for name, x in evaluation.scalars().items()}
            self._validations.append({"step": trainer.global_step, **scalars})

    @override
    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop the clock and write."""
        device, module = self._device, detector_module(pl_module)
        fit_s = _now_s(device) - self._start_s
        if not trainer.is_global_zero:
            return
        intervals = [ms_between(a, b) for marks in self._epochs for a, b in pairwise(marks)]
        assert module.train_step is not None
        summary = {
            "fit_s": fit_s,
            "step_ms": statistics.median(intervals) if intervals else None,
            "peak_mib": torch.cuda.max_memory_reserved(device) / 2**20 if device.type == "cuda" else None,
            "device": str(device),
            "speed_options": sorted(module.speed_options),
            "counts": asdict(module.train_step.counts),
            "metric_names": list(module.train_step.metric_names),
            "validations": self._validations,
        }
        write_json(self._folder / SUMMARY, summary)
        losses = torch.stack(self._losses) if self._losses else torch.zeros(0, 0)
        np.save(self._folder / LOSSES, losses.cpu().numpy())


def _now_s(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
