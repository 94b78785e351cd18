"""Counter-based random numbers: every draw is a pure function of the seed, the epoch and the sample.

A sample's uniforms come in rows of eight, one row per transform. A new transform takes the next row, a new purpose the
next stream; neither moves a number of another.
"""

from __future__ import annotations

import numpy as np

MOSAIC, AFFINE, FLIP, COLOR, MIX, CUT, PASTE = range(7)
NUM_TRANSFORMS, DRAWS_PER_TRANSFORM = 7, 8

# Last counter word of the generator: what the stream is for.
SAMPLE_STREAM, ORDER_STREAM, MIX_STREAM, CUT_STREAM, SHARE_STREAM, RESAMPLE_STREAM = range(6)
PASTE_STREAM, OBJECT_STREAM = 6, 7

# The 32nd smallest of 63 uniforms is distributed as Beta(32, 32).
_SHARE_RANK, _SHARE_DRAWS = 31, 63


def sample_draws(
    seed: int, epoch: int, sample_index: int, visit: int = 0, stream: int = SAMPLE_STREAM
) -> list[list[float]]:
    """Return the uniforms in [0, 1) of one sample, a row of eight per transform.

    Args:
        seed: Seed of the run.
        epoch: Epoch, at least 0.
        sample_index: Position in the split.
        visit: Earlier uses of the sample in the same epoch.
        stream: ``SAMPLE_STREAM``, or the stream of one of the sample's partners.
    """
    count = NUM_TRANSFORMS * DRAWS_PER_TRANSFORM
    uniforms = _uniforms(seed, epoch, sample_index, visit, stream, count)
    rows: list[list[float]] = uniforms.reshape(NUM_TRANSFORMS, -1).tolist()
    return rows


def mix_share(seed: int, epoch: int, sample_index: int, visit: int = 0) -> float:
    """Return the share in (0, 1) that a sample keeps when it is mixed up: Beta(32, 32), exact, without a rejection.

    Args:
        seed: Seed of the run.
        epoch: Epoch, at least 0.
        sample_index: Position in the split.
        visit: Earlier uses of the sample in the same epoch.
    """
    return float(np.sort(_uniforms(seed, epoch, sample_index, visit, SHARE_STREAM, _SHARE_DRAWS))[_SHARE_RANK])


def object_draws(seed: int, epoch: int, sample_index: int, visit: int, count: int) -> np.ndarray:
    """Return ``[count]`` uniforms in [0, 1), one for each object that a sample may paste.

    Args:
        seed: Seed of the run.
        epoch: Epoch, at least 0.
        sample_index: Position in the split.
        visit: Earlier uses of the sample in the same epoch.
        count: Number of objects.
    """
    return _uniforms(seed, epoch, sample_index, visit, OBJECT_STREAM, count)


def epoch_keys(seed: int, epoch: int, count: int, stream: int = ORDER_STREAM) -> np.ndarray:
    """Return ``[count]`` random uint64 keys of an epoch; sorting by them shuffles."""
    return generator(seed, epoch, 0, 0, stream).random_raw(count)


def generator(seed: int, epoch: int, sample_index: int, visit: int, stream: int) -> np.random.Philox:
    """Return the generator of one purpose, at its start."""
    key, counter = np.array([seed, epoch], np.uint64), np.array([0, visit, sample_index, stream], np.uint64)
    return np.random.Philox(key=key, counter=counter)


def _uniforms(seed: int, epoch: int, sample_index: int, visit: int, stream: int, count: int) -> np.ndarray:
    raw = generator(seed, epoch, sample_index, visit, stream).random_raw(count)
    uniforms: np.ndarray = (raw >> np.uint64(11)) * 2.0**-53
    return uniforms
