"""Class-wise non-maximum suppression by torchvision's compiled loop. Its shapes depend on the data."""

from __future__ import annotations

import torch
from torch import Tensor
from torchvision.ops import nms

from lucid_yolo.kernels.nms.reference import NmsInputs


def suppress_library(inputs: NmsInputs) -> Tensor:
    """Suppress class by class, image by image; the same operations as the plain form, on a CPU."""
    survivors = inputs.label.new_full((len(inputs.label), inputs.max_detections), -1)
    # The library compares in float64; a threshold that is a float32 makes that the plain form's comparison.
    threshold = float(torch.tensor(inputs.iou_threshold, dtype=torch.float32))
    for image, label in enumerate(inputs.label):
        rows = inputs.is_candidate[image].nonzero().squeeze(1)
        boxes = inputs.boxes_xyxy_px[image]
        of_class = [rows[label[rows] == k] for k in label[rows].unique()]
        order = [torch.arange(len(r), 0, -1, dtype=torch.float32, device=r.device) for r in of_class]
        kept = [r[nms(boxes[r], s, threshold)] for r, s in zip(of_class, order, strict=True)]
        best = torch.cat([rows[:0], *kept]).sort().values[: inputs.max_detections]
        survivors[image, : len(best)] = best
    return survivors
