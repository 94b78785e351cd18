"""Ending a run that no longer gets better."""

from __future__ import annotations

import logging
import math
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from lucid_yolo.engine.checkpoint import RunCheckpoint
from lucid_yolo.engine.monitor import check_monitor, headline, monitored_score

_log = logging.getLogger(__name__)


class Patience(Callback):
    """Stops a fit when so many epochs have passed since the best validation.

    Every rank sees the same numbers and decides the same. A resumed run goes on counting.

    Args:
        num_epochs: Epochs to wait; at least 1.
        monitor: Metric, the larger the better; None for the task's headline metric.

    Attributes:
        best_score: Best value so far; -inf before the first.
        best_epoch: Epoch that it was found in, counted from 0; None before the first.
    """

    def __init__(self, num_epochs: int, monitor: str | None = None) -> None:
        if num_epochs < 1:
            raise ValueError(f"patience: expected at least 1 epoch, found {num_epochs}")
        self.num_epochs = num_epochs
        self.monitor = check_monitor(monitor)
        self.best_score = -math.inf
        self.best_epoch: int | None = None

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Settle the metric before a saved state arrives."""
        if stage == "fit" and self.monitor is None:
            self.monitor = headline(pl_module)

    @override
    def state_dict(self) -> dict[str, Any]:
        """Return what was best and when."""
        return {"monitor": self.monitor, "best_score": self.best_score, "best_epoch": self.best_epoch}

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on counting, if the metric is the same."""
        if state_dict["monitor"] == self.monitor:
            self.best_score, self.best_epoch = state_dict["best_score"], state_dict["best_epoch"]

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let a resumed run end where it would have ended."""
        self._stop_if_due(trainer, trainer.current_epoch - 1)

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Remember the best validation."""
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        assert self.monitor is not None
        score = monitored_score(trainer, self.monitor)
        if score is not None and score > self.best_score:
            self.best_score, self.best_epoch = score, trainer.current_epoch

    @override
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop when the wait is over."""
        self._stop_if_due(trainer, trainer.current_epoch)

    def _stop_if_due(self, trainer: Trainer, last_epoch: int) -> None:
        is_due = self.best_epoch is not None and last_epoch - self.best_epoch >= self.num_epochs
        if not trainer.strategy.reduce_boolean_decision(is_due, all=False):
            return
        trainer.should_stop = True
        if trainer.is_global_zero:
            kept = [c.best_path for c in trainer.callbacks if isinstance(c, RunCheckpoint)]  # type: ignore[attr-defined]
            _log.info(
                "stopped after epoch %d: %s has not been above its %.4f of epoch %s for %d epochs (--patience)%s",
                last_epoch,
                self.monitor,
                self.best_score,
                self.best_epoch,
                self.num_epochs,
                f"; that epoch's weights are {kept[0]}" if kept else "",
            )
