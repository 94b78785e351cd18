"""A grid of network inputs with their boxes: what the network really sees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from jaxtyping import UInt8
from numpy.typing import NDArray
from torch import Tensor

from lucid_yolo.structures import Batch
from lucid_yolo.viz.draw import ClassNames, draw_boxes

GAP_PX = 4
BACKGROUND = 255


def draw_batch(
    images: UInt8[Tensor, "B 3 H W"],
    boxes_xyxy_px: Sequence[NDArray[Any]],
    labels: Sequence[NDArray[Any]],
    names: ClassNames,
    scores: Sequence[NDArray[Any] | None] | None = None,
    *,
    num_columns: int | None = None,
    max_images: int = 16,
    max_side_px: int = 1920,
) -> NDArray[np.uint8]:
    """Return one picture of the first images of a batch, in rows of equal length.

    Args:
        images: RGB network inputs.
        boxes_xyxy_px: Per image ``[n, 4]`` corners in network-input pixels.
        labels: Per image ``[n]`` class indices.
        names: Class names by index.
        scores: Per image ``[n]``, written when given; None for an image without.
        num_columns: Images per row; None for a picture that is about square.
        max_images: Images shown.
        max_side_px: The picture's longest side; images shrink to fit and never grow.

    Raises:
        ValueError: The batch is empty or the sequences differ in length.
    """
    num = min(len(images), max_images)
    if not num or not len(images) == len(boxes_xyxy_px) == len(labels):
        raise ValueError(
            "expected at least one image, as many entries of boxes_xyxy_px and labels, and max_images of 1 or more; "
            f"found {len(images)}, {len(boxes_xyxy_px)}, {len(labels)} and {max_images}"
        )
    height, width = images.shape[2:]
    columns = num_columns or _square_columns(num, height, width)
    rows = math.ceil(num / columns)
    scale = min(1.0, (max_side_px - (columns + 1) * GAP_PX) / (columns * width))
    scale = min(scale, (max_side_px - (rows + 1) * GAP_PX) / (rows * height))
    tile_width, tile_height = max(1, int(width * scale)), max(1, int(height * scale))
    size = (rows * (tile_height + GAP_PX) + GAP_PX, columns * (tile_width + GAP_PX) + GAP_PX, 3)
    picture = np.full(size, BACKGROUND, dtype=np.uint8)
    ratio = np.array([tile_width / width, tile_height / height] * 2)
    for i in range(num):
        tile = np.ascontiguousarray(images[i].permute(1, 2, 0).cpu().numpy())
        tile = cv2.resize(tile, (tile_width, tile_height), interpolation=cv2.INTER_AREA)
        drawn = draw_boxes(
            tile.astype(np.uint8), boxes_xyxy_px[i] * ratio, labels[i], names, None if scores is None else scores[i]
        )
        top = GAP_PX + i // columns * (tile_height + GAP_PX)
        left = GAP_PX + i % columns * (tile_width + GAP_PX)
        picture[top : top + tile_height, left : left + tile_width] = drawn
    return picture


def draw_training_batch(batch: Batch, names: ClassNames, max_images: int = 16) -> NDArray[np.uint8]:
    """Return :func:`draw_batch` of a batch's images and objects; blanks, padding and ignored regions left out."""
    is_real = batch.sample_index >= 0
    targets = batch.targets
    boxes, labels = [], []
    for row in is_real.nonzero().flatten().tolist():
        is_object = targets.is_object[row]
        boxes.append(targets.boxes_xyxy_px[row][is_object].cpu().numpy())
        labels.append(targets.labels[row][is_object].cpu().numpy())
    return draw_batch(batch.images[is_real], boxes, labels, names, max_images=max_images)


def _square_columns(num: int, height: int, width: int) -> int:
    """Return how many images in a row make the picture about square."""
    return min(num, math.ceil(math.sqrt(num * height / width)))
