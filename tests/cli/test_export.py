from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import lucid_yolo
from exported import dynamic_onnx, untrained_ckpt
from lucid_yolo.cli.export import _verify, main
from lucid_yolo.export.pictures import draw_pictures
from lucid_yolo.predict.backends import open_detector
from lucid_yolo.runtime.detector import Detector, read_network
from samples import write_pictures, write_untrained


@pytest.fixture
def ckpt_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained_ckpt(tmp_path_factory)


def test_weights_are_written_compared_and_loaded(
    ckpt_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pictures = write_pictures(tmp_path / "in", np.random.default_rng(0))
    path = tmp_path / "out" / "weights.safetensors"
    arguments = ["--ckpt_path", str(ckpt_path), "--format", "safetensors", "--output", str(path)]
    assert main([*arguments, "--source", str(tmp_path / "in"), "--num_pictures", "3"]) == 0
    printed = capsys.readouterr().out
    assert "passed" in printed
    report = json.loads((path.parent / "weights.safetensors.gate.json").read_text("utf-8"))
    assert report["is_passed"]
    assert [row["name"] for row in report["rows"]] == [str(pictures[i]) for i in (0, 1, 3)]
    assert (path.parent / "weights.safetensors.worst.png").is_file()
    expected, found = (lucid_yolo.load(p, "cpu").predict(pictures) for p in (ckpt_path, path))
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.boxes.data, other.boxes.data)
    both = open_detector(path, "cpu")
    assert isinstance(both, Detector)
    assert both.branches == ("one_to_many", "one_to_one")


def test_without_pictures_the_gate_draws_some_and_says_so(
    ckpt_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "weights.safetensors"
    assert main(["--ckpt_path", str(ckpt_path), "--format", "safetensors", "--output", str(path)]) == 0
    assert "a few drawn ones" in capsys.readouterr().out
    report = json.loads(path.with_name("weights.safetensors.gate.json").read_text("utf-8"))
    assert report["tolerance"] == {"iou": 0.99, "score": 1e-3}
    assert {row["name"] for row in report["rows"]} == {f"drawn {i:05d}" for i in range(4)}


def test_half_is_written_and_has_its_own_tolerance(ckpt_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "half.safetensors"
    main(["--ckpt_path", str(ckpt_path), "--format", "safetensors", "--half", "--output", str(path)])
    report = json.loads(path.with_name("half.safetensors.gate.json").read_text("utf-8"))
    assert report["tolerance"] == {"iou": 0.98, "score": 5e-3}
    assert report["entries"]["precision"] == "fp16"
    assert path.stat().st_size < 0.3 * ckpt_path.stat().st_size


def test_another_networks_file_fails_the_gate(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "other.onnx"
    file.write_bytes(dynamic_onnx(tmp_path_factory).read_bytes())
    network, _ = read_network(write_untrained(tmp_path / "strong.ckpt", class_std=0.3))
    deployed = open_detector(file).deployed  # type: ignore[attr-defined]
    pictures = draw_pictures(deployed.size_px, has_dynamic_size=True)
    assert _verify("onnx", network, deployed, file, pictures) == 1
    assert "FAILED" in capsys.readouterr().out
    assert not json.loads((tmp_path / "other.onnx.gate.json").read_text("utf-8"))["is_passed"]


@pytest.mark.parametrize("source", ["nowhere", "videos"])
def test_nothing_is_written_when_there_is_nothing_to_compare_on(
    ckpt_path: Path, tmp_path: Path, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "a.mp4").write_bytes(b"")
    path = tmp_path / "weights.safetensors"
    arguments = ["--ckpt_path", str(ckpt_path), "--format", "safetensors", "--output", str(path)]
    assert main([*arguments, "--source", str(tmp_path / source)]) == 2
    assert "error: " in capsys.readouterr().err
    assert not path.exists()
    assert main([*arguments, "--source", str(tmp_path / source), "--verify", "false"]) == 0
    assert path.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "coreml"], "format: expected one of onnx"),
        (["--image_size", "70"], "multiples of 32, found [70]"),
        (["--image_size", "64", "64", "64"], "a side, or height and width"),
        (["--max_det", "0"], "max_det: expected 1 to 300, found 0"),
        (["--format", "safetensors", "--output", "{ckpt}"], "a name that ends in .safetensors, found last.ckpt"),
        (["--format", "torchscript", "--dynamic_size"], "a file of format torchscript has one size"),
        (["--format", "safetensors", "--dynamic_size"], "a file of format safetensors has one size"),
        (["--format", "safetensors", "--image_size", "64", "96"], "format safetensors needs a square, found 64 x 96"),
        (["--format", "web", "--image_size", "64", "96"], "format web needs a square, found 64 x 96"),
        (["--web_runtime", "page"], "belongs to format web, found format onnx"),
    ],
)
def test_wrong_use_is_one_line(
    ckpt_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [argument.format(ckpt=ckpt_path) for argument in arguments]
    assert main(["--ckpt_path", str(ckpt_path), *filled]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
