"""A detector that finds bright rectangles by looking, so that a test knows what should be found; and videos of them."""

from __future__ import annotations

import cv2
import numpy as np
import torch

from lucid_yolo.runtime.checkpoint_file import ModelMeta
from lucid_yolo.structures import ClassMap, Detections

CLASS_MAP = ClassMap(("red", "green", "blue"), (4, 8, 15))
SIZE_PX = 96
NUM_SLOTS = 300
THRESHOLD = 150


class BrightDetector:
    """Finds the parts of each colour channel that are brighter than a threshold; their brightness is the score."""

    def __init__(self) -> None:
        self.meta = ModelMeta("detect", "n", CLASS_MAP, SIZE_PX)
        self.device = torch.device("cpu")
        self.precision = "fp32"
        self.branches = ("one_to_one",)
        self.batch_sizes: list[int] = []

    def detect(self, images: torch.Tensor) -> dict[str, Detections]:
        self.batch_sizes.append(len(images))
        boxes, scores, labels = torch.zeros(len(images), NUM_SLOTS, 4), torch.zeros(len(images), NUM_SLOTS), []
        for row, image in enumerate(images.numpy()):
            found = sorted((part for label in range(3) for part in self._parts(image[label], label)), reverse=True)
            for slot, (score, _, *box) in enumerate(found):
                boxes[row, slot], scores[row, slot] = torch.tensor(box), score
            labels.append([part[1] for part in found] + [0] * (NUM_SLOTS - len(found)))
        label = torch.tensor(labels)
        return {"one_to_one": Detections(boxes, scores, label, torch.zeros_like(label))}

    @staticmethod
    def _parts(channel: np.ndarray, label: int) -> list[tuple[float, ...]]:
        _, marks, stats, _ = cv2.connectedComponentsWithStats((channel > THRESHOLD).astype(np.uint8))
        return [
            (float(channel[marks == i].mean()) / 255, label, float(x), float(y), float(x + w), float(y + h))
            for i, (x, y, w, h, _) in enumerate(stats.tolist())
            if i
        ]


def draw_frame(boxes: list[tuple[int, int, int, int, int]], height: int = 96, width: int = 96) -> np.ndarray:
    """Return an RGB picture with a bright rectangle per (x, y, w, h, label)."""
    image = np.zeros((height, width, 3), np.uint8)
    for x, y, w, h, label in boxes:
        image[max(y, 0) : y + h, max(x, 0) : x + w, label] = 250
    return image


def levels(num: int, height: int = 48, width: int = 64) -> list[np.ndarray]:
    """Return at most 25 grey frames whose brightness is ten times their number."""
    return [np.full((height, width, 3), 10 * i, np.uint8) for i in range(num)]
