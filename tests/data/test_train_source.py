"""Which training images are worth keeping in RAM."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lucid_yolo.data.cache import CacheKind
from lucid_yolo.data.makers import AugmentDevice
from lucid_yolo.data.sources import PreparedSource
from lucid_yolo.data.train_source import is_read_once
from lucid_yolo.structures import ImageRecord


@pytest.fixture
def uncached(tmp_path: Path) -> PreparedSource:
    Image.fromarray(np.zeros((20, 30, 3), np.uint8)).save(tmp_path / "a.png")
    empty = np.zeros((0, 4)), np.zeros(0, np.int64), np.zeros(0, bool), np.zeros(0)
    return PreparedSource([ImageRecord(str(tmp_path / "a.png"), "a", 20, 30, *empty, 0)], 64)


@pytest.mark.parametrize(
    ("augment_device", "cache", "num_ranks", "expected"),
    [
        ("gpu", "none", 1, True),  # decoded straight to the device
        ("gpu", "ram", 1, True),
        ("gpu", "disk", 1, False),  # serves later runs
        ("gpu", "ram", 2, False),  # one decodes, both read
        ("cpu", "ram", 1, False),  # read in every epoch
    ],
)
def test_who_reads_once(
    uncached: PreparedSource, augment_device: AugmentDevice, cache: CacheKind, num_ranks: int, expected: bool
) -> None:
    assert is_read_once(uncached, torch.device("cpu"), augment_device, cache, num_ranks) is expected
