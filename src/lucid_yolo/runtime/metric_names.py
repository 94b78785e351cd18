"""What the numbers of an evaluation are called in tables. No torch here, so that every command can import it."""

from __future__ import annotations

HEADS = {"one_to_one": "one-to-one\n(deployed)", "one_to_many": "one-to-many\n+ NMS"}
ROWS = {
    "map": "AP 0.50:0.95",
    "map50": "AP 0.50",
    "map75": "AP 0.75",
    "map_small": "AP small",
    "map_medium": "AP medium",
    "map_large": "AP large",
    "ar_1": "AR, 1 detection",
    "ar_10": "AR, 10 detections",
    "ar_max": "AR, {max_detections} detections",
}
