"""Samples written into the one memory layout of a batch."""

from __future__ import annotations

from lucid_yolo.data.augment.apply import AugmentedSample
from lucid_yolo.structures import Batch


class BatchWriter:
    """NumPy views into a batch of blanks; slots that are never written stay blanks.

    Args:
        batch_size: Number of images ``B``.
        image_size_px: Side of the square images.
        capacity: Padded target count ``G``.
    """

    def __init__(self, batch_size: int, image_size_px: int, capacity: int) -> None:
        self.batch = Batch.allocate(batch_size, (image_size_px, image_size_px), capacity)
        targets = self.batch.targets
        # [B, H, W, 3]: every slot is contiguous, so that a sample can be made in place.
        self.images = self.batch.images.permute(0, 2, 3, 1).numpy()
        self.sample_index = self.batch.sample_index.numpy()
        self._boxes, self._labels = targets.boxes_xyxy_px.numpy(), targets.labels.numpy()
        self._is_ignored, self._is_padded = targets.is_ignored.numpy(), targets.is_padded.numpy()

    def write(self, slot: int, sample: AugmentedSample) -> None:
        """Put a sample into its slot; its image may be the slot's own memory.

        Args:
            slot: Position in the batch, [0, B).
            sample: At most as many targets as the batch has room for.
        """
        num_rows, capacity = len(sample.labels), self.batch.capacity
        assert num_rows <= capacity, f"sample {sample.sample_index} has {num_rows} targets, planned for {capacity}"
        if sample.image.ctypes.data != self.images[slot].ctypes.data:
            self.images[slot] = sample.image
        self.sample_index[slot] = sample.sample_index
        self._boxes[slot, :num_rows] = sample.boxes_xyxy_px
        self._labels[slot, :num_rows] = sample.labels
        self._is_ignored[slot, :num_rows] = sample.is_ignored
        self._is_padded[slot, :num_rows] = False
