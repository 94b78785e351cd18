import numpy as np
import pytest

from lucid_yolo.data.sampling import epoch_order, sampling_weights
from lucid_yolo.structures import ImageRecord


def record(labels: list[int], ignored: list[bool] | None = None) -> ImageRecord:
    count = len(labels)
    flags = np.array(ignored if ignored is not None else [False] * count, bool)
    return ImageRecord("a", 0, 8, 8, np.zeros((count, 4)), np.array(labels, np.int64), flags, np.zeros(count), count)


# 100 images: 90 with class 0 only, 8 with classes 0 and 1, 1 with class 2, 1 empty.
LONG_TAIL = [record([0, 0])] * 90 + [record([1, 0])] * 8 + [record([2])] + [record([])]


def test_uniform_shows_every_image_once() -> None:
    assert sampling_weights(LONG_TAIL, "uniform") is None
    order = epoch_order(3, 1, 100, None)
    assert sorted(order.order) == list(range(100))
    assert list(order.pool) == list(range(100))
    assert not order.earlier_uses.any()


def test_repeat_factor_is_the_formula() -> None:
    weights = sampling_weights(LONG_TAIL, "repeat_factor", 0.16)
    assert weights is not None
    fractions = {0: 98 / 100, 1: 8 / 100, 2: 1 / 100}
    factor = {label: max(1.0, (0.16 / fraction) ** 0.5) for label, fraction in fractions.items()}
    expected = [max((factor[label] for label in record.labels.tolist()), default=1.0) for record in LONG_TAIL]
    np.testing.assert_allclose(weights, expected)
    assert weights[98] == 4


def test_balanced_gives_every_class_and_the_background_the_same_share() -> None:
    weights = sampling_weights(LONG_TAIL, "balanced")
    assert weights is not None
    assert weights.sum() == pytest.approx(4)
    assert weights[98] == pytest.approx(1)
    assert weights[99] == pytest.approx(1)
    assert weights[:98].sum() == pytest.approx(2)
    assert weights[90] - weights[0] == pytest.approx(1 / 8)


def test_ignore_regions_hold_no_class() -> None:
    records = [record([0]), record([1], [True]), record([0])]
    np.testing.assert_allclose(sampling_weights(records, "balanced"), [0.5, 1, 0.5])


def test_labels_missing_in_between_and_sets_without_objects() -> None:
    np.testing.assert_allclose(sampling_weights([record([0]), record([5])], "balanced"), [1, 1])
    for rule in ("balanced", "repeat_factor"):
        weights = sampling_weights([record([]), record([])], rule)
        assert weights is not None
        assert weights[0] == weights[1] > 0


def test_counts_are_the_expectation_rounded_either_way() -> None:
    weights = np.random.default_rng(0).uniform(0.1, 5, 200)
    expected = weights / weights.sum() * 200
    total = np.zeros(200)
    for epoch in range(100):
        order = epoch_order(0, epoch, 200, weights)
        counts = np.bincount(order.order, minlength=200)
        assert counts.sum() == 200
        assert (counts >= np.floor(expected - 1e-9)).all()
        assert (counts <= np.ceil(expected + 1e-9)).all()
        assert sorted(order.order) == list(order.pool)
        total += counts
    np.testing.assert_allclose(total / 100, expected, atol=0.25)


def test_uses_are_numbered_in_order() -> None:
    order = epoch_order(7, 2, 50, np.where(np.arange(50) < 5, 20.0, 1.0))
    seen: dict[int, int] = {}
    for sample, earlier, uses in zip(order.order.tolist(), order.earlier_uses, order.num_uses, strict=True):
        assert earlier == seen.get(sample, 0)
        seen[sample] = seen.get(sample, 0) + 1
        assert uses == (order.order == sample).sum()
    assert max(seen.values()) > 2


def test_a_pure_function_of_seed_and_epoch() -> None:
    weights = np.arange(1.0, 31)
    first = epoch_order(0, 0, 30, weights).order
    np.testing.assert_array_equal(first, epoch_order(0, 0, 30, weights).order)
    assert not np.array_equal(first, epoch_order(1, 0, 30, weights).order)
    assert not np.array_equal(first, epoch_order(0, 1, 30, weights).order)
