from __future__ import annotations

import numpy as np
import pytest
from coco_cases import found, random_case, record

from lucid_yolo.evaluate.confusion import NO_OBJECT, ON_IGNORED, confusion_matrix, match_images, most_confused
from lucid_yolo.structures import ClassMap

CLASSES = ClassMap.from_names(["cat", "dog", "cow"])
BOX, FAR, CROWD = [0, 0, 10, 10], [50, 50, 60, 60], [100, 100, 200, 200]


def test_a_case_by_hand() -> None:
    truth = [record(1, [BOX, FAR, CROWD], [0, 1, 2], ignored=[False, False, True]), record(2, [BOX], [2])]
    detections = [
        found(
            1,
            # right; the same object again, less exactly; a dog taken for a cow; inside the crowd; too uncertain
            [BOX, [0, 0, 10, 9], [50, 50, 60, 59], [110, 110, 120, 120], FAR],
            [0.6, 0.9, 0.8, 0.7, 0.24],
            [0, 1, 2, 2, 1],
        ),
        found(2, [[20, 20, 30, 30]], [0.9], [0]),
    ]
    first, second = matches = match_images(truth, detections, CLASSES)
    assert first.score.tolist() == [0.9, 0.8, 0.7, 0.6]
    assert first.matched.tolist() == [NO_OBJECT, 1, ON_IGNORED, 0]
    assert first.is_right.tolist() == [False, False, False, True]
    assert first.is_missed.tolist() == [False, False, False]
    assert (first.num_wrong, second.num_wrong) == (2, 1)
    assert (first.f1, second.f1) == (2 * 1 / (3 + 2), 0.0)
    counts = confusion_matrix(matches, 3)
    assert counts.tolist() == [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [1, 1, 0, 0]]
    assert most_confused(counts) == [(1, 2, 1)]


def test_the_closest_pair_is_matched_first_and_the_more_certain_of_equals() -> None:
    truth = [record(1, [[0, 0, 10, 10], [0, 4, 10, 14]], [0, 0])]
    detections = [found(1, [[0, 3, 10, 13], [0, 0, 10, 10], [0, 0, 10, 10]], [0.9, 0.5, 0.6], [0, 0, 1])]
    (match,) = match_images(truth, detections, CLASSES)
    assert match.label.tolist() == [0, 1, 0]
    assert match.matched.tolist() == [1, 0, NO_OBJECT]


@pytest.mark.parametrize("seed", range(12))
def test_every_object_and_detection_is_counted_once(seed: int) -> None:
    records, detections, class_map = random_case(seed)
    matches = match_images(records, detections, class_map, confidence=0.3)
    counts = confusion_matrix(matches, len(class_map))
    labels = np.concatenate([r.labels[~r.is_ignored] for r in records])
    assert counts[:-1].sum(axis=1).tolist() == np.bincount(labels, minlength=len(class_map)).tolist()
    num_found = sum(int((d.score >= 0.3).sum()) for d in detections)
    num_ignored = sum(int((m.matched == ON_IGNORED).sum()) for m in matches)
    assert counts[:, :-1].sum() == num_found - num_ignored
    right, counted = int(counts[:-1, :-1].trace()), int(counts[:, :-1].sum() + counts[:-1].sum())
    assert sum(int(m.is_right.sum()) for m in matches) == right
    means = [m.f1 * (len(m.label) - (m.matched == ON_IGNORED).sum() + (~m.record.is_ignored).sum()) for m in matches]
    assert sum(means) == pytest.approx(2 * right)
    assert counted >= 2 * right
    for match in matches:
        used = match.matched[match.matched >= 0]
        assert len(set(used.tolist())) == len(used)


def test_nothing_at_all() -> None:
    (match,) = match_images([record(1, [], [])], [], CLASSES)
    assert (match.f1, match.num_wrong) == (1.0, 0)
    assert confusion_matrix([match], 3).sum() == 0
