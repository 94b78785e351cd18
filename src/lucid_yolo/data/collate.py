"""Samples written into the one memory layout of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lucid_yolo.data.augment.apply import AugmentedSample
from lucid_yolo.structures import Batch


def collate(samples: Sequence[AugmentedSample], batch_size: int, image_size_px: int, capacity: int) -> Batch:
    """Fill a batch; slots beyond the samples stay blanks.

    Args:
        samples: At most ``batch_size`` samples.
        batch_size: Number of images ``B``.
        image_size_px: Side of the square images.
        capacity: Padded target count ``G``.
    """
    assert len(samples) <= batch_size
    batch = Batch.allocate(batch_size, (image_size_px, image_size_px), capacity)
    targets, images = batch.targets, batch.images.permute(0, 2, 3, 1)
    for slot, sample in enumerate(samples):
        num_rows = len(sample.labels)
        assert num_rows <= capacity, f"sample {sample.sample_index} has {num_rows} targets, planned for {capacity}"
        images[slot] = torch.from_numpy(sample.image)
        batch.sample_index[slot] = sample.sample_index
        targets.boxes_xyxy_px[slot, :num_rows] = torch.from_numpy(sample.boxes_xyxy_px)
        targets.labels[slot, :num_rows] = torch.from_numpy(sample.labels)
        targets.is_ignored[slot, :num_rows] = torch.from_numpy(sample.is_ignored)
        targets.is_padded[slot, :num_rows] = False
    return batch
