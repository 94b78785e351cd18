"""ONNX files: run by onnxruntime, opened by this package."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import lucid_yolo
from exported import dynamic_onnx, export_untrained, untrained_ckpt
from lucid_yolo.cli import evaluate, predict
from lucid_yolo.data.synthetic import draw_shapes
from lucid_yolo.export.pictures import draw_pictures
from lucid_yolo.export.verify import FP32, EagerReference, Tolerance, run_gate
from lucid_yolo.models.head import DEPLOYED, OutputConv
from lucid_yolo.predict import backends
from lucid_yolo.predict.backends import open_detector
from lucid_yolo.runtime.detector import read_network
from samples import CLASS_MAP, write_coco


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dynamic_onnx(tmp_path_factory)


@pytest.fixture(scope="module")
def ckpt_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained_ckpt(tmp_path_factory)


def test_it_finds_what_eager_finds_at_several_sizes(file: Path, ckpt_path: Path) -> None:
    network, meta = read_network(ckpt_path)
    reference = EagerReference(network, meta.build_task())
    for size_px, has_second in (((64, 64), True), ((96, 128), False)):
        pictures = draw_pictures(size_px, has_dynamic_size=has_second)
        result, _ = run_gate(reference, open_detector(file, "cpu"), pictures, FP32)
        assert result.is_passed
        assert result.num_compared > 10


def test_equal_scores_keep_the_order_of_point_then_class(file: Path, ckpt_path: Path, tmp_path: Path) -> None:
    network, meta = read_network(ckpt_path)
    model = onnx.load(str(file))
    for module in network.modules():
        if isinstance(module, OutputConv) and module.out_channels == len(CLASS_MAP):
            torch.nn.init.zeros_(module.weight)
            torch.nn.init.constant_(module.bias, 0.5)
    for tensor in model.graph.initializer:  # the same change in the file
        values = onnx.numpy_helper.to_array(tensor)
        if "class" in tensor.name and values.shape[0] == len(CLASS_MAP):
            new = np.zeros_like(values) if values.ndim == 4 else np.full_like(values, 0.5)
            tensor.CopyFrom(onnx.numpy_helper.from_array(new, tensor.name))
    onnx.save(model, str(tmp_path / "ties.onnx"))
    images = torch.randint(0, 256, (2, 3, 128, 160), dtype=torch.uint8)
    eager = EagerReference(network, meta.build_task()).detect(images)[DEPLOYED]
    found = open_detector(tmp_path / "ties.onnx", "cpu").detect(images)[DEPLOYED]
    assert eager.score.unique().numel() == 1
    assert torch.equal(found.label, eager.label)
    torch.testing.assert_close(found.boxes_xyxy_px, eager.boxes_xyxy_px, atol=0.05, rtol=0)


def test_the_file_says_what_it_is(file: Path, tmp_path: Path) -> None:
    session = onnxruntime.InferenceSession(str(file))
    entries = session.get_modelmeta().custom_metadata_map
    assert json.loads(entries["names"]) == list(CLASS_MAP.names)
    assert json.loads(entries["source_ids"]) == list(CLASS_MAP.source_ids)
    assert json.loads(entries["image_size"]) == [64, 64]
    assert json.loads(entries["letterbox"])["fill_value"] == 114
    assert json.loads(entries["input"])["channels"] == "RGB"
    assert (entries["task"], entries["variant"], entries["precision"]) == ("detect", "n", "fp32")
    assert entries["lucid_yolo_version"] == lucid_yolo.__version__
    assert "Apache-2.0" in entries["licence"]
    (output,) = session.get_outputs()
    assert (output.name, output.shape[1:]) == ("detections", [300, 6])
    assert b"site-packages" not in file.read_bytes()  # no path of the machine that wrote it
    operators = [node.op_type for node in onnx.load(str(file)).graph.node]
    assert not {"NonMaxSuppression", "BatchNormalization"} & set(operators)


def test_load_gives_the_results_of_the_checkpoint(file: Path, ckpt_path: Path, tmp_path: Path) -> None:
    draw_shapes(tmp_path / "drawn", 1, 3)
    pictures = str(tmp_path / "drawn" / "images" / "val")
    expected = list(lucid_yolo.load(ckpt_path, "cpu", conf=0.3).predict(pictures))
    model = lucid_yolo.load(file, conf=0.3, batch_size=2)
    assert model.detector.device.type == "cpu"
    found = list(model.predict(pictures))
    assert sum(len(result) for result in found) > 0
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.boxes.data, other.boxes.data, atol=0.05, rtol=0)
        assert one.names == other.names


def test_the_commands_take_it(file: Path, ckpt_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "data"
    write_coco(root, np.random.default_rng(0))
    reports = []
    for path in (file, ckpt_path):
        report = tmp_path / f"{path.stem}.json"
        arguments = ["--ckpt_path", str(path), "--data_root", str(root), "--num_workers", "0", "--json", str(report)]
        assert evaluate.main([*arguments, "--device", "cpu", "--batch_size", "2"]) == 0
        reports.append(json.loads(report.read_text("utf-8")))
    deployed, both = (report["metrics"] for report in reports)
    assert list(deployed) == ["one_to_one"]
    assert deployed["one_to_one"]["map"] == pytest.approx(both["one_to_one"]["map"], abs=1e-6)
    source, out = str(root / "images" / "val"), str(tmp_path / "out")
    assert predict.main(["--ckpt_path", str(file), "--source", source, "--save_dir", out, "--conf", "0.3"]) == 0
    assert "5 pictures" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device": "toaster"}, "expected auto, cpu or a GPU"),
        ({"precision": "bf16"}, "was exported in fp32, found 'bf16'"),
    ],
)
def test_what_it_cannot_do_is_said(file: Path, arguments: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lucid_yolo.load(file, **arguments)  # type: ignore[arg-type]


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"gone\.onnx"):
        lucid_yolo.load(tmp_path / "gone.onnx")
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(ValueError, match=r"text\.onnx cannot be read"):
        lucid_yolo.load(tmp_path / "text.onnx")
    value = onnx.helper.make_tensor_value_info("images", onnx.TensorProto.FLOAT, [1])
    same = onnx.helper.make_tensor_value_info("same", onnx.TensorProto.FLOAT, [1])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["images"], ["same"])], "g", [value], [same])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, str(tmp_path / "other.onnx"))
    with pytest.raises(ValueError, match=r"other\.onnx: expected the metadata that lucid-export writes"):
        lucid_yolo.load(tmp_path / "other.onnx")


@pytest.mark.parametrize(
    ("providers", "message"),
    [
        (["CPUExecutionProvider"], "install onnxruntime-gpu in the place of onnxruntime"),
        (["CUDAExecutionProvider", "CPUExecutionProvider"], "install the CUDA libraries that it names"),
    ],
    ids=["built without", "not loaded"],
)
@pytest.mark.filterwarnings("ignore:Specified provider 'CUDAExecutionProvider' is not in available")
def test_a_gpu_that_onnxruntime_lacks_is_no_fault_of_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch, providers: list[str], message: str
) -> None:
    monkeypatch.setattr(backends, "choose_device", torch.device)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: providers)
    with pytest.raises(ValueError, match=f"^device: found cuda:0, .*; take device cpu, or {message}$"):
        open_detector(file, "cuda:0")


@pytest.mark.slow
@pytest.mark.parametrize(("is_half", "size_px"), [(False, (64, 96)), (True, (64, 64))])
def test_fixed_size_and_half(
    tmp_path_factory: pytest.TempPathFactory, ckpt_path: Path, is_half: bool, size_px: tuple[int, int]
) -> None:
    path = export_untrained(tmp_path_factory, "onnx", f"half_{is_half}.onnx", size_px=size_px, is_half=is_half)
    network, meta = read_network(ckpt_path)
    detector = open_detector(path, "cpu")
    tolerance = Tolerance(0.9, 0.1) if is_half else FP32  # untrained layers let half precision's errors grow
    result, _ = run_gate(EagerReference(network, meta.build_task()), detector, draw_pictures(size_px), tolerance)
    assert detector.precision == ("fp16" if is_half else "fp32")
    assert result.is_passed
    with pytest.raises(ValueError, match=r"takes pictures of 64 x \d+ \(height x width\), found 32 x 64"):
        detector.detect(torch.zeros(1, 3, 32, 64, dtype=torch.uint8))
