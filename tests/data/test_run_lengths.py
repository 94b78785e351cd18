import numpy as np
import pytest
from pycocotools import mask as oracle

from lucid_yolo.data.readers.run_lengths import bound_runs, decode_runs


def rectangle(height: int, width: int, x1: int, y1: int, x2: int, y2: int) -> np.ndarray:
    canvas = np.zeros((height, width), np.uint8)
    canvas[y1:y2, x1:x2] = 1
    return canvas


MASKS = [
    (np.random.default_rng(0).integers(0, 2, (37, 53), np.uint8), "noise"),
    (np.ones((5, 9), np.uint8), "full"),
    (np.zeros((5, 9), np.uint8), "empty"),
    (rectangle(300, 400, 100, 20, 350, 290), "rectangle"),
    (rectangle(300, 400, 0, 0, 1, 1), "first pixel"),
    (rectangle(300, 400, 399, 299, 400, 300), "last pixel"),
    (rectangle(300, 400, 7, 0, 9, 300), "whole columns"),
    (rectangle(7, 9, 2, 3, 5, 7) | rectangle(7, 9, 8, 0, 9, 1), "two parts that touch in the runs"),
]


@pytest.mark.parametrize(("mask", "why"), MASKS, ids=[row[1] for row in MASKS])
def test_box_equals_that_of_pycocotools(mask: np.ndarray, why: str) -> None:
    encoded = oracle.encode(np.asfortranarray(mask))
    runs = decode_runs(encoded["counts"].decode())
    flat = mask.T.ravel()
    assert np.array_equal(np.repeat(np.arange(len(runs)) % 2, runs), flat)
    ys, xs = np.nonzero(mask)
    expected = (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1) if xs.size else None
    assert bound_runs(runs, *mask.shape) == expected, why


@pytest.mark.parametrize("text", ["é", "\n", "P"])
def test_text_that_is_no_mask(text: str) -> None:
    with pytest.raises(ValueError, match="run lengths"):
        decode_runs(text)


@pytest.mark.parametrize("runs", [[3], [-1, 46], []])
def test_runs_of_another_size(runs: list[int]) -> None:
    with pytest.raises(ValueError, match="run lengths"):
        bound_runs(runs, 5, 9)
