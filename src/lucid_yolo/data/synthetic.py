"""A seeded data set drawn offline: filled shapes on textured ground, with exact boxes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cv2
import numpy as np
from jaxtyping import Bool, Float, UInt8
from PIL import Image

from lucid_yolo.data.made_root import make_root, write_yolo_yaml

SHAPES = ("circle", "rectangle", "triangle", "star", "cross")

_MAX_OBJECTS = 10
_TRIES = 20
_GAP_PX = 2
_MIN_CONTRAST = 60
_SUBPIXEL_BITS = 6


@dataclass(frozen=True)
class _Plan:
    """What every image of a data set shares."""

    image_size_px: int
    object_px: tuple[int, int]
    seed: int


def draw_shapes(
    data_root: str | Path,
    num_train: int,
    num_val: int,
    image_size_px: int = 320,
    object_px: tuple[int, int] = (16, 96),
    seed: int = 0,
) -> bool:
    """Write a YOLO root of drawn shapes: ``data.yaml``, ``images/{train,val}``, ``labels/{train,val}``.

    Args:
        data_root: Folder to make; new, empty, or made by the same call before.
        num_train: Training images.
        num_val: Validation images.
        image_size_px: Side of the square images.
        object_px: Smallest and largest long side of an object.
        seed: Same seed, same bytes; image ``i`` does not depend on the counts.

    Returns:
        False when the same data set was there already.

    Raises:
        ValueError: A count or size makes no sense.
        FileExistsError: ``data_root`` holds something else.
    """
    low, high = object_px
    if not 3 <= low <= high <= image_size_px - 2 * _GAP_PX:
        raise ValueError(f"object_px: expected 3 <= low <= high <= {image_size_px - 2 * _GAP_PX}, found {object_px}")
    if num_train < 1 or num_val < 1:
        raise ValueError(f"num_train and num_val: expected at least 1 each, found {num_train} and {num_val}")
    recipe = {
        "name": "shapes",
        "num_train": num_train,
        "num_val": num_val,
        "image_size_px": image_size_px,
        "object_px": [low, high],
        "seed": seed,
    }
    plan = _Plan(image_size_px, (low, high), seed)
    return make_root(data_root, recipe, partial(_write_splits, plan=plan, counts={"train": num_train, "val": num_val}))


def _write_splits(root: Path, *, plan: _Plan, counts: dict[str, int]) -> None:
    for split_index, (split, count) in enumerate(counts.items()):
        images, labels = root / "images" / split, root / "labels" / split
        images.mkdir(parents=True)
        labels.mkdir(parents=True)
        for index in range(count):
            rng = np.random.default_rng([plan.seed, split_index, index])
            pixels, rows = _draw_image(plan, rng)
            Image.fromarray(pixels).save(images / f"{index:05d}.jpg", quality=92, subsampling=0)
            (labels / f"{index:05d}.txt").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    write_yolo_yaml(root, SHAPES)


def _draw_image(plan: _Plan, rng: np.random.Generator) -> tuple[UInt8[np.ndarray, "H W 3"], list[str]]:
    """Return the pixels and the label rows of one image; objects keep clear of each other."""
    side = plan.image_size_px
    canvas = _draw_ground(side, rng)
    is_taken = np.zeros((side, side), np.bool_)
    rows = []
    for _ in range(rng.integers(1, _MAX_OBJECTS + 1)):
        label = int(rng.integers(len(SHAPES)))
        mask = _draw_mask(SHAPES[label], plan.object_px, rng)
        height, width = mask.shape
        for _ in range(_TRIES):
            top, left = (int(rng.integers(_GAP_PX, side - n - _GAP_PX + 1)) for n in (height, width))
            around = is_taken[top - _GAP_PX : top + height + _GAP_PX, left - _GAP_PX : left + width + _GAP_PX]
            if not around.any():
                _paint(canvas[top : top + height, left : left + width], mask, rng)
                is_taken[top : top + height, left : left + width] = True
                center_and_size = (left + width / 2, top + height / 2, width, height)
                rows.append(" ".join([str(label), *(f"{value / side:.8g}" for value in center_and_size)]))
                break
    return np.clip(np.rint(canvas), 0, 255).astype(np.uint8), rows


def _draw_ground(side: int, rng: np.random.Generator) -> Float[np.ndarray, "H W 3"]:
    """Return coarse colour blotches with fine grain."""
    base = rng.uniform(60, 195, 3)
    canvas = np.broadcast_to(base, (side, side, 3)).copy()
    for cells, strength in ((4, 25.0), (16, 15.0), (64, 8.0)):
        coarse = rng.normal(0, strength, (cells, cells, 3))
        canvas += cv2.resize(coarse, (side, side), interpolation=cv2.INTER_LINEAR)
    return canvas + rng.normal(0, 5, (side, side, 1))


def _paint(ground: Float[np.ndarray, "h w 3"], mask: Bool[np.ndarray, "h w"], rng: np.random.Generator) -> None:
    """Fill the mask with a colour that stands out from the ground, in place."""
    mean = ground.mean(axis=(0, 1))
    color = rng.uniform(0, 255, 3)
    while np.abs(color - mean).max() < _MIN_CONTRAST:
        color = rng.uniform(0, 255, 3)
    ground[mask] = color + rng.normal(0, 4, (int(mask.sum()), 1))


def _draw_mask(shape: str, object_px: tuple[int, int], rng: np.random.Generator) -> Bool[np.ndarray, "h w"]:
    """Return a turned shape cropped to its own pixels, so that its box is the array's."""
    low, high = object_px
    long_side = int(np.rint(np.exp(rng.uniform(np.log(low), np.log(high)))))
    points = _outline(shape, rng)
    angle = rng.uniform(0, 2 * np.pi)
    points = points @ np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    points -= points.min(axis=0)
    points *= (long_side - 1) / points.max()
    canvas = np.zeros((long_side, long_side), np.uint8)
    fixed = np.rint(points * 2**_SUBPIXEL_BITS).astype(np.int32)
    cv2.fillPoly(canvas, [fixed], 1, shift=_SUBPIXEL_BITS)
    rows, columns = np.nonzero(canvas)
    cropped: np.ndarray = canvas[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1] > 0
    return cropped


def _outline(shape: str, rng: np.random.Generator) -> Float[np.ndarray, "n 2"]:
    """Return the corner points of a shape around the origin."""
    if shape == "rectangle":
        ratio = rng.uniform(0.4, 1.0)
        return np.array([[-1, -ratio], [1, -ratio], [1, ratio], [-1, ratio]])
    if shape == "cross":
        arm = 0.33
        quarter = np.array([[arm, 1], [arm, arm], [1, arm]])
        turn = np.array([[0, -1], [1, 0]])
        return np.concatenate([quarter @ np.linalg.matrix_power(turn, k) for k in range(4)])
    num_points = {"circle": 64, "triangle": 3, "star": 10}[shape]
    turns = 2 * np.pi * np.arange(num_points) / num_points
    radius = np.where(np.arange(num_points) % 2, 0.45, 1.0) if shape == "star" else np.ones(num_points)
    return np.stack([radius * np.cos(turns), radius * np.sin(turns)], axis=1)
