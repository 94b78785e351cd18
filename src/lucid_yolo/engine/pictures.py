"""Pictures of a run: what it learns from, how it went, what it finds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image
from typing_extensions import override

from lucid_yolo.data.dataset import DataSplit
from lucid_yolo.data.makers import make_batch
from lucid_yolo.data.plan import BatchPlan, letterbox_plan
from lucid_yolo.data.sources import PreparedSource
from lucid_yolo.engine.checkpoint import best_evaluation
from lucid_yolo.engine.datamodule import detector_data
from lucid_yolo.engine.metrics_writer import MetricsFile
from lucid_yolo.engine.module import detector_module
from lucid_yolo.evaluate.coco import ImageDetections
from lucid_yolo.geometry.letterbox import letterbox
from lucid_yolo.models.head import DEPLOYED
from lucid_yolo.runtime.evaluation import Evaluation, seen_records
from lucid_yolo.runtime.evaluation_plots import EvaluationPlots, plot_evaluation
from lucid_yolo.structures import ImageRecord, target_capacity
from lucid_yolo.viz import draw_batch, draw_training_batch, plot_labels, plot_training, save_png

MAX_PAIRS = 8
PAIRS_PER_ROW = 2
MIN_CONFIDENCE = 0.25


class RunPictures(Callback):
    """Draws a run into its folder: the first training batch, the labels, the curves, and what it finds.

    The batch is made from its plan a second time, so the run's own data stream is not touched.

    Args:
        run_dir: Run folder; rank 0 writes to it.

    Attributes:
        labels: Statistics of the labels; None if they were not drawn.
        curves: The curves, likewise.
        plots: Plots of the best checkpoint's evaluation, likewise.
    """

    def __init__(self, run_dir: str | Path) -> None:
        self.run_dir = Path(run_dir)
        self.labels: Figure | None = None
        self.curves: Figure | None = None
        self.plots: EvaluationPlots | None = None

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draw what the network is about to see."""
        if not trainer.is_global_zero or trainer.global_step:
            return
        data = detector_data(trainer)
        planner, split = data.planner(), data.splits["train"]
        batch = make_batch(planner.plan(0), split.records, PreparedSource(split.records, planner.image_size_px))
        _save(draw_training_batch(batch, split.class_map.names), self.run_dir / "train_batch.jpg")
        self.labels = plot_labels(split.records, split.class_map.names)
        save_png(self.labels, self.run_dir / "labels.png")

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draw the curves and the evaluation of the best checkpoint."""
        if not trainer.is_global_zero:
            return
        metrics = self.run_dir / "metrics.csv"
        if MetricsFile(metrics).rows:
            self.curves = plot_training(metrics)
            save_png(self.curves, self.run_dir / "curves.png")
        module, split = detector_module(pl_module), detector_data(trainer).splits.get("val")
        evaluation = best_evaluation(trainer, module)
        if evaluation is not None and split is not None:
            self.plots = draw_evaluation(evaluation, split, module.meta.image_size_px, self.run_dir, "val")


def draw_evaluation(
    evaluation: Evaluation, split: DataSplit, image_size_px: int, folder: Path, name: str
) -> EvaluationPlots | None:
    """Draw the curves of an evaluation, its confusion matrix, and images with their annotations beside what was found.

    Args:
        evaluation: Of the split.
        split: The evaluated images.
        image_size_px: Side of the network input, at which images are drawn.
        folder: Where ``precision_recall.png``, ``confidence.png``, ``confusion.png`` and ``<name>_predictions.jpg``
            go.
        name: Of the split.

    Returns:
        The plots, for a report; None if no image was evaluated.
    """
    found = evaluation.detections[DEPLOYED]
    records = seen_records(split, found)
    if not records:
        return None
    plots = plot_evaluation(evaluation, split)
    plots.save(folder)
    _save(_draw_pairs(found, records, split.class_map.names, image_size_px), folder / f"{name}_predictions.jpg")
    return plots


def _draw_pairs(
    detections: Sequence[ImageDetections], records: Sequence[ImageRecord], names: Sequence[str], image_size_px: int
) -> NDArray[np.uint8]:
    """Return evenly chosen images, each twice: annotated, and with its detections and their scores."""
    chosen = sorted({round(i) for i in np.linspace(0, len(records) - 1, MAX_PAIRS)})
    samples = tuple(letterbox_plan(i, records[i], image_size_px) for i in chosen)
    capacity = target_capacity(max(records[i].num_label_rows for i in chosen))
    batch = make_batch(BatchPlan(0, 0, samples, capacity), records, PreparedSource(records, image_size_px))
    by_image = {found.image_id: found for found in detections}
    boxes, labels, scores = list[NDArray](), list[NDArray](), list[NDArray | None]()
    for slot, index in enumerate(chosen):
        is_object = batch.targets.is_object[slot]
        boxes.append(batch.targets.boxes_xyxy_px[slot][is_object].numpy())
        labels.append(batch.targets.labels[slot][is_object].numpy())
        scores.append(None)
        record, found = records[index], by_image[records[index].image_id]
        kept = found.score >= MIN_CONFIDENCE
        box = letterbox(record.height_src, record.width_src, image_size_px)
        boxes.append(box.boxes_to_px(found.boxes_xyxy_src[kept]))
        labels.append(found.label[kept])
        scores.append(found.score[kept])
    images = torch.repeat_interleave(batch.images, 2, dim=0)
    columns = 2 * min(PAIRS_PER_ROW, len(chosen))
    return draw_batch(images, boxes, labels, names, scores, num_columns=columns, max_images=2 * MAX_PAIRS)


def _save(picture: NDArray[np.uint8], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).save(path, quality=92)
