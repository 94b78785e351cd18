"""Drawing; never calls a model."""

from lucid_yolo.viz.curves import plot_precision_recall, plot_training
from lucid_yolo.viz.draw import class_color, draw_boxes
from lucid_yolo.viz.mosaic import draw_batch, draw_training_batch

__all__ = [
    "class_color",
    "draw_batch",
    "draw_boxes",
    "draw_training_batch",
    "plot_precision_recall",
    "plot_training",
]
