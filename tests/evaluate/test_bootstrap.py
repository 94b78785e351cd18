"""Weights of images against evaluating the drawn images themselves."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from coco_cases import found, random_case, record

from lucid_yolo.evaluate import evaluate_boxes
from lucid_yolo.evaluate.bootstrap import Interval, draw_average_precision, draw_images
from lucid_yolo.structures import ClassMap


@pytest.mark.parametrize("seed", range(20))
def test_weights_equal_evaluating_the_drawn_images(seed: int) -> None:
    records, detections, class_map = random_case(seed)
    rng = np.random.default_rng(seed)
    # Distinct scores: of equal ones within an image, copies of the image would interleave.
    detections = [
        dataclasses.replace(d, score=rng.permutation(len(d.score)) / 997 + rng.random() / 1e4) for d in detections
    ]
    cap = (20, 300)[seed % 2]
    weights = draw_images(len(records), 8, seed)
    draws = draw_average_precision(records, detections, class_map, weights, cap)
    ordered = sorted(records, key=lambda r: r.image_id)
    by_id = {d.image_id: d for d in detections}
    for row, weight in enumerate(weights.tolist()):
        drawn = [
            (r, f"{r.image_id:04d} {copy}") for r, times in zip(ordered, weight, strict=True) for copy in range(times)
        ]
        copies = [dataclasses.replace(r, image_id=name) for r, name in drawn]
        found_copies = [
            dataclasses.replace(by_id[r.image_id], image_id=name) for r, name in drawn if r.image_id in by_id
        ]
        expected = evaluate_boxes(copies, found_copies, class_map, cap)
        per_class = [c.ap for c in expected.per_class]
        assert draws.ap[row] == pytest.approx(per_class, abs=1e-12, nan_ok=True)
        assert draws.ap50[row] == pytest.approx([c.ap50 for c in expected.per_class], abs=1e-12, nan_ok=True)
        assert draws.map[row] == pytest.approx(expected.map, abs=1e-12, nan_ok=True)
        assert draws.map50[row] == pytest.approx(expected.map50, abs=1e-12, nan_ok=True)


def test_draws_in_parts_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    case = random_case(3)
    weights = draw_images(len(case[0]), 30)
    whole = draw_average_precision(*case, weights)
    monkeypatch.setattr("lucid_yolo.evaluate.bootstrap.NUMBERS_AT_ONCE", 1000)
    parts = draw_average_precision(*case, weights)
    assert np.array_equal(whole.ap, parts.ap, equal_nan=True)


def test_draws_repeat_and_begin_with_the_images_as_they_are() -> None:
    first, second, other = draw_images(7, 5, 1), draw_images(7, 5, 1), draw_images(7, 5, 2)
    assert (first == second).all()
    assert (first != other).any()
    assert (first.sum(axis=1) == 7).all()
    assert (first[0] == 1).all()
    with pytest.raises(ValueError, match="at least 1 draw, found 0"):
        draw_images(7, 0)


def test_interval_covers_what_binomial_theory_says() -> None:
    # One object an image, found or not at all: AP is the share found at recall thresholds, about the recall itself.
    hit = [i % 4 != 0 for i in range(400)]
    records = [record(i, [[0, 0, 9, 9]], [0]) for i in range(400)]
    detections = [found(i, [[0, 0, 9, 9]], [1 - i / 1000], [0]) for i in range(400) if hit[i]]
    draws = draw_average_precision(records, detections, ClassMap.from_names(["a"]), draw_images(400, 1000))
    interval = Interval.of(float(draws.map[0]), draws.map[1:])
    half = 1.96 * math.sqrt(0.75 * 0.25 / 400)
    assert interval.value == pytest.approx(0.75, abs=0.01)
    assert interval.low == pytest.approx(0.75 - half, abs=0.012)
    assert interval.high == pytest.approx(0.75 + half, abs=0.012)


def test_interval_of_nothing() -> None:
    nan = float("nan")
    assert Interval.of(nan, np.array([1.0])).to_dict() == {"value": None, "low": None, "high": None}
    assert Interval.of(0.5, np.array([nan])).to_dict() == {"value": 0.5, "low": None, "high": None}
    draws = draw_average_precision([], [], ClassMap.from_names(["a"]), draw_images(0, 2))
    assert np.isnan(draws.map).all()
