"""Detections and ground truth to numbers."""

from lucid_yolo.evaluate.coco import BoxMetrics, ClassMetrics, ImageDetections, evaluate_boxes
from lucid_yolo.evaluate.curves import ConfidenceCurves, confidence_curves

__all__ = ["BoxMetrics", "ClassMetrics", "ConfidenceCurves", "ImageDetections", "confidence_curves", "evaluate_boxes"]
