from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from coco_cases import found, oracle, random_case, record

from lucid_yolo.evaluate import confidence_curves
from lucid_yolo.structures import ClassMap

IOU_50, AREA_ALL = 0, [0, 1e10]


def brute_force_counts(case: Any, confidence: float, cap: int, label: int) -> tuple[int, int, int]:
    """Return (hits, false positives, objects) of pycocotools on the detections that pass the threshold."""
    records, detections, class_map = case
    kept = []
    for d in detections:
        rows = d.score >= confidence
        kept.append(
            dataclasses.replace(d, boxes_xyxy_src=d.boxes_xyxy_src[rows], score=d.score[rows], label=d.label[rows])
        )
    images = [
        e
        for e in oracle(records, kept, class_map, [1, 10, cap]).evalImgs
        if e and e["category_id"] == class_map.source_ids[label] and e["aRng"] == AREA_ALL
    ]
    hits = sum(int(((e["dtMatches"] > 0) & ~e["dtIgnore"])[IOU_50].sum()) for e in images)
    wrong = sum(int(((e["dtMatches"] == 0) & ~e["dtIgnore"])[IOU_50].sum()) for e in images)
    return hits, wrong, sum(int((np.asarray(e["gtIgnore"]) == 0).sum()) for e in images)


@pytest.mark.parametrize("seed", range(24))
def test_equals_matching_again_at_each_threshold(seed: int) -> None:
    case = random_case(seed)
    cap = (20, 300)[seed % 2]
    curves = confidence_curves(*case, max_detections=cap, num_points=11)
    for point in (0, 3, 7, 10):
        for label in range(len(case[2])):
            hits, wrong, objects = brute_force_counts(case, curves.confidence[point], cap, label)
            if not objects:
                assert np.isnan(curves.precision[label, point])
                assert np.isnan(curves.recall[label, point])
                assert np.isnan(curves.f1[label, point])
                continue
            precision = hits / (hits + wrong) if hits + wrong else np.nan
            assert curves.precision[label, point] == pytest.approx(precision, nan_ok=True)
            assert curves.recall[label, point] == pytest.approx(hits / objects)
            assert curves.f1[label, point] == pytest.approx(2 * hits / (hits + wrong + objects))


def test_best_confidence_is_the_lowest_of_the_best() -> None:
    truth = [record(1, [[0, 0, 9, 9], [50, 50, 60, 60]], [0, 0])]
    boxes = [[0, 0, 9, 9], [50, 50, 60, 60], [90, 90, 99, 99]]
    curves = confidence_curves(truth, [found(1, boxes, [0.9, 0.7, 0.2055], [0, 0, 0])], ClassMap.from_names(["a"]))
    assert curves.best_confidence == pytest.approx(0.206)
    assert curves.mean_f1.max() == 1.0


def test_means_leave_out_classes_without_objects() -> None:
    curves = confidence_curves(
        [record(1, [[0, 0, 9, 9]], [0])], [found(1, [[0, 0, 9, 9]], [0.5], [0])], ClassMap.from_names(["a", "b"])
    )
    assert curves.mean_recall[0] == 1.0
    assert curves.mean_precision[0] == 1.0
    assert np.isnan(curves.mean_precision[-1])
    assert curves.mean_f1[-1] == 0.0


def test_nothing_at_all() -> None:
    assert np.isnan(confidence_curves([], [], ClassMap.from_names(["a"])).best_confidence)
