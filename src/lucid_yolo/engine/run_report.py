"""``report.html`` of a fit."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from lucid_yolo.engine.checkpoint import best_evaluation, kept_evaluation
from lucid_yolo.engine.datamodule import DetectorDataModule, detector_data
from lucid_yolo.engine.metrics_writer import MetricsFile
from lucid_yolo.engine.module import DetectorModule, detector_module
from lucid_yolo.engine.pictures import RunPictures
from lucid_yolo.runtime.report import evaluation_sections, facts_section, headline_cards, labels_section
from lucid_yolo.viz.curves import plot_training
from lucid_yolo.viz.labels import plot_labels
from lucid_yolo.viz.report import Card, Drawing, Report, Section, Table, write_report


class BatchClock:
    """Time from the end of one training batch to the end of the next; pauses between them are left out.

    Attributes:
        num_batches: Batches that were timed.
        seconds: Their time.
    """

    def __init__(self) -> None:
        self.num_batches = 0
        self.seconds = 0.0
        self._last: float | None = None

    def pause(self) -> None:
        """Leave out what happens until the next batch has ended."""
        self._last = None

    def tick(self) -> None:
        """Note that a batch has ended."""
        now = time.perf_counter()
        if self._last is not None:
            self.num_batches += 1
            self.seconds += now - self._last
        self._last = now


class RunReport(Callback):
    """Writes ``report.html`` into the run folder when the fit has ended.

    Args:
        run_dir: Run folder; rank 0 writes to it.
    """

    def __init__(self, run_dir: str | Path) -> None:
        self.run_dir = Path(run_dir)
        self._clock = BatchClock()

    @override
    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the start of the loader out of the time."""
        self._clock.pause()

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Take the time."""
        self._clock.tick()

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave validation out of the time."""
        self._clock.pause()

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the page."""
        if not trainer.is_global_zero:
            return
        module, data = detector_module(pl_module), detector_data(trainer)
        evaluation, split = best_evaluation(trainer, module), data.splits.get("val")
        drawn = next((c for c in trainer.callbacks if isinstance(c, RunPictures)), RunPictures(self.run_dir))  # type: ignore[attr-defined]
        cards: tuple[Card, ...] = ()
        sections: list[Section] = []
        if evaluation is not None and split is not None:
            cards, sections = headline_cards(evaluation), [*evaluation_sections(evaluation, split, plots=drawn.plots)]
        metrics = self.run_dir / "metrics.csv"
        if MetricsFile(metrics).rows:
            curves = drawn.curves or plot_training(metrics)
            drawings = (Drawing(curves, "Long series: each value faint, their moving average on top."),)
            sections.insert(1 if sections else 0, Section("Training", drawings=drawings))
        train = data.splits["train"]
        accounts = {name: split.account for name, split in data.splits.items()}
        labels = drawn.labels or plot_labels(train.records, train.class_map.names)
        sections.append(labels_section(accounts, labels))
        sections.append(self._speed_section(trainer, module, data))
        sections.append(self._facts_section(trainer, module, data))
        meta = module.meta
        title = f"{Path(data.data_root).resolve().stem}: {meta.task} {meta.variant}, {trainer.current_epoch} epochs"
        of = "the best checkpoint" if kept_evaluation(trainer) is not None else "the last weights"
        which = f"Evaluation of {of} on split val." if cards else "Without validation."
        write_report(Report(title, f"{self.run_dir}. {which}", cards, tuple(sections)), self.run_dir / "report.html")

    def _speed_section(self, trainer: Trainer, module: DetectorModule, data: DetectorDataModule) -> Section:
        clock, rows = self._clock, list[tuple[str, str]]()
        if clock.num_batches:
            num_images = clock.num_batches * data.batch_size * trainer.world_size
            rows.append(("milliseconds per batch", f"{1000 * clock.seconds / clock.num_batches:.1f}"))
            rows.append(("images per second", f"{num_images / clock.seconds:.1f}"))
        assert module.train_step is not None
        counts = module.train_step.counts
        rows.append(("steps", f"{counts.replayed} replayed, {counts.eager} eager, {counts.recorded} recordings"))
        rows.append(("accelerated by", ", ".join(sorted(module.speed_options)) or "nothing"))
        rows.append(("batch", f"{data.batch_size} images on each of {trainer.world_size} devices"))
        text = (
            f"From the end of a batch to the end of the next, reading included, over {clock.num_batches} batches of "
            "this process; validation and the first batch of an epoch are left out."
        )
        return Section("Speed", text, (Table((), tuple(rows)),))

    def _facts_section(self, trainer: Trainer, module: DetectorModule, data: DetectorDataModule) -> Section:
        meta, config = module.meta, self.run_dir / "config.yaml"
        facts = {
            "written": datetime.now().astimezone().isoformat(" ", "seconds"),
            "run folder": self.run_dir,
            "data set": data.data_root,
            "network": f"{meta.task} {meta.variant}, {meta.image_size_px} px, {len(meta.class_map)} classes",
            "trained": f"{trainer.current_epoch} epochs, {trainer.global_step} updates",
        }
        text = config.read_text("utf-8") if config.exists() else ""
        return facts_section(facts, str(module.device), text)
