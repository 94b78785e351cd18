"""Drawing; never calls a model."""

from lucid_yolo.viz.curves import plot_confidence, plot_precision_recall, plot_training
from lucid_yolo.viz.draw import class_color, draw_boxes
from lucid_yolo.viz.figures import save_png, to_svg
from lucid_yolo.viz.labels import plot_labels
from lucid_yolo.viz.matrix import plot_confusion
from lucid_yolo.viz.mosaic import draw_batch, draw_training_batch

__all__ = [
    "class_color",
    "draw_batch",
    "draw_boxes",
    "draw_training_batch",
    "plot_confidence",
    "plot_confusion",
    "plot_labels",
    "plot_precision_recall",
    "plot_training",
    "save_png",
    "to_svg",
]
