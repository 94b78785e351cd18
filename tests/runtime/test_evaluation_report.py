"""The page of an evaluation: its numbers, and how a browser shows it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from browser import Browser
from lucid_yolo.data.dataset import DataSplit, open_split
from lucid_yolo.data.synthetic import draw_shapes
from lucid_yolo.evaluate.confusion import match_images
from lucid_yolo.runtime.checkpoint_file import ModelMeta
from lucid_yolo.runtime.evaluation import Evaluation
from lucid_yolo.runtime.report import write_evaluation_report
from lucid_yolo.runtime.report_pictures import draw_matches, worst_and_best
from lucid_yolo.structures import ClassMap
from made_detections import make_evaluation

MAX_BYTES = 3_000_000
NAMES = ("circle", "</td><script>1</script>", "a name that is very long indeed, longer than others", "собака", "猫")


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> DataSplit:
    root = tmp_path_factory.mktemp("set") / "shapes"
    draw_shapes(root, num_train=1, num_val=12, image_size_px=160, object_px=(20, 60), seed=3)
    return dataclasses.replace(open_split(root, "val"), class_map=ClassMap.from_names(NAMES))


@pytest.fixture(scope="module")
def evaluation(split: DataSplit) -> Evaluation:
    return make_evaluation(split.records, split.class_map)


def write(path: Path, evaluation: Evaluation, split: DataSplit) -> Path:
    meta = ModelMeta("detect", "n", split.class_map, 160)
    write_evaluation_report(path, evaluation, split, meta, {"ckpt_path": "a/<best>.ckpt", "split": "val"}, "cpu")
    return path


def test_numbers_are_those_of_the_evaluation(evaluation: Evaluation, split: DataSplit, tmp_path: Path) -> None:
    path = write(tmp_path / "report.html", evaluation, split)
    text = path.read_text("utf-8")
    assert path.stat().st_size < MAX_BYTES
    for head in evaluation.metrics.values():
        for name in ("map", "map50", "ar_max"):
            assert f"{getattr(head, name):.4f}" in text
        assert all(f'data-value="{row.ap}"' in text for row in head.per_class)
    assert "a/&lt;best&gt;.ckpt" in text
    assert f"{evaluation.metrics['one_to_one'].num_objects:,}" in text


def test_one_head_and_nothing_found(split: DataSplit, evaluation: Evaluation, tmp_path: Path) -> None:
    nothing = [
        dataclasses.replace(row, boxes_xyxy_src=np.zeros((0, 4)), score=np.zeros(0), label=np.zeros(0, np.int64))
        for row in evaluation.detections["one_to_one"]
    ]
    metrics = {"one_to_one": evaluation.metrics["one_to_one"]}
    text = write(tmp_path / "r.html", Evaluation(metrics, {"one_to_one": nothing}), split).read_text("utf-8")
    assert "Of 0 detections 0 lie on no object" in text
    assert "against the head with NMS" not in text
    assert "Best pictures" not in text


def test_worst_and_best_pictures(evaluation: Evaluation, split: DataSplit) -> None:
    matches = match_images(split.records, evaluation.detections["one_to_one"], split.class_map)
    worst, best = worst_and_best(matches, 3)
    others = [m.f1 for m in matches if all(m is not chosen for chosen in (*worst, *best))]
    assert len(worst) == len(best) == 3
    assert max(m.f1 for m in worst) <= min(others) <= max(others) <= min(m.f1 for m in best)
    assert worst[0].f1 < best[0].f1
    pictures = draw_matches(worst, NAMES)
    assert pictures[0].pixels_rgb.shape == (480, 968, 3)
    assert f"F1 {worst[0].f1:.2f}" in pictures[0].caption
    halves = pictures[0].pixels_rgb[:, :480], pictures[0].pixels_rgb[:, 488:]
    assert (halves[0] != halves[1]).any()


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 400])
def test_in_a_browser(evaluation: Evaluation, split: DataSplit, tmp_path: Path, width: int) -> None:
    path = write(tmp_path / "report.html", evaluation, split)
    with Browser((width, 900)) as browser:
        browser.open(path)
        assert f"{evaluation.metrics['one_to_one'].map:.4f}" in browser.text()
        assert browser.evaluate("document.documentElement.scrollWidth") == width
        sizes = json.loads(
            browser.evaluate("JSON.stringify([...document.images].map(i => [i.naturalWidth, i.clientWidth]))")
        )
        assert len(sizes) == 8
        assert all(natural == 968 and 200 < shown <= min(natural, width) for natural, shown in sizes)
        boxes = browser.evaluate("[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().height)")
        assert len(boxes) == 4
        assert min(boxes) > 80

        column = "[...document.querySelectorAll('table.sortable td:nth-child({})')].map(c => c.textContent)"
        browser.evaluate("document.querySelectorAll('table.sortable button')[3].click()")
        numbers = [float(text) for text in browser.evaluate(column.format(4))]
        assert numbers == sorted(numbers, reverse=True)
        browser.evaluate("document.querySelectorAll('table.sortable button')[0].click()")
        assert set(browser.evaluate(column.format(1))) == set(NAMES)
        assert browser.evaluate("document.querySelector('th[aria-sort]').getAttribute('aria-sort')") == "ascending"

        assert browser.errors == []
        assert browser.evaluate("performance.getEntriesByType('resource').length") == 0
        browser.evaluate(
            "const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s)"
        )
        assert browser.evaluate("window.ran") is None
        assert any("Content Security Policy" in error for error in browser.errors)
