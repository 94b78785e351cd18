from __future__ import annotations

import dataclasses
import json
import logging
import math

import numpy as np
import pytest
from coco_cases import found, oracle, random_case, record

from lucid_yolo.evaluate import ImageDetections, evaluate_boxes
from lucid_yolo.structures import ClassMap

NUM_CASES = 200
SCALARS_OF_AREA = {1: "small", 2: "medium", 3: "large"}


def mean(values: np.ndarray) -> float:
    return float(values[values > -1].mean()) if (values > -1).any() else math.nan


def expected_numbers(arrays: dict[str, np.ndarray], class_index: int | None = None) -> dict[str, float]:
    pick = slice(None) if class_index is None else [class_index]
    precision, recall = arrays["precision"][:, :, pick], arrays["recall"][:, pick]
    numbers = {
        "map": mean(precision[..., 0, -1]),
        "map50": mean(precision[0, ..., 0, -1]),
        "map75": mean(precision[5, ..., 0, -1]),
        "ar_1": mean(recall[..., 0, 0]),
        "ar_10": mean(recall[..., 0, 1]),
        "ar_max": mean(recall[..., 0, 2]),
    }
    for area, name in SCALARS_OF_AREA.items():
        numbers[f"map_{name}"] = mean(precision[..., area, -1])
        numbers[f"ar_{name}"] = mean(recall[..., area, -1])
    return numbers


@pytest.mark.parametrize("block", range(10))
def test_equals_pycocotools(block: int) -> None:
    for seed in range(block, NUM_CASES, 10):
        case = random_case(seed)
        cap = (20, 300)[seed % 2]
        metrics = evaluate_boxes(*case, max_detections=cap)
        arrays = oracle(*case, [1, 10, cap]).eval
        assert metrics.scalars() == pytest.approx(expected_numbers(arrays), abs=1e-12, rel=0, nan_ok=True), seed
        for row in metrics.per_class:
            expected = expected_numbers(arrays, row.label)
            assert (row.ap, row.ap50) == pytest.approx(
                (expected["map"], expected["map50"]), abs=1e-12, rel=0, nan_ok=True
            )


def test_cases_cover_what_they_claim() -> None:
    cases = [random_case(seed) for seed in range(NUM_CASES)]
    records = [r for c in cases for r in c[0]]
    detections = [d for c in cases for d in c[1]]
    assert any(r.is_ignored.any() for r in records)
    assert any(len(r.labels) == 0 for r in records)
    assert any(len(c[1]) < len(c[0]) for c in cases)
    assert any(len(np.unique(d.score)) < len(d.score) for d in detections)
    assert any(np.bincount(d.label).max() > 20 for d in detections if len(d.label))
    assert any(len({int(k) for r in c[0] for k in r.labels}) < len(c[2]) for c in cases)


def test_order_of_images_changes_nothing() -> None:
    for seed in range(20):
        records, detections, class_map = random_case(seed)
        forward = evaluate_boxes(records, detections, class_map)
        backward = evaluate_boxes(records[::-1], detections[::-1], class_map)
        assert json.dumps(forward.to_dict()) == json.dumps(backward.to_dict())


def test_string_ids_rank_like_text() -> None:
    records, detections, class_map = random_case(3)
    named = [dataclasses.replace(r, image_id=f"{r.image_id:04d}") for r in records]
    named_detections = [dataclasses.replace(d, image_id=f"{d.image_id:04d}") for d in detections]
    assert (
        evaluate_boxes(named, named_detections, class_map).to_dict()
        == evaluate_boxes(records, detections, class_map).to_dict()
    )


def test_undefined_is_nan_and_null_in_json() -> None:
    metrics = evaluate_boxes([record(1, [[0, 0, 50, 50]], [0])], [], ClassMap.from_names(["a", "b"]))
    assert metrics.map == 0.0
    assert math.isnan(metrics.map_small)
    assert math.isnan(metrics.per_class[1].ap)
    state = json.loads(json.dumps(metrics.to_dict(), allow_nan=False))
    assert state["map_small"] is None
    assert state["per_class"][1]["ap"] is None


def test_nothing_at_all() -> None:
    metrics = evaluate_boxes([], [], ClassMap.from_names(["a"]))
    assert math.isnan(metrics.map)
    assert (metrics.num_images, metrics.num_objects) == (0, 0)


def test_class_table_counts() -> None:
    records = [record("x", [[0, 0, 9, 9]] * 3, [1, 1, 0], [False, False, True]), record("y", [[0, 0, 9, 9]], [1])]
    table = evaluate_boxes(records, [], ClassMap(("cat", "chien à poil"), (7, 3))).per_class
    assert [(c.name, c.source_id, c.num_objects, c.num_images) for c in table] == [
        ("cat", 7, 0, 0),
        ("chien à poil", 3, 3, 2),
    ]


def test_inverted_box_is_a_false_positive() -> None:
    truth = [record(1, [[10, 10, 20, 20]], [0])]
    wrong = found(1, [[20, 20, 10, 10], [10, 10, 20, 20]], [0.9, 0.8], [0, 0])
    assert evaluate_boxes(truth, [wrong], ClassMap.from_names(["a"])).map50 == pytest.approx(0.5)


def test_warns_how_many_objects_the_cap_cuts(caplog: pytest.LogCaptureFixture) -> None:
    boxes = np.tile([0.0, 0.0, 9.0, 9.0], (7, 1))
    with caplog.at_level(logging.WARNING):
        metrics = evaluate_boxes(
            [record(1, boxes, np.zeros(7), np.arange(7) == 0)], [], ClassMap.from_names(["a"]), max_detections=4
        )
    assert metrics.num_cut_objects == 2
    assert "2 objects in 1 images" in caplog.text
    assert evaluate_boxes([record(1, boxes[:4], np.zeros(4))], [], ClassMap.from_names(["a"]), 4).num_cut_objects == 0


def test_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    evaluate_boxes(*random_case(1))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("detections", "message"),
    [
        ([found(2, [], [], [])], "1 others"),
        ([found(1, [], [], []), found(1, [], [], [])], "repeated"),
        ([found(1, [[0, 0, 1, 1]], [0.5], [1])], r"0\.\.0, found 1\.\.1"),
    ],
    ids=["unknown image", "image twice", "label out of range"],
)
def test_refuses(detections: list[ImageDetections], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate_boxes([record(1, [], [])], detections, ClassMap.from_names(["a"]))


@pytest.mark.parametrize(
    ("boxes", "score", "message"),
    [
        (np.zeros((2, 4)), np.zeros(1), r"expected shape \(1, 4\), found \(2, 4\)"),
        (np.zeros((1, 4)), np.array([np.nan]), "NaN"),
    ],
    ids=["lengths differ", "nan"],
)
def test_detections_are_checked(boxes: np.ndarray, score: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ImageDetections("a", boxes, score, np.zeros(len(score), dtype=np.int64))
