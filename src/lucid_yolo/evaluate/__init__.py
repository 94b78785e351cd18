"""Detections and ground truth to numbers."""
