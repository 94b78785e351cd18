"""Every format that can be written here: by way of its own runtime, against eager."""

from __future__ import annotations

import importlib.util
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from exported import export_untrained, untrained_ckpt
from lucid_yolo.export.formats import FORMATS, find_format
from lucid_yolo.export.pictures import draw_pictures
from lucid_yolo.export.verify import FP32, EagerReference, run_gate
from lucid_yolo.predict.backends import BACKENDS, ExportedDetector, Program, open_detector
from lucid_yolo.runtime.deployed_meta import DeployedMeta
from lucid_yolo.runtime.detector import read_network
from samples import CLASS_MAP


def is_missing(name: str) -> bool:
    return not all(importlib.util.find_spec(package.partition(".")[0]) for package in FORMATS[name].packages)


@pytest.mark.parametrize(
    "name",
    [
        "torchscript",
        pytest.param("openvino", marks=pytest.mark.slow),
        pytest.param("executorch", marks=pytest.mark.slow),
        pytest.param("litert", marks=pytest.mark.slow),
    ],
)
def test_it_finds_what_eager_finds(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    if is_missing(name):
        pytest.skip(f"extra {FORMATS[name].extra} is not installed")
    path = export_untrained(tmp_path_factory, name, f"last{FORMATS[name].suffix}")
    network, meta = read_network(untrained_ckpt(tmp_path_factory))
    detector = open_detector(path, "cpu")
    result, _ = run_gate(EagerReference(network, meta.build_task()), detector, draw_pictures((64, 64)), FP32)
    assert result.is_passed
    assert result.num_compared > 10
    assert detector.meta.class_map == CLASS_MAP
    with pytest.raises(ValueError, match="found 96 x 64"):
        detector.detect(torch.zeros(1, 3, 96, 64, dtype=torch.uint8))


@pytest.mark.parametrize("name", ["executorch", "litert"])
def test_a_format_that_is_not_installed_names_its_extra(name: str) -> None:
    if not is_missing(name):
        pytest.skip("it is installed")
    with pytest.raises(ValueError, match=rf"format {name} needs .* pip install -e '\.\[{name}\]'"):
        find_format(name)


def test_every_file_that_is_written_can_be_opened() -> None:
    for name, found in FORMATS.items():
        suffix = found.opened(Path(f"last{found.suffix}")).suffix
        assert suffix in BACKENDS or suffix == ".safetensors", name


def test_a_runtime_that_is_not_installed_names_its_extra(tmp_path: Path) -> None:
    if not is_missing("executorch"):
        pytest.skip("it is installed")
    (tmp_path / "last.pte").write_bytes(b"")
    with pytest.raises(ValueError, match=r"running a .pte file needs .* pip install -e '\.\[executorch\]'"):
        open_detector(tmp_path / "last.pte")


def test_threads_take_turns_in_a_file(tmp_path_factory: pytest.TempPathFactory) -> None:
    model = read_network(untrained_ckpt(tmp_path_factory))[1]
    inside, most = 0, 0

    def run(pixels: np.ndarray) -> np.ndarray:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.05)
        inside -= 1
        return np.zeros((len(pixels), 300, 6), np.float32)

    entries = DeployedMeta(model, (0, 0)).at_size(64, 64).to_strings()
    detector = ExportedDetector(Program(entries, run), Path("last.onnx"), torch.device("cpu"))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(detector.detect, [torch.zeros(1, 3, 64, 64, dtype=torch.uint8)] * 4))
    assert most == 1
