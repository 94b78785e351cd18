"""Every image of a data set decoded once: what cannot be read, and which images are the same picture.

Two images are *equal* when their pixels are, and *near* when both their thumbnails (16 x 16 grey means) and their
gradient signs (256 bits) nearly are: re-encoded, resized or slightly changed copies. Flat images are never near.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import cv2
import numpy as np

from lucid_yolo.data.image import UndecodableImageError, decode_image
from lucid_yolo.structures import ImageRecord

MAX_BITS_APART = 12
MAX_LEVELS_APART = 4.0

_GRID = 16
_MIN_CONTRAST = 4.0
_MIN_STEP = 2.0
_BLOCK = 1024


@dataclass(frozen=True)
class ImageScan:
    """What decoding one image showed.

    Attributes:
        path: Its file.
        fault: Why it cannot be decoded; empty if it can.
        is_truncated: A part of the file is missing.
        has_other_size: The decoded size is not the one in the header.
        digest: Of the pixels.
        thumbnail: ``[256]`` float32 grey means.
        bits: ``[4]`` uint64 signs of horizontal steps.
    """

    path: str
    fault: str = ""
    is_truncated: bool = False
    has_other_size: bool = False
    digest: str = ""
    thumbnail: np.ndarray = field(default_factory=lambda: np.zeros(_GRID * _GRID, np.float32))
    bits: np.ndarray = field(default_factory=lambda: np.zeros(4, np.uint64))

    @property
    def is_flat(self) -> bool:
        """True when there is too little contrast to compare."""
        return float(self.thumbnail.std()) < _MIN_CONTRAST


def scan_images(records: Sequence[ImageRecord]) -> list[ImageScan]:
    """Decode images, a few at a time, and keep only their fingerprints."""
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return list(pool.map(scan_image, records))


def scan_image(record: ImageRecord) -> ImageScan:
    """Decode one image."""
    try:
        decoded = decode_image(record.path)
    except (UndecodableImageError, OSError) as error:
        return ImageScan(record.path, fault=str(error).removeprefix(f"{record.path}: "))
    pixels = decoded.pixels
    grey = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    wide = cv2.resize(grey, (_GRID + 1, _GRID), interpolation=cv2.INTER_AREA).astype(np.float32)
    signs = np.packbits(wide[:, 1:] - wide[:, :-1] > _MIN_STEP)
    return ImageScan(
        path=record.path,
        is_truncated=decoded.is_truncated,
        has_other_size=pixels.shape[:2] != (record.height_src, record.width_src),
        digest=hashlib.blake2b(pixels.tobytes() + str(pixels.shape).encode(), digest_size=16).hexdigest(),
        thumbnail=cv2.resize(grey, (_GRID, _GRID), interpolation=cv2.INTER_AREA).astype(np.float32).ravel(),
        bits=signs.view(np.uint64),
    )


def find_equal(one: Sequence[ImageScan], other: Sequence[ImageScan]) -> list[tuple[str, str]]:
    """Return the pairs of images of two splits with equal pixels, one partner each."""
    by_digest = {scan.digest: scan.path for scan in reversed(other) if scan.digest}
    return [(scan.path, by_digest[scan.digest]) for scan in one if scan.digest in by_digest]


def find_repeated(scans: Sequence[ImageScan]) -> list[tuple[str, str]]:
    """Return images whose pixels an earlier image of the same split has, with that image."""
    first: dict[str, str] = {}
    repeated = []
    for scan in scans:
        if scan.digest in first:
            repeated.append((scan.path, first[scan.digest]))
        elif scan.digest:
            first[scan.digest] = scan.path
    return repeated


def find_near(one: Sequence[ImageScan], other: Sequence[ImageScan]) -> list[tuple[str, str]]:
    """Return the pairs of images of two splits that show nearly the same, without those with equal pixels."""
    rows, columns = ([scan for scan in scans if not scan.is_flat] for scans in (one, other))
    return [(a.path, b.path) for a, b in _near_pairs(rows, columns) if a.digest != b.digest]


def _near_pairs(rows: Sequence[ImageScan], columns: Sequence[ImageScan]) -> Iterator[tuple[ImageScan, ImageScan]]:
    if not rows or not columns:
        return
    column_bits = np.stack([scan.bits for scan in columns])
    for start in range(0, len(rows), _BLOCK):
        part = rows[start : start + _BLOCK]
        row_bits = np.stack([scan.bits for scan in part])
        apart = np.zeros((len(part), len(columns)), np.uint16)
        for word in range(row_bits.shape[1]):
            apart += np.bitwise_count(row_bits[:, None, word] ^ column_bits[None, :, word])
        for row, column in np.argwhere(apart <= MAX_BITS_APART).tolist():
            a, b = part[row], columns[column]
            if np.abs(np.subtract(a.thumbnail, b.thumbnail)).mean() <= MAX_LEVELS_APART:
                yield a, b
