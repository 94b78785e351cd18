"""Which images an epoch shows, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from lucid_yolo.data.draws import RESAMPLE_STREAM, epoch_keys
from lucid_yolo.structures import ImageRecord

Sampling = Literal["uniform", "balanced", "repeat_factor"]


@dataclass(frozen=True, slots=True)
class EpochOrder:
    """The images of one epoch.

    Attributes:
        pool: ``[n]`` positions in the split, sorted; joined images are drawn from it.
        order: The same positions shuffled: the order of the samples.
        earlier_uses: Uses of the same image before each place of ``order``.
        num_uses: Uses of the image at each place of ``order`` in the whole epoch.
    """

    pool: np.ndarray
    order: np.ndarray
    earlier_uses: np.ndarray
    num_uses: np.ndarray


def epoch_order(seed: int, epoch: int, num_images: int, weights: np.ndarray | None) -> EpochOrder:
    """Choose and shuffle the images of an epoch, which always has as many samples as the split has images.

    Args:
        seed: Seed of the run.
        epoch: Epoch, at least 0.
        num_images: Images of the split.
        weights: ``[num_images]`` relative frequencies; None shows every image once. An image expected ``x`` times is
            shown ``floor(x)`` or ``ceil(x)`` times.
    """
    shuffled = np.argsort(epoch_keys(seed, epoch, num_images), kind="stable")
    if weights is None:
        once = np.ones(num_images, np.int64)
        return EpochOrder(np.arange(num_images), shuffled, once - 1, once)
    pool = _resample(seed, epoch, weights)
    order = pool[shuffled]
    counts = np.bincount(pool, minlength=num_images)
    # Sorted by image, the places of one image are neighbours and keep their order.
    grouped = np.argsort(order, kind="stable")
    earlier = np.empty(num_images, np.int64)
    earlier[grouped] = np.arange(num_images) - np.searchsorted(order[grouped], order[grouped])
    return EpochOrder(pool, order, earlier, counts[order])


def _resample(seed: int, epoch: int, weights: np.ndarray) -> np.ndarray:
    """Systematic sampling along a shuffled line, so that neighbours in the split are drawn independently."""
    num_images = len(weights)
    keys = epoch_keys(seed, epoch, num_images + 1, RESAMPLE_STREAM)
    line = np.argsort(keys[:-1], kind="stable")
    ends = np.cumsum(weights[line])
    start = float(keys[-1] >> np.uint64(11)) * 2.0**-53
    places = (np.arange(num_images) + start) * (ends[-1] / num_images)
    chosen = np.minimum(np.searchsorted(ends, places, side="right"), num_images - 1)
    return np.sort(line[chosen])


def sampling_weights(
    records: Sequence[ImageRecord], sampling: Sampling, repeat_threshold: float = 0.001
) -> np.ndarray | None:
    """Return how often each image is shown, relative to the others; None when all are shown once.

    ``balanced`` draws a class, then one of its images; images without objects are one class more. ``repeat_factor``
    gives an image the largest ``max(1, sqrt(threshold / f))`` of its classes, ``f`` being the fraction of images that
    hold the class.

    Args:
        records: Images of the split.
        sampling: ``"uniform"``, ``"balanced"`` or ``"repeat_factor"``.
        repeat_threshold: Fraction of images below which a class is repeated, (0, 1].

    Raises:
        ValueError: An unknown rule or a threshold out of range.

    Source:
        Gupta et al., "LVIS", 2019, appendix B.2 (repeat factor); own (balanced).
    """
    if sampling not in get_args(Sampling):
        raise ValueError(f"sampling: expected one of {', '.join(get_args(Sampling))}, found {sampling!r}")
    if not 0 < repeat_threshold <= 1:
        raise ValueError(f"repeat_threshold: expected a fraction in (0, 1], found {repeat_threshold}")
    if sampling == "uniform":
        return None
    contained = [np.unique(record.labels[~record.is_ignored]) for record in records]
    num_classes = max((int(labels[-1]) + 1 for labels in contained if len(labels)), default=0)
    images_per_class = np.bincount(np.concatenate(contained), minlength=num_classes)
    if sampling == "balanced":
        num_empty = sum(not len(labels) for labels in contained)
        shares = [(1 / images_per_class[labels]).sum() if len(labels) else 1 / num_empty for labels in contained]
        return np.array(shares)
    fraction = np.maximum(images_per_class, 1) / len(records)
    factor = np.maximum(1, np.sqrt(repeat_threshold / fraction))
    return np.array([factor[labels].max(initial=1.0) for labels in contained])
