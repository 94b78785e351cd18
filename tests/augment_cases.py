"""Pictures with outlined objects, and policies that use everything, for tests of drawing on the device."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from lucid_yolo.data.plan import AugmentPolicy, TrainPlanner
from lucid_yolo.data.sources import PreparedSource, resize_image
from lucid_yolo.geometry.letterbox import letterbox
from lucid_yolo.structures import ImageRecord, Polygons

# A multiple of 32: OpenCV rounds the colours of the columns beyond one in another way.
SIZE_PX = 96
_FMA3 = 12  # OpenCV's CV_CPU_FMA3, which its Python package does not name
BATCH_SIZE = 4
POLICIES = {
    "nothing": AugmentPolicy.none(),
    "default": AugmentPolicy(close_mosaic=1),
    "colors alone": AugmentPolicy(mosaic=0.0, scale=0.0, translate=0.0, fliplr=0.0, close_mosaic=1, bgr=0.5),
    "maps": AugmentPolicy(close_mosaic=1, degrees=20.0, shear=8.0, flipud=0.5, scale=0.9),
    "perspective": AugmentPolicy(close_mosaic=1, degrees=20.0, perspective=0.2, mosaic=0.5),
    "joined": AugmentPolicy(close_mosaic=1, mixup=0.5, cutmix=1.0, bgr=0.3),
    "pasted mirror": AugmentPolicy(close_mosaic=1, copy_paste=0.9, degrees=10.0),
    "pasted others": AugmentPolicy(close_mosaic=1, copy_paste=0.9, copy_paste_mode="mixup", mixup=0.5, cutmix=1.0),
}


class Pictures(PreparedSource):
    """Images that are in memory already, of which some cannot be decoded."""

    def __init__(self, records: Sequence[ImageRecord], undecodable: Sequence[int] = ()) -> None:
        self.image_size_px, self._records, self._undecodable = SIZE_PX, records, undecodable

    def __call__(self, index: int) -> np.ndarray:
        height, width = self.size_px(index)
        if index in self._undecodable:
            return np.full((height, width, 3), 114, np.uint8)
        return resize_image(_draw(self._records[index], index), height, width)

    def __len__(self) -> int:
        return len(self._records)

    def size_px(self, index: int) -> tuple[int, int]:
        box = letterbox(self._records[index].height_src, self._records[index].width_src, SIZE_PX)
        return box.height_px, box.width_px

    def is_undecodable(self, index: int) -> bool:
        return index in self._undecodable

    @property
    def kept(self) -> np.ndarray | None:
        return np.zeros(1, np.uint8)


def make_records(count: int = 10) -> list[ImageRecord]:
    """Return images of several shapes with two outlined objects each."""
    rng, records = np.random.default_rng(5), []
    for index in range(count):
        height, width = rng.integers(40, 130, 2).tolist()
        corners, sides = rng.uniform(0, 0.6, (2, 2)) * (width, height), np.array((0.35 * width, 0.3 * height))
        boxes = np.concatenate((corners, corners + sides), 1)
        rings = [
            [np.array([[x1, y1], [x2, y1], [x2, y2], [(x1 + x2) / 2, y2 - 3], [x1, y2]])] for x1, y1, x2, y2 in boxes
        ]
        labels, ignored = rng.integers(0, 3, 2), rng.uniform(size=2) < 0.2
        polygons = Polygons.pack(rings)
        records.append(ImageRecord("", index, height, width, boxes, labels, ignored, np.ones(2), 2, polygons))
    return records


def make_planner(records: Sequence[ImageRecord], policy: AugmentPolicy) -> TrainPlanner:
    """Return the planner of three epochs, of which the last joins no images where the policy says one."""
    return TrainPlanner(records, SIZE_PX, policy, BATCH_SIZE, 3, 3)


def has_fused_multiply_add() -> bool:
    """True where OpenCV computes as the device does."""
    return int(cv2.__version__.split(".")[0]) >= 5 and bool(cv2.checkHardwareSupport(_FMA3))


def _draw(record: ImageRecord, seed: int) -> np.ndarray:
    """Return soft noise with hard edges."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)
    image = cv2.resize(coarse, (record.width_src, record.height_src), interpolation=cv2.INTER_LINEAR)
    image[::7] = rng.integers(0, 256, 3)
    return image
