"""Which training images are worth keeping in RAM, and which go to the device."""

from __future__ import annotations

import pytest
import torch

from augment_cases import POLICIES, Pictures, make_records
from lucid_yolo.data.cache import CacheKind
from lucid_yolo.data.device_pixels import ResidentPixels, StagedPixels, StreamedPixels
from lucid_yolo.data.train_source import is_read_once, open_train_source


@pytest.mark.parametrize(
    ("is_resident", "cache", "num_ranks", "expected"),
    [
        (True, "none", 1, True),  # decoded straight to the device
        (True, "ram", 1, True),
        (True, "disk", 1, False),  # serves later runs
        (True, "ram", 2, False),  # one decodes, both read
        (False, "ram", 1, False),  # read in every epoch
    ],
)
def test_who_reads_once(is_resident: bool, cache: CacheKind, num_ranks: int, expected: bool) -> None:
    assert is_read_once(is_resident, cache, num_ranks) is expected


class NotKept(Pictures):
    kept = None


@pytest.mark.parametrize(
    ("is_resident", "pictures", "kind", "is_light"),
    [
        (None, Pictures, ResidentPixels, True),
        (True, NotKept, ResidentPixels, True),
        (False, Pictures, StagedPixels, True),
        (False, NotKept, StreamedPixels, False),
    ],
)
def test_where_source_images_lie(
    is_resident: bool | None, pictures: type[Pictures], kind: type, is_light: bool
) -> None:
    records = make_records()
    policy, cpu = POLICIES["default"], torch.device("cpu")
    source = open_train_source(records, pictures(records), policy, cpu, "gpu", is_resident=is_resident)
    assert type(source.pixels) is kind
    assert source.has_light_workers == is_light
    assert not open_train_source(records, pictures(records), policy, cpu).has_light_workers
