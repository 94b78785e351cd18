"""The whole tables of precision and recall equal those of pycocotools, bit for bit, on cases of some size."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from coco_cases import found, oracle, random_boxes, random_case, record

from lucid_yolo.evaluate import ImageDetections
from lucid_yolo.evaluate.coco import _found_table, _truth_table, pair_by_image
from lucid_yolo.evaluate.matching import PAIRS_AT_ONCE, stable_argsort
from lucid_yolo.evaluate.precision_recall import PrecisionRecall, _falling, precision_recall
from lucid_yolo.structures import ClassMap, ImageRecord

Case = tuple[list[ImageRecord], list[ImageDetections], ClassMap]


def tables(case: Case, caps: list[int]) -> PrecisionRecall:
    records, detections, class_map = case
    pairs = pair_by_image(records, detections, len(class_map))
    truths, is_crowd = _truth_table([p[0] for p in pairs])
    boxes, score = _found_table([p[1] for p in pairs])
    return precision_recall(truths, is_crowd, boxes, score, len(class_map), caps)


def without_inverted_sides(detections: list[ImageDetections]) -> list[ImageDetections]:
    def clamp(boxes: np.ndarray) -> np.ndarray:
        return np.concatenate([boxes[:, :2], np.maximum(boxes[:, 2:], boxes[:, :2])], axis=1)

    return [dataclasses.replace(d, boxes_xyxy_src=clamp(d.boxes_xyxy_src)) for d in detections]


def assert_equals_oracle(case: Case, caps: list[int]) -> None:
    ours = tables(case, caps)
    expected = oracle(case[0], without_inverted_sides(case[1]), case[2], caps).eval
    assert np.array_equal(ours.precision, expected["precision"][..., -1].transpose(2, 0, 1, 3))
    assert np.array_equal(ours.recall, expected["recall"].transpose(1, 0, 2, 3))


def large_case(seed: int, num_images: int, num_classes: int, num_objects: int, num_found: int) -> Case:
    """Detections around objects, some on a grid (IoU ties), rounded scores, zero-area and inverted boxes, crowds."""
    rng = np.random.default_rng(seed)
    records, detections = [], []
    for image_id in range(num_images):
        on_grid = image_id % 2 == 0
        boxes, labels = random_boxes(rng, num_objects, on_grid), rng.integers(0, num_classes, num_objects)
        boxes[: num_objects // 4] = boxes[num_objects // 4 : 2 * (num_objects // 4)]  # the same object twice
        boxes[-1, 2:] = boxes[-1, :2]
        records.append(record(image_id, boxes, labels, rng.random(num_objects) < 0.1))
        source = rng.integers(0, num_objects, num_found)
        near = boxes[source] + (
            rng.integers(-2, 3, (num_found, 4)) * 4 if on_grid else rng.normal(0, 4, (num_found, 4))
        )
        near[::17, 2:] = near[::17, :2]
        near[::19] = near[::19, [2, 3, 0, 1]]
        label = np.where(rng.random(num_found) < 0.9, labels[source], rng.integers(0, num_classes, num_found))
        detections.append(found(image_id, near, rng.random(num_found).round(2), label))
    return records, detections, ClassMap.from_names([f"c{i}" for i in range(num_classes)])


@pytest.mark.parametrize(
    ("sizes", "caps", "reason"),
    [
        ((3, 1, 30, 420), [1, 10, 300], "more detections of a class in an image than are used"),
        ((4, 60, 80, 600), [1, 10, 100], "many classes, most of them in few images"),
        ((12, 3, 20, 90), [1, 10, 40], "many images"),
        ((6, 2, 8, 60), [1], "one cap"),
    ],
)
def test_equals_pycocotools(sizes: tuple[int, int, int, int], caps: list[int], reason: str) -> None:
    case = large_case(0, *sizes)
    boxes = np.concatenate([d.boxes_xyxy_src for d in case[1]])
    scores = np.concatenate([d.score for d in case[1]])
    assert (boxes[:, 2] < boxes[:, 0]).any()
    assert (boxes[:, 2] == boxes[:, 0]).any()
    assert len(np.unique(scores)) < len(scores)
    assert_equals_oracle(case, caps)


@pytest.mark.parametrize("block", range(4))
def test_small_cases_equal_pycocotools(block: int) -> None:
    for seed in range(1000 + block, 1100, 4):
        assert_equals_oracle(random_case(seed), [1, 3, 7])


def test_pairs_are_compared_in_blocks() -> None:
    """Enough pairs for several blocks, and one detection with more than fit into one."""
    num_objects = PAIRS_AT_ONCE + 5
    boxes = np.tile([0.0, 0.0, 10.0, 10.0], (num_objects, 1))
    boxes[5:] += 20.0
    detections = [found(0, boxes[:3], [0.5, 0.6, 0.7], [0, 0, 0]), found(1, boxes[:2], [0.1, 0.2], [0, 0])]
    case = ([record(0, boxes[:1], [0]), record(1, boxes, np.zeros(num_objects))], detections, ClassMap.from_names("a"))
    ours = tables(case, [1, 10, 300])
    assert ours.recall[0, :, 0, -1].tolist() == pytest.approx([3 / (num_objects + 1)] * 10, rel=1e-15)


def test_equal_boxes_are_taken_once_each() -> None:
    boxes = np.tile([0.0, 0.0, 40.0, 40.0], (4, 1))
    case = (
        [record(0, boxes[:3], [0, 0, 0])],
        [found(0, boxes, [0.9] * 4, [0] * 4)],
        ClassMap.from_names("a"),
    )
    assert_equals_oracle(case, [1, 10, 300])
    assert tables(case, [1, 10, 300]).recall[0, :, 0, :].tolist() == [[1 / 3, 1.0, 1.0]] * 10


@pytest.mark.parametrize(
    ("largest", "reason"),
    [
        (0, "all equal"),
        (9, "many equal"),
        (1 << 16, "more than one digit"),
        (1 << 40, "three digits"),
        ((1 << 63) - 1, "all digits"),
    ],
)
@pytest.mark.parametrize("num", [0, 1, 5000])
def test_order_of_integers_is_that_of_a_stable_sort(
    largest: int, reason: str, num: int, rng: np.random.Generator
) -> None:
    keys = rng.integers(0, largest, num, endpoint=True)
    keys[::3] &= ~0xFFFF  # one digit is equal in many
    assert stable_argsort(keys).tolist() == np.argsort(keys, kind="stable").tolist()


@pytest.mark.parametrize("decimals", [0, 2, 17])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_order_of_scores_is_that_of_a_stable_sort(decimals: int, dtype: type, rng: np.random.Generator) -> None:
    score = rng.normal(size=5000).round(decimals).astype(dtype).astype(np.float64)
    score[:4] = [0.0, -0.0, 5e-324, -5e-324]
    score[-4:] = [-0.0, 0.0, 1e300, -1e300]
    assert stable_argsort(_falling(score)).tolist() == np.argsort(-score, kind="stable").tolist()
