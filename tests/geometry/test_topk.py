import numpy as np
import pytest
import torch

from lucid_yolo.geometry.topk import rank_keys, split_keys, top_k


def stable_top_k(values: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    index = np.argsort(-values, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(values, index, -1), index


@pytest.mark.parametrize("k", [0, 1, 7, 499, 500])
@pytest.mark.parametrize("num_levels", [1, 2, 5, 10_000])
def test_equals_a_stable_sort(k: int, num_levels: int, rng: np.random.Generator) -> None:
    values = (rng.integers(0, num_levels, (3, 2, 500)) / num_levels).astype(np.float32)
    result, index = top_k(torch.from_numpy(values), k)
    expected, expected_index = stable_top_k(values, k)
    np.testing.assert_array_equal(index.numpy(), expected_index)
    np.testing.assert_array_equal(result.numpy(), expected)


def test_order_holds_over_the_whole_range_of_floats() -> None:
    tiny = np.finfo(np.float32)
    values = np.array([0, tiny.smallest_subnormal, tiny.tiny, 1e-20, 0.5, 0.5 + tiny.eps, 1, tiny.max, np.inf], "f4")
    result, index = top_k(torch.from_numpy(values), len(values))
    np.testing.assert_array_equal(result.numpy(), values[::-1])
    np.testing.assert_array_equal(index.numpy(), np.arange(len(values))[::-1])


def test_keys_are_unique_and_invert() -> None:
    values = torch.tensor([0.25, 0.0, 0.25, 0.0])
    keys = rank_keys(values)
    assert keys.unique().numel() == 4
    restored, index = split_keys(keys)
    assert torch.equal(restored, values)
    assert index.tolist() == [0, 1, 2, 3]


def test_more_than_there_are_is_refused() -> None:
    with pytest.raises(RuntimeError, match="out of range"):
        top_k(torch.zeros(3), 4)
