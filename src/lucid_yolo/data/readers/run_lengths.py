"""The two kinds of run-length masks in COCO JSON, as far as boxes need them.

Runs alternate between outside and inside, column by column from the upper left pixel. They are a list of numbers, or
text: each number in groups of five bits, lowest first, plus 48, bit 5 set while more follow, sign in bit 4 of the last;
from the fourth number on, the difference to the number two before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_OFFSET = 48


def decode_runs(text: str) -> list[int]:
    """Return the runs of a compressed mask.

    Raises:
        ValueError: The text ends within a number or has other characters.
    """
    runs: list[int] = []
    value, shift = 0, 0
    for character in text:
        bits = ord(character) - _OFFSET
        if not 0 <= bits < 64:
            raise ValueError(f"run lengths: expected characters '0' to 'o', found {character!r}")
        value |= (bits & 0x1F) << shift
        shift += 5
        if not bits & 0x20:
            if bits & 0x10:
                value -= 1 << shift
            runs.append(value + (runs[-2] if len(runs) > 2 else 0))
            value, shift = 0, 0
    if shift:
        raise ValueError("run lengths: the text ends within a number")
    return runs


def bound_runs(runs: Sequence[int], height: int, width: int) -> tuple[int, int, int, int] | None:
    """Return the corners around the pixels inside a mask; None if there are none.

    Args:
        runs: Lengths, outside first.
        height: Of the mask.
        width: Of the mask.

    Raises:
        ValueError: The runs are no mask of this size.
    """
    lengths = np.asarray(runs, np.int64)
    if lengths.ndim != 1 or (lengths < 0).any() or lengths.sum() != height * width:
        raise ValueError(f"run lengths: expected runs that sum to {height} x {width}, found {int(lengths.sum())}")
    stops = np.cumsum(lengths)
    starts, stops = (stops - lengths)[1::2], stops[1::2]
    is_there = stops > starts
    starts, last = starts[is_there], stops[is_there] - 1
    if not starts.size:
        return None
    is_whole = last // height > starts // height  # runs into the next column: reaches both ends
    top = 0 if is_whole.any() else int((starts % height).min())
    bottom = height if is_whole.any() else int((last % height).max()) + 1
    return int(starts.min()) // height, top, int(last.max()) // height + 1, bottom
