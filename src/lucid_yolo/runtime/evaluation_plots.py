"""The plots of an evaluation, made once for the pictures of a run folder and for its report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from numpy.typing import NDArray

from lucid_yolo.data.dataset import DataSplit
from lucid_yolo.evaluate.confusion import ImageMatch, confusion_matrix, match_images
from lucid_yolo.evaluate.curves import ConfidenceCurves, confidence_curves
from lucid_yolo.models.head import DEPLOYED
from lucid_yolo.runtime.evaluation import Evaluation, seen_records
from lucid_yolo.viz import plot_confidence, plot_confusion, plot_precision_recall, save_png


@dataclass(frozen=True)
class EvaluationPlots:
    """Plots of the deployed head, and what they are drawn from.

    Attributes:
        curves: Precision, recall and F1 against confidence.
        matches: What was found in each image.
        counts: Confusion matrix, as ``plot_confusion`` takes it.
        precision_recall: Precision against recall.
        confidence: Precision, recall and F1 against confidence.
        confusion: The confusion matrix.
    """

    curves: ConfidenceCurves
    matches: list[ImageMatch]
    counts: NDArray[Any]
    precision_recall: Figure
    confidence: Figure
    confusion: Figure

    def save(self, folder: Path) -> None:
        """Write ``precision_recall.png``, ``confidence.png`` and ``confusion.png``.

        Args:
            folder: Made if it is not there.
        """
        for name in ("precision_recall", "confidence", "confusion"):
            save_png(getattr(self, name), folder / f"{name}.png")


def plot_evaluation(evaluation: Evaluation, split: DataSplit) -> EvaluationPlots:
    """Return the plots of an evaluation.

    Args:
        evaluation: Metrics and detections.
        split: The evaluated images.
    """
    found, names = evaluation.detections[DEPLOYED], split.class_map.names
    records = seen_records(split, found)
    curves = confidence_curves(records, found, split.class_map)
    matches = match_images(records, found, split.class_map)
    counts = confusion_matrix(matches, len(names))
    quantities = {
        "Precision": (curves.precision, curves.mean_precision),
        "Recall": (curves.recall, curves.mean_recall),
        "F1": (curves.f1, curves.mean_f1),
    }
    average_precision = [row.ap50 for row in evaluation.metrics[DEPLOYED].per_class]
    return EvaluationPlots(
        curves,
        matches,
        counts,
        plot_precision_recall(curves.recall, curves.precision, names, average_precision),
        plot_confidence(curves.confidence, quantities, names, curves.best_confidence),
        plot_confusion(counts, names),
    )
