"""Drawing a batch of training images from their plans, in one pass over the output.

Every output pixel is gathered from at most four source images a layer, with the joins, colour changes, the scaling to
[0, 1] and the channels-last layout on the way; nothing of an image's size is written in between. Same bytes as the
plain form, and as OpenCV 5 on a processor with fused multiply-add. Measured: ``docs/log.md``.
"""

from __future__ import annotations

from functools import cache

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from lucid_yolo.kernels.assignment import Implementation
from lucid_yolo.kernels.augment.planned_batch import PlannedBatch as PlannedBatch
from lucid_yolo.kernels.augment.reference import draw_images_reference, hsv_divisors
from lucid_yolo.kernels.needs import missing_for_kernel


def draw_images(
    batch: PlannedBatch, pixels: UInt8[Tensor, " num_values"], implementation: Implementation = "auto"
) -> Float[Tensor, "B 3 S S"]:
    """Draw the images of a batch.

    Args:
        batch: The plans, on a device.
        pixels: Source pixels there, ``[height, width, 3]`` RGB each, that the plans point into.
        implementation: ``auto`` takes the kernel where it can run.

    Returns:
        RGB in [0, 1], float32, channels-last memory.

    Raises:
        ValueError: The kernel was asked for where it cannot run.

    Note:
        Graph-safe.
    """
    missing = missing_for_kernel(pixels.device)
    if implementation == "kernel" and missing:
        raise ValueError(f"augmentation kernel: {missing}")
    divisors = _divisors(pixels.device)
    if implementation == "reference" or missing:
        return draw_images_reference(batch, pixels, divisors)
    from lucid_yolo.kernels.augment.kernel import draw_images_kernel

    return draw_images_kernel(batch, pixels, divisors)


@cache
def _divisors(device: torch.device) -> Tensor:
    return hsv_divisors().to(device)
