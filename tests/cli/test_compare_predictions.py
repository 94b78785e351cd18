"""``lucid-eval --compare``: two prediction files, one line that says which is better."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lucid_yolo.cli.evaluate import main
from lucid_yolo.data.dataset import open_split
from lucid_yolo.evaluate import evaluate_boxes
from lucid_yolo.evaluate.coco_rows import from_coco_rows, to_coco_rows
from made_detections import make_detections
from samples import CLASS_MAP, write_coco


@pytest.fixture
def data_root(tmp_path: Path, rng: np.random.Generator) -> Path:
    write_coco(tmp_path / "set", rng)
    return tmp_path / "set"


@pytest.fixture
def good(data_root: Path, tmp_path: Path) -> Path:
    """The annotations themselves as predictions."""
    records = open_split(data_root, "val").records
    rows = []
    for record in records:
        for (x1, y1, x2, y2), label in zip(record.boxes_xyxy_src.tolist(), record.labels.tolist(), strict=True):
            ids = {"image_id": record.image_id, "category_id": CLASS_MAP.source_ids[label]}
            rows.append(ids | {"bbox": [x1, y1, x2 - x1, y2 - y1], "score": 0.9})
    return write(tmp_path / "good.json", rows)


@pytest.fixture
def poor(data_root: Path, tmp_path: Path) -> Path:
    split = open_split(data_root, "val")
    return write(tmp_path / "poor.json", to_coco_rows(make_detections(split.records, 3, 5), split.class_map))


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content), "utf-8")
    return path


def compare(a: Path, b: Path, data_root: Path, *more: str) -> int:
    return main(["--compare", str(a), str(b), "--data_root", str(data_root), *more])


def test_better_worse_and_the_same(
    good: Path, poor: Path, data_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = {}
    for name, sides in {"better": (poor, good), "worse": (good, poor), "same": (good, good)}.items():
        assert compare(*sides, data_root, "--json", str(tmp_path / "c.json"), "--bootstrap", "200") == 0
        results[name] = json.loads((tmp_path / "c.json").read_text("utf-8"))
        assert results[name]["verdict"] in " ".join(capsys.readouterr().out.split())
    assert results["better"]["verdict"].startswith("B is better than A: +")
    assert results["worse"]["verdict"].startswith("B is worse than A: -")
    assert results["same"]["verdict"] == "no difference can be told: +0.0 AP (95 % 0.0..0.0)"

    better = results["better"]
    split = open_split(data_root, "val")
    expected = {
        side: evaluate_boxes(
            split.records,
            from_coco_rows(json.loads(path.read_text("utf-8")), split.records, split.class_map),
            CLASS_MAP,
        )
        for side, path in (("a", poor), ("b", good))
    }
    for metric in ("map", "map50"):
        values = [getattr(expected[side], metric) for side in "ab"]
        assert [better[side][metric]["value"] for side in "ab"] == pytest.approx(values, abs=1e-12)
        assert better["difference"][metric]["value"] == pytest.approx(values[1] - values[0], abs=1e-12)
        assert better["difference"][metric]["low"] == pytest.approx(-results["worse"]["difference"][metric]["high"])
    assert [row["name"] for row in better["per_class"]] == list(CLASS_MAP.names)
    assert better["per_class"][2]["difference"] == {"value": None, "low": None, "high": None}
    assert (better["draws"], better["num_images"]) == (200, 5)


def test_rows_there_and_back(data_root: Path) -> None:
    split = open_split(data_root, "val")
    made = make_detections(split.records, 3, 1)
    back = from_coco_rows(json.loads(json.dumps(to_coco_rows(made, split.class_map))), split.records, split.class_map)
    for before, after in zip(made, back, strict=True):
        assert before.image_id == after.image_id
        assert after.boxes_xyxy_src == pytest.approx(before.boxes_xyxy_src)
        assert (after.label == before.label).all()
        assert (after.score == before.score).all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"annotations": []}, "expected a list of COCO detection rows, found dict"),
        (
            [{"image_id": 1000, "category_id": 3, "bbox": [1, 2, 3], "score": 1}],
            "row 0: expected image_id, category_id",
        ),
        (
            [{"image_id": 1, "category_id": 3, "bbox": [1, 2, 3, 4], "score": 1}],
            "expected image_id to be one of the data set",
        ),
        ([{"image_id": 1000, "category_id": 4, "bbox": [1, 2, 3, 4], "score": 1}], "found 4"),
        ("{", "found no JSON"),
    ],
    ids=["no list", "three sides", "unknown image", "unknown class", "no JSON"],
)
def test_other_files_are_refused(
    good: Path, data_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: Any, message: str
) -> None:
    wrong = write(tmp_path / "wrong.json", content)
    if content == "{":
        wrong.write_text("{", "utf-8")
    assert compare(good, wrong, data_root) == 2
    error = capsys.readouterr().err
    assert "wrong.json" in error
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "expected either --ckpt_path or --compare A.json B.json, found neither"),
        (["--ckpt_path", "a.ckpt", "--compare", "a", "b"], "found both"),
        (["--compare", "a"], "compare"),
        (["--ckpt_path", "a.ckpt", "--bootstrap", "-1"], "expected 0 or more draws, found -1"),
    ],
    ids=["neither", "both", "one file", "negative"],
)
def test_wrong_use(data_root: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str) -> None:
    assert main(["--data_root", str(data_root), *flags]) == 2
    assert message in capsys.readouterr().err
