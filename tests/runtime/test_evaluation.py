"""Collected detections are, byte for byte, what mapping each image by itself gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lucid_yolo.data.dataset import DataSplit, open_split
from lucid_yolo.data.synthetic import draw_shapes
from lucid_yolo.decode.nms import MIN_SCORE
from lucid_yolo.evaluate import ImageDetections
from lucid_yolo.geometry.letterbox import letterbox
from lucid_yolo.runtime import evaluation
from lucid_yolo.runtime.evaluation import SplitEvaluator
from lucid_yolo.structures import Batch, Detections

SIZE, BATCH, NUM = 64, 4, 30


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> DataSplit:
    root = tmp_path_factory.mktemp("shapes") / "set"
    draw_shapes(root, num_train=1, num_val=10, image_size_px=50, object_px=(12, 40), seed=3)
    return open_split(root, "val")


def batches(split: DataSplit, seed: int = 0) -> list[tuple[Batch, dict[str, Detections]]]:
    """Every image of the split in its order, blanks in the last batch, one image without detections."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for start in range(0, len(split.records), BATCH):
        batch = Batch.allocate(BATCH, (SIZE, SIZE), 64)
        indices = list(range(start, min(start + BATCH, len(split.records))))
        batch.sample_index[: len(indices)] = torch.tensor(indices)
        found = {}
        for branch in ("one_to_many", "one_to_one"):
            score = torch.rand(BATCH, NUM, generator=generator).sort(-1, descending=True).values
            score[:, NUM // 2 :] *= 2 * MIN_SCORE
            score[1 if start else 0] = 0
            boxes = torch.rand(BATCH, NUM, 4, generator=generator) * 90 - 10
            label = torch.randint(0, len(split.class_map), (BATCH, NUM), generator=generator)
            found[branch] = Detections(boxes, score, label, label)
        made.append((batch, found))
    return made


def one_by_one(split: DataSplit, branch: str) -> list[ImageDetections]:
    rows = []
    for batch, found in batches(split):
        for slot, index in enumerate(batch.sample_index.tolist()):
            if index < 0:
                continue
            record, score = split.records[index], found[branch].score[slot].numpy()
            kept = score >= MIN_SCORE
            box = letterbox(record.height_src, record.width_src, SIZE)
            boxes = box.boxes_to_src(found[branch].boxes_xyxy_px[slot].numpy()[kept].astype("float64"))
            rows.append(ImageDetections(record.image_id, boxes, score[kept], found[branch].label[slot].numpy()[kept]))
    return rows


def same_bytes(first: np.ndarray, second: np.ndarray) -> bool:
    return (first.dtype, first.shape, first.tobytes()) == (second.dtype, second.shape, second.tobytes())


@pytest.mark.parametrize("max_waiting", [1, 3 * BATCH * NUM, 1 << 22], ids=["each batch", "some", "all at the end"])
def test_equals_mapping_each_image_by_itself(
    split: DataSplit, max_waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "MAX_WAITING", max_waiting)
    evaluator = SplitEvaluator(split, SIZE)
    for batch, found in batches(split):
        evaluator.update(batch, found)
    for branch, rows in evaluator.detections.items():
        expected = one_by_one(split, branch)
        assert [r.image_id for r in rows] == [e.image_id for e in expected]
        assert any(len(e.score) == 0 for e in expected)
        assert any(0 < len(e.score) < NUM for e in expected)
        for row, e in zip(rows, expected, strict=True):
            for name in ("boxes_xyxy_src", "score", "label"):
                assert same_bytes(getattr(row, name), getattr(e, name)), name


def test_scores_what_it_is_given(split: DataSplit) -> None:
    """As after gathering the detections of several ranks."""
    whole, parts = SplitEvaluator(split, SIZE), [SplitEvaluator(split, SIZE) for _ in range(2)]
    for number, (batch, found) in enumerate(batches(split)):
        whole.update(batch, found)
        parts[number % 2].update(batch, found)
    gathered = {branch: [row for part in parts for row in part.detections[branch]] for branch in whole.detections}
    assert parts[0].compute(gathered).to_dict() == whole.compute().to_dict()


def test_only_blanks(split: DataSplit) -> None:
    evaluator = SplitEvaluator(split, SIZE)
    _, found = batches(split)[0]
    evaluator.update(Batch.allocate(BATCH, (SIZE, SIZE), 64), found)
    assert evaluator.detections == {"one_to_many": [], "one_to_one": []}


def test_a_reset_forgets(split: DataSplit) -> None:
    evaluator = SplitEvaluator(split, SIZE)
    for batch, found in batches(split)[:2]:
        evaluator.update(batch, found)
        evaluator.reset()
    assert evaluator.detections == {}
