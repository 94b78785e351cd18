"""When checkpoints are written, and how Lightning reads and writes them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.plugins.io import CheckpointIO
from typing_extensions import override

from lucid_yolo.engine.module import DetectorModule, detector_module
from lucid_yolo.engine.monitor import check_monitor, headline, monitored_score
from lucid_yolo.runtime.checkpoint_file import SECTION, copy_checkpoint, read_checkpoint, write_checkpoint
from lucid_yolo.runtime.evaluation import Evaluation
from lucid_yolo.runtime.json_file import write_json


class AtomicCheckpointIO(CheckpointIO):
    """Reads and writes through :mod:`lucid_yolo.runtime.checkpoint_file`: plain values, whole files.

    Files are written by a thread while training goes on. One write is under way at a time: whatever touches files
    waits for it first, and an error of it is raised there, at the latest when the Trainer ends.
    """

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._pending: list[Future[None]] = []

    @override
    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write atomically, after this call has returned; nothing that changes later gets into the file."""
        self.wait()
        self.run_next(partial(write_checkpoint, _snapshot(checkpoint), Path(path)))

    def run_next(self, job: Callable[[], None]) -> None:
        """Run a job in the thread, after the writes that were asked for before, unless one of them fails."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "checkpoint")
        before = tuple(self._pending)

        def run() -> None:
            for earlier in before:
                earlier.result()
            job()

        self._pending.append(self._thread.submit(run))

    def wait(self) -> None:
        """Return when every file is on the disk.

        Raises:
            OSError: A file could not be written.
        """
        pending, self._pending = self._pending, []
        for job in pending:
            job.result()

    @override
    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Read without executing anything."""
        self.wait()
        return read_checkpoint(path)

    @override
    def remove_checkpoint(self, path: Any) -> None:
        """Delete a file."""
        self.wait()
        Path(path).unlink(missing_ok=True)

    @override
    def teardown(self) -> None:
        """Finish what is being written."""
        thread, self._thread = self._thread, None
        try:
            self.wait()
        finally:
            if thread is not None:
                thread.shutdown()


def _snapshot(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checkpoint that shares nothing that may change; the module's own parts are copies already."""
    own = ("state_dict", SECTION)
    return {key: value if key in own else copy.deepcopy(value) for key, value in checkpoint.items()}


class RunCheckpoint(Checkpoint):
    """Keeps ``last.ckpt`` and, by one metric, ``best.ckpt`` with its ``report.json``.

    Saves at the end of every epoch, after its validation; after a validation inside an epoch; and every so many
    updates if asked. A step that is followed by validation is saved after it.

    Args:
        run_dir: Run folder; files go to its ``checkpoints``.
        every_n_updates: Save ``last.ckpt`` that often inside an epoch; None for not at all.
        monitor: Metric that chooses the best, the larger the better; None for the headline metric of the deployed path.

    Attributes:
        best_score: Best value so far; -inf before the first.
        best_evaluation: Evaluation of ``best.ckpt``; None before the first, and after a resume until there is a better
            one.
    """

    def __init__(self, run_dir: str | Path, every_n_updates: int | None = None, monitor: str | None = None) -> None:
        self.run_dir = Path(run_dir)
        self.folder = self.run_dir / "checkpoints"
        self.every_n_updates = every_n_updates
        self.monitor = check_monitor(monitor)
        self.best_score = -math.inf
        self.best_evaluation: Evaluation | None = None
        self._saved_update = -1

    @property
    def best_path(self) -> Path:
        """Checkpoint with the best value."""
        return self.folder / "best.ckpt"

    @property
    def last_path(self) -> Path:
        """Latest checkpoint."""
        return self.folder / "last.ckpt"

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Settle the metric before a saved state arrives."""
        if stage == "fit" and self.monitor is None:
            self.monitor = headline(pl_module)

    @override
    def state_dict(self) -> dict[str, Any]:
        """Return the best score so far."""
        return {"monitor": self.monitor, "best_score": self.best_score}

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue with a saved best score; that of another metric says nothing."""
        if state_dict.get("monitor", self.monitor) == self.monitor:
            self.best_score = float(state_dict["best_score"])

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save inside an epoch, unless validation follows at once."""
        step = trainer.global_step
        if self.every_n_updates and step % self.every_n_updates == 0 and step != self._saved_update:
            loop = trainer.fit_loop.epoch_loop
            if not loop.batch_progress.is_last_batch and not _is_validated_now(trainer):
                self._save(trainer, self.last_path)

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save after a validation inside an epoch; the end of the epoch saves after its own."""
        if trainer.training or trainer.sanity_checking or trainer.state.fn != "fit":
            return
        if not trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:
            self._save_all(trainer, pl_module)

    @override
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save at the end of an epoch."""
        self._save_all(trainer, pl_module)

    def _save_all(self, trainer: Trainer, module: LightningModule) -> None:
        assert self.monitor is not None
        score = monitored_score(trainer, self.monitor)
        is_best = score is not None and score > self.best_score
        if is_best:
            assert score is not None
            self.best_score = score
            self.best_evaluation = detector_module(module).evaluation
        self._save(trainer, self.last_path)
        if trainer.is_global_zero and (is_best or not self.best_path.exists()):
            report = self._report(trainer, detector_module(module))
            writer = trainer.strategy.checkpoint_io
            if isinstance(writer, AtomicCheckpointIO):
                writer.run_next(partial(self._keep_best, report))
            else:
                self._keep_best(report)

    def _keep_best(self, report: dict[str, Any] | None) -> None:
        """Copy the latest checkpoint and write the numbers of the best one."""
        copy_checkpoint(self.last_path, self.best_path)
        if report is not None:
            write_json(self.run_dir / "report.json", report)

    def _report(self, trainer: Trainer, module: DetectorModule) -> dict[str, Any] | None:
        """Return the numbers of the best checkpoint; None without an evaluation."""
        if module.evaluation is None:
            return None
        position = {"epoch": trainer.current_epoch, "step": trainer.global_step}
        content = {"checkpoint": self.best_path.name, **position, "model": module.meta.to_dict()}
        return content | module.evaluation.report()

    def _save(self, trainer: Trainer, path: Path) -> None:
        self._saved_update = trainer.global_step
        trainer.save_checkpoint(path, weights_only=False)


def best_evaluation(trainer: Trainer, module: DetectorModule) -> Evaluation | None:
    """Return the evaluation of the best checkpoint, or the last one where the best is not known; None without any.

    Args:
        trainer: The Trainer of a fit.
        module: The module it trains.
    """
    return kept_evaluation(trainer) or module.evaluation


def kept_evaluation(trainer: Trainer) -> Evaluation | None:
    """Return the evaluation of ``best.ckpt``; None where it is not known."""
    kept = [c.best_evaluation for c in trainer.callbacks if isinstance(c, RunCheckpoint)]  # type: ignore[attr-defined]
    return next((evaluation for evaluation in kept if evaluation is not None), None)


def _is_validated_now(trainer: Trainer) -> bool:
    """Return whether validation follows the batch that just ended."""
    fetcher = trainer.fit_loop._data_fetcher
    return fetcher is not None and trainer.fit_loop.epoch_loop._should_check_val_fx(fetcher)
