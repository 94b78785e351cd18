"""Source images ready for the plan: decoded and resized once, read from the file or from a cache."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import cv2
import numpy as np

from lucid_yolo.data.cache import CacheContent, CacheKind, ImageCache
from lucid_yolo.data.image import UndecodableImageError, read_image
from lucid_yolo.data.records import SharedArray, SharedRecords
from lucid_yolo.geometry.letterbox import FILL_VALUE, letterbox
from lucid_yolo.structures import ImageRecord

logger = logging.getLogger(__name__)


class PreparedSource:
    """Decodes images and resizes each to long side = image size, the only resize before the plan's affine.

    An image that cannot be decoded does not stop a run: it is a grey image, its targets are dropped, it is logged once
    and listed in :attr:`undecodable_indices`. The list is shared with worker processes. No cache changes a pixel.

    Args:
        records: Images of the split.
        image_size_px: Long side of the result.
        cache: Keep all images as uint8, once per machine: ``"none"``, in ``"ram"`` or on ``"disk"``. Built here.
        is_cache_prepared: Keep them after the resize instead of as decoded; without a ``cache`` this means ``"ram"``.
        cache_dir: Folder of disk caches; None for the user's cache folder.

    Raises:
        ValueError: The cache does not fit, or its kind is unknown.
    """

    def __init__(
        self,
        records: Sequence[ImageRecord],
        image_size_px: int,
        *,
        cache: CacheKind = "none",
        is_cache_prepared: bool = False,
        cache_dir: str | Path | None = None,
    ) -> None:
        if cache not in get_args(CacheKind):
            raise ValueError(f"cache: expected one of {', '.join(get_args(CacheKind))}, found {cache!r}")
        self.image_size_px = image_size_px
        self._records = SharedRecords.of(records)
        self._is_undecodable = SharedArray(np.zeros(len(records), bool))
        self._cache: ImageCache | None = None
        self._is_kept_prepared = is_cache_prepared
        kind: CacheKind = "ram" if is_cache_prepared and cache == "none" else cache
        if kind != "none" and len(records):
            folder = None if cache_dir is None else Path(cache_dir)
            content, alternative = self._cache_content(is_cache_prepared), self._alternative(kind, is_cache_prepared)
            self._cache = ImageCache(content, kind, folder, alternative)

    def __call__(self, index: int) -> np.ndarray:
        """Return the prepared image as ``[h, w, 3]`` RGB uint8, not to be written to.

        Args:
            index: Position in the split.
        """
        height, width = self.size_px(index)
        if self.is_undecodable(index):
            return _grey(height, width)
        image = None if self._cache is None else self._cache(index)
        path = self._records.path(index)
        try:
            return resize_image(read_image(path) if image is None else image, height, width)
        except UndecodableImageError as error:
            self._is_undecodable.array[index] = True
            logger.warning("%s cannot be decoded and is used as an empty grey image: %s", path, error)
            return _grey(height, width)

    def __len__(self) -> int:
        return len(self._records)

    @property
    def sizes_px(self) -> np.ndarray:
        """``[n, 2]`` int64 height and width of every prepared image."""
        return np.array([self.size_px(i) for i in range(len(self))], np.int64).reshape(-1, 2)

    @property
    def num_values(self) -> int:
        """Values, so bytes, of all prepared images."""
        return int(self.sizes_px.prod(1).sum()) * 3

    @property
    def kept(self) -> np.ndarray | None:
        """All values of the RAM cache of prepared images in a row; None if there is none."""
        return None if self._cache is None or not self._is_kept_prepared else self._cache.pixels

    def is_undecodable(self, index: int) -> bool:
        """True when the image was asked for and could not be decoded; its targets do not count."""
        return bool(self._is_undecodable.array[index])

    @property
    def undecodable_indices(self) -> list[int]:
        """Positions of the images that could not be decoded so far, in any process."""
        indices: list[int] = np.flatnonzero(self._is_undecodable.array).tolist()
        return indices

    def close(self) -> None:
        """Let go of the cache; the last user of a RAM cache frees it."""
        if self._cache is not None:
            self._cache.close()

    def size_px(self, index: int) -> tuple[int, int]:
        """Return (height, width) of a prepared image."""
        box = letterbox(*self._records.size_src(index), self.image_size_px)
        return box.height_px, box.width_px

    def _cache_content(self, is_prepared: bool) -> CacheContent:
        indices = range(len(self._records))
        sizes = [self.size_px(i) if is_prepared else self._records.size_src(i) for i in indices]
        form = f"prepared for {self.image_size_px} px" if is_prepared else "decoded"

        def read(index: int) -> np.ndarray:
            image = read_image(self._records.path(index))
            return resize_image(image, *sizes[index]) if is_prepared else image

        return CacheContent([self._records.path(i) for i in indices], np.array(sizes, np.int64), form, read)

    def _alternative(self, kind: CacheKind, is_prepared: bool) -> str:
        prepared_gib = self._cache_content(is_prepared=True).num_bytes / 2**30
        ways = [] if is_prepared else [f"cache_prepared_train_images: true ({prepared_gib:.2f} GiB)"]
        ways += ["cache_train_images: disk"] if kind == "ram" else ["another cache folder"]
        return f"use {', '.join(ways)} or cache_train_images: none"


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
