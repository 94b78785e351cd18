"""Numbers of a run: fetched without waiting, written to ``metrics.csv``, handed to loggers and the progress bar."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import TQDMProgressBar
from torch import Tensor
from typing_extensions import override

from lucid_yolo.engine.black_box import write_black_box
from lucid_yolo.engine.module import DetectorModule, detector_module
from lucid_yolo.graphs import RunCounts
from lucid_yolo.runtime.step import TrainStep

MAX_BAD_RUN = 10


class NonFiniteRunError(RuntimeError):
    """Too many updates in a row were not finite."""


class MetricsFile:
    """A CSV file that grows by rows and, rarely, by columns.

    Args:
        path: The file; rows already in it are kept.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []
        if path.exists():
            with path.open(newline="", encoding="utf-8") as file:
                self.rows = [{k: v for k, v in row.items() if v != ""} for row in csv.DictReader(file)]
        self._columns = list(dict.fromkeys(key for row in self.rows for key in row))

    def truncate(self, step: int) -> None:
        """Drop every row behind ``step``."""
        self.rows = [row for row in self.rows if int(row["step"]) <= step]
        self._rewrite()

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a row."""
        self.rows.append(dict(row))
        if new := [key for key in row if key not in self._columns]:
            self._columns += new
            self._rewrite()
            return
        with self.path.open("a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, self._columns).writerow(row)

    def _rewrite(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self._columns)
            writer.writeheader()
            writer.writerows(self.rows)


@dataclass(frozen=True)
class _Fetch:
    """Numbers on their way to the host."""

    step: int
    epoch: int
    counts: dict[str, int]
    values: Tensor
    event: torch.cuda.Event | None


class MetricsWriter(Callback):
    """Fetches the step's values every ``log_every_n_steps`` updates and writes them with the next fetch.

    The copy to the host is asynchronous, and its numbers are read one interval later, so nothing waits for the device.

    Args:
        run_dir: Run folder; rank 0 writes its ``metrics.csv``.

    Attributes:
        latest: Last numbers known, for the progress bar.
    """

    def __init__(self, run_dir: str | Path) -> None:
        self.run_dir = Path(run_dir)
        self.latest: dict[str, float] = {}
        self._counts = RunCounts()
        self._carried: dict[str, int] = {}
        self._step: TrainStep | None = None
        self._file: MetricsFile | None = None
        self._pending: _Fetch | None = None

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open the file; a resumed run drops the rows it is about to repeat."""
        self._step, self._counts = detector_module(pl_module).train_step, RunCounts()
        if trainer.is_global_zero:
            self._file = MetricsFile(self.run_dir / "metrics.csv")
            self._file.truncate(trainer.global_step if trainer.global_step else -1)

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Start a fetch, after reading the one before."""
        module, every = detector_module(pl_module), trainer.log_every_n_steps  # type: ignore[attr-defined]
        if module.is_between_updates and trainer.global_step % every == 0:
            self._flush(trainer, module)
            self._pending = _Fetch(trainer.global_step, trainer.current_epoch, self._take_counts(), *_fetch(module))

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the metrics of a validation inside a fit."""
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        module = detector_module(pl_module)
        self._flush(trainer, module)
        if module.evaluation is not None:
            scalars = module.evaluation.scalars()
            self.latest |= {"mAP": scalars.get("val/map", math.nan)}
            self._write(trainer, trainer.global_step, trainer.current_epoch, scalars)

    @override
    def state_dict(self) -> dict[str, Any]:
        """Return how the steps ran that no row has told of yet."""
        return self._new_counts()

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Tell of a saved run's steps in the next row."""
        self._carried = {name: int(count) for name, count in state_dict.items()}

    @override
    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Let go of the step of the run."""
        self._step, self._counts = None, RunCounts()

    def _new_counts(self) -> dict[str, int]:
        """Return how the steps since the last row ran."""
        now = asdict(self._step.counts) if self._step is not None else asdict(RunCounts())
        before = asdict(self._counts)
        return {f"steps/{key}": now[key] - before[key] + self._carried.get(f"steps/{key}", 0) for key in now}

    def _take_counts(self) -> dict[str, int]:
        assert self._step is not None
        counts = self._new_counts()
        self._counts, self._carried = replace(self._step.counts), {}
        return counts

    @override
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write what is pending, so that every epoch's rows are complete."""
        self._flush(trainer, detector_module(pl_module))

    def _flush(self, trainer: Trainer, module: DetectorModule) -> None:
        if self._pending is None:
            return
        fetched, self._pending = self._pending, None
        if fetched.event is not None:
            fetched.event.synchronize()
        numbers = fetched.values.tolist()
        assert module.train_step is not None
        names = module.train_step.metric_names
        row = {f"train/{name}": value for name, value in zip(names, numbers, strict=False)}
        lr, num_skipped, bad_run, first_bad = numbers[len(names) :]
        row |= {"lr": lr, "num_skipped": num_skipped, **fetched.counts}
        self.latest["loss"] = row["train/loss"]
        self._write(trainer, fetched.step, fetched.epoch, row)
        if bad_run >= MAX_BAD_RUN:
            self._stop(trainer, module, int(bad_run), int(first_bad))

    def _write(self, trainer: Trainer, step: int, epoch: int, numbers: Mapping[str, float]) -> None:
        finite = {name: value for name, value in numbers.items() if not math.isnan(value)}
        for logger in trainer.loggers:
            logger.log_metrics(finite, step)
        if self._file is not None:
            self._file.add({"step": step, "epoch": epoch, **finite})

    def _stop(self, trainer: Trainer, module: DetectorModule, bad_run: int, first_bad: int) -> None:
        """Leave a record of the first bad update and end the run.

        Raises:
            NonFiniteRunError: Always.
        """
        name = "black_box.json" if trainer.is_global_zero else f"black_box_rank{trainer.global_rank}.json"
        path = self.run_dir / name
        write_black_box(path, trainer, module, first_bad, bad_run)
        raise NonFiniteRunError(
            f"{bad_run} updates in a row were not finite, from update {first_bad} on; the weights are those before it, "
            f"the batch is described in {path}"
        )


def _fetch(module: DetectorModule) -> tuple[Tensor, torch.cuda.Event | None]:
    """Start copying the step's values and the skip counters to the host."""
    state, step = module.state, module.train_step
    assert state is not None
    assert step is not None
    assert module.last_metrics is not None
    counters = (state.num_skipped, state.bad_run_length, state.first_bad_update)
    values = torch.cat((module.last_metrics, step.last_lr.view(1), *(c.float() for c in counters)))
    if values.device.type != "cuda":
        return values, None
    host = torch.empty(values.shape, pin_memory=True)
    host.copy_(values, non_blocking=True)
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return host, event


class RunProgressBar(TQDMProgressBar):
    """Progress with the writer's latest numbers; it never asks the device for one."""

    @override
    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """Return the latest loss and mAP."""
        writers = [c for c in trainer.callbacks if isinstance(c, MetricsWriter)]  # type: ignore[attr-defined]
        return {name: f"{value:.3f}" for writer in writers for name, value in writer.latest.items()}
