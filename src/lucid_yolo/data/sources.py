"""Source images ready for the plan: decoded and resized once."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import cv2
import numpy as np
import torch

from lucid_yolo.data.image import UndecodableImageError, read_image
from lucid_yolo.geometry.letterbox import FILL_VALUE, letterbox
from lucid_yolo.structures import ImageRecord

logger = logging.getLogger(__name__)


class PreparedSource:
    """Decodes images and resizes each to long side = image size, the only resize before the plan's affine.

    An image that cannot be decoded does not stop a run: it is a grey image, its targets are dropped, it is logged once
    and listed in :attr:`undecodable_indices`. The list is shared with worker processes.

    Args:
        records: Images of the split.
        image_size_px: Long side of the result.
    """

    def __init__(self, records: Sequence[ImageRecord], image_size_px: int) -> None:
        self.image_size_px = image_size_px
        self._paths = [record.path for record in records]
        boxes = [letterbox(record.height_src, record.width_src, image_size_px) for record in records]
        self._sizes_px = np.array([(box.height_px, box.width_px) for box in boxes], np.int64).reshape(-1, 2)
        self._is_undecodable = torch.zeros(len(records), dtype=torch.bool)
        self._is_undecodable.share_memory_()  # type: ignore[no-untyped-call]

    def __call__(self, index: int) -> np.ndarray:
        """Return the prepared image as ``[h, w, 3]`` RGB uint8, not to be written to.

        Args:
            index: Position in the split.
        """
        height, width = self._sizes_px[index].tolist()
        if self.is_undecodable(index):
            return _grey(height, width)
        try:
            image = read_image(self._paths[index])
        except UndecodableImageError as error:
            self._is_undecodable[index] = True
            logger.warning("%s cannot be decoded and is used as an empty grey image: %s", self._paths[index], error)
            return _grey(height, width)
        return resize_image(image, height, width)

    def is_undecodable(self, index: int) -> bool:
        """True when the image was asked for and could not be decoded; its targets do not count."""
        return bool(self._is_undecodable[index])

    @property
    def undecodable_indices(self) -> list[int]:
        """Positions of the images that could not be decoded so far, in any process."""
        indices: list[int] = self._is_undecodable.nonzero().flatten().tolist()
        return indices


def resize_image(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Resize by pixel area when an image shrinks and bilinearly when it grows; itself when the size is right.

    Args:
        image: ``[h, w, 3]`` uint8.
        height: New height in pixels.
        width: New width in pixels.
    """
    if image.shape[:2] == (height, width):
        return image
    interpolation = cv2.INTER_AREA if max(height, width) < max(image.shape[:2]) else cv2.INTER_LINEAR
    return cv2.resize(image, (width, height), interpolation=interpolation)


def _grey(height: int, width: int) -> np.ndarray:
    return np.full((height, width, 3), FILL_VALUE, np.uint8)
