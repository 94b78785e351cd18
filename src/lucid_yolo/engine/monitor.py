"""The one metric that chooses the best checkpoint and decides when waiting for a better one ends."""

from __future__ import annotations

import math

from lightning.pytorch import LightningModule, Trainer

from lucid_yolo.engine.module import detector_module
from lucid_yolo.runtime.evaluation import scalar_names


def check_monitor(monitor: str | None) -> str | None:
    """Return the name of a metric as it is; None stands for the task's headline metric.

    Raises:
        ValueError: No validation computes it.
    """
    known = scalar_names()
    if monitor is not None and monitor not in known:
        raise ValueError(f"monitor: expected one of {', '.join(known)}, found {monitor!r}")
    return monitor


def headline(module: LightningModule) -> str:
    """Return the name of the task's headline metric."""
    return detector_module(module).task.headline


def monitored_score(trainer: Trainer, monitor: str) -> float | None:
    """Return the metric's latest value, the same on every rank; None before there is one, or if it is undefined."""
    value = trainer.callback_metrics.get(monitor)
    if value is None or math.isnan(float(value)):
        return None
    return float(value)
