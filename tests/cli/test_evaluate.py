from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from lucid_yolo.cli.evaluate import main
from lucid_yolo.data.dataset import open_split
from lucid_yolo.runtime.detector import Detector
from lucid_yolo.runtime.evaluation import evaluate_split
from lucid_yolo.runtime.metric_names import ROWS
from lucid_yolo.structures import ClassMap
from samples import CLASS_MAP, write_coco, write_untrained


@pytest.fixture(scope="module")
def ckpt_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_untrained(tmp_path_factory.mktemp("ckpt") / "last.ckpt")


@pytest.fixture
def data_root(tmp_path: Path, rng: np.random.Generator) -> Path:
    write_coco(tmp_path / "set", rng)
    return tmp_path / "set"


def arguments(ckpt_path: Path, data_root: Path, *more: str) -> list[str]:
    run = ["--device", "cpu", "--num_workers", "0", "--batch_size", "2"]
    return ["--ckpt_path", str(ckpt_path), "--data_root", str(data_root), *run, *more]


def refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


@pytest.fixture
def outputs(ckpt_path: Path, data_root: Path, tmp_path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    report, rows = tmp_path / "out" / "report.json", tmp_path / "out" / "rows.json"
    assert main(arguments(ckpt_path, data_root, "--json", str(report), "--save_predictions", str(rows))) == 0
    read = [json.loads(p.read_text("utf-8"), parse_constant=refuse_constant) for p in (report, rows)]
    return read[0], read[1]


def test_report_holds_both_heads_and_their_difference(
    outputs: tuple[dict[str, Any], list[dict[str, Any]]], ckpt_path: Path, data_root: Path
) -> None:
    report, _ = outputs
    expected = evaluate_split(Detector.from_checkpoint(ckpt_path, "cpu"), open_split(data_root, "val"), 2, 0)
    assert report["metrics"] == json.loads(json.dumps(expected.to_dict()))
    for name in ROWS:
        values = [getattr(expected.metrics[head], name) for head in ("one_to_one", "one_to_many")]
        difference = report["one_to_one_minus_one_to_many"][name]
        if any(math.isnan(v) for v in values):
            assert difference is None
        else:
            assert difference == pytest.approx(values[0] - values[1], abs=1e-15)
    assert report["metrics"]["one_to_one"]["map50"] > 0
    assert [row["name"] for row in report["metrics"]["one_to_one"]["per_class"]] == list(CLASS_MAP.names)
    assert report["metrics"]["one_to_one"]["per_class"][2]["ap"] is None
    assert (report["split"], report["precision"], report["model"]["task"]) == ("val", "fp32", "detect")
    assert report["label_rows"]["total"] == report["label_rows"]["kept"] == 10


def test_report_page(ckpt_path: Path, data_root: Path, tmp_path: Path) -> None:
    page, numbers = tmp_path / "new" / "report.html", tmp_path / "r.json"
    assert main(arguments(ckpt_path, data_root, "--report", str(page), "--json", str(numbers))) == 0
    text, report = page.read_text("utf-8"), json.loads(numbers.read_text("utf-8"))
    assert f"{report['metrics']['one_to_one']['map50']:.4f}" in text
    assert all(word in text for word in ("собака", "Zelle [red]", str(ckpt_path), "images per second"))


def test_intervals_and_size_buckets(
    ckpt_path: Path, data_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, numbers = tmp_path / "report.html", tmp_path / "r.json"
    more = ["--bootstrap", "50", "--size_buckets", "[0,32,96]", "--report", str(page), "--json", str(numbers)]
    assert main(arguments(ckpt_path, data_root, *more)) == 0
    report, text = json.loads(numbers.read_text("utf-8"), parse_constant=refuse_constant), page.read_text("utf-8")
    printed = capsys.readouterr().out
    for head in ("one_to_one", "one_to_many"):
        interval, metrics = report["bootstrap"][head]["map50"], report["metrics"][head]
        assert interval["value"] == pytest.approx(metrics["map50"], abs=1e-12)
        assert interval["low"] <= interval["high"]
        assert f"{interval['high']:.4f}" in printed
        assert f"{interval['high']:.4f}" in text
        assert [row["ap"] for row in report["size_buckets"][head]] == [
            metrics[name] for name in ("map_small", "map_medium", "map_large")
        ]
    difference = report["bootstrap"]["one_to_one_minus_one_to_many"]["map"]["value"]
    assert difference == pytest.approx(report["one_to_one_minus_one_to_many"]["map"], abs=1e-12)
    assert "32-96 px" in printed
    assert "96 px on" in text
    assert main(arguments(ckpt_path, data_root, "--size_buckets", "[32,0]")) == 2
    assert "size_buckets: expected rising sides" in capsys.readouterr().err


def test_predictions_score_the_same_in_the_reference_evaluator(
    outputs: tuple[dict[str, Any], list[dict[str, Any]]], data_root: Path
) -> None:
    report, rows = outputs
    truth = COCO(str(data_root / "annotations" / "instances_val.json"))
    assert {row["image_id"] for row in rows} <= set(truth.getImgIds())
    assert {row["category_id"] for row in rows} <= set(CLASS_MAP.source_ids)
    evaluator = COCOeval(truth, truth.loadRes(rows), "bbox")
    evaluator.params.maxDets = [1, 10, 300]
    evaluator.evaluate()
    evaluator.accumulate()
    precision = evaluator.eval["precision"][..., 0, -1]
    assert report["metrics"]["one_to_one"]["map"] == pytest.approx(precision[precision > -1].mean(), abs=1e-12)


def test_tables_name_the_classes(ckpt_path: Path, data_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(ckpt_path, data_root)) == 0
    text = capsys.readouterr().out
    for part in ("one-to-one", "one-to-many", "difference", "AP 0.50:0.95", "AR, 300 detections", *CLASS_MAP.names):
        assert part in text


def test_split_without_images_is_an_error(ckpt_path: Path, data_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = data_root / "annotations" / "instances_val.json"
    content = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(content | {"images": [], "annotations": []}), "utf-8")
    assert main(arguments(ckpt_path, data_root)) == 2
    assert "expected images" in capsys.readouterr().err


def test_other_classes_are_refused(tmp_path: Path, data_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = write_untrained(tmp_path / "other.ckpt", ClassMap.from_names(["a", "b", "c"]))
    assert main(arguments(other, data_root)) == 2
    error = capsys.readouterr().err
    assert "class names differ" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"--ckpt_path": "missing.ckpt"}, "missing.ckpt"),
        ({"--data_root": "nowhere"}, "nowhere"),
        ({"--split": "test"}, "test"),
        ({"--split": "all"}, "split"),
        ({"--batch_size": "0"}, "batch_size"),
        ({"--device": "toaster"}, "toaster"),
    ],
    ids=str,
)
def test_wrong_use_is_one_line(
    ckpt_path: Path, data_root: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, str], message: str
) -> None:
    flags = {"--ckpt_path": str(ckpt_path), "--data_root": str(data_root), "--device": "cpu"} | changed
    assert main([text for flag in flags.items() for text in flag]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert message in printed.err


def test_config_file_and_printed_config(
    ckpt_path: Path, data_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as done:
        main([*arguments(ckpt_path, data_root), "--print_config"])
    assert done.value.code == 0
    text = capsys.readouterr().out
    assert yaml.safe_load(text)["batch_size"] == 2
    (tmp_path / "c.yaml").write_text(text)
    assert main(["--config", str(tmp_path / "c.yaml"), "--json", str(tmp_path / "r.json")]) == 0
    assert json.loads((tmp_path / "r.json").read_text("utf-8"))["batch_size"] == 2
