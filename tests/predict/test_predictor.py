from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from lucid_yolo.data.dataset import open_split
from lucid_yolo.data.image import UndecodableImageError, read_image
from lucid_yolo.predict.predictor import Predictor
from lucid_yolo.predict.results import Results
from lucid_yolo.runtime.detector import Detector
from lucid_yolo.runtime.evaluation import evaluate_split
from samples import CLASS_MAP, SIZES, write_coco, write_pictures, write_untrained

BATCH_SIZE = 2


@pytest.fixture(scope="module")
def ckpt_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_untrained(tmp_path_factory.mktemp("ckpt") / "last.ckpt")


@pytest.fixture(scope="module")
def detector(ckpt_path: Path) -> Detector:
    return Detector.from_checkpoint(ckpt_path, "cpu")


@pytest.fixture
def predictor(detector: Detector) -> Predictor:
    return Predictor(detector, conf=0.001, batch_size=BATCH_SIZE)


@pytest.fixture
def paths(tmp_path: Path, rng: np.random.Generator) -> list[Path]:
    return write_pictures(tmp_path / "pictures", rng)


def same(a: Results, b: Results) -> bool:
    return len(a) > 0 and torch.equal(a.boxes.data, b.boxes.data)


@pytest.mark.parametrize(
    ("batch_size", "is_fused", "tolerance"),
    [(BATCH_SIZE, False, 1e-5), (1, False, 0.05), (5, True, 0.05)],
    ids=["same arithmetic", "other batch size", "folded normalisation"],
)
def test_boxes_equal_those_of_validation(
    ckpt_path: Path,
    detector: Detector,
    batch_size: int,
    is_fused: bool,
    tolerance: float,
    tmp_path: Path,
    rng: np.random.Generator,
) -> None:
    write_coco(tmp_path, rng)
    split = open_split(tmp_path, "val")
    validated = evaluate_split(detector, split, BATCH_SIZE, num_workers=0).detections["one_to_one"]
    deployed = Detector.from_checkpoint(ckpt_path, "cpu", branches=("one_to_one",), is_fused=is_fused)
    found = list(Predictor(deployed, 0.001, batch_size).predict(tmp_path / "images" / "val"))
    assert [r.path for r in found] == [record.path for record in split.records]
    for result, expected in zip(found, validated, strict=True):
        assert len(result) > 50
        assert len(np.unique(expected.boxes_xyxy_src, axis=0)) > 20
        columns = (expected.boxes_xyxy_src, expected.score[:, None], expected.label[:, None])
        gap = np.abs(result.boxes.data.numpy()[:, None] - np.concatenate(columns, axis=1)).max(axis=2)
        if tolerance < 1e-4:
            assert gap.diagonal().max() < tolerance
        # Other rounding may exchange detections of nearly the same score, so each needs a partner anywhere.
        assert gap.shape[0] == gap.shape[1]
        assert max(gap.min(axis=0).max(), gap.min(axis=1).max()) < tolerance


def test_every_kind_of_source_gives_the_same(predictor: Predictor, paths: list[Path]) -> None:
    path = paths[3]
    (expected,) = predictor.predict(path)
    bgr = cv2.imread(str(path))
    rgb = read_image(path)
    tensor = torch.from_numpy(rgb).permute(2, 0, 1).float() / 255
    sources: list[Any] = [str(path), [path], str(path.parent / "p3*"), path.read_bytes(), Image.open(path), bgr, tensor]
    for source in sources:
        (found,) = predictor.predict(source)
        assert same(expected, found), type(source)
        assert np.array_equal(found.orig_img, rgb)
    (found,) = predictor.predict(rgb, channels="rgb")
    assert same(expected, found)
    assert expected.path == str(path)
    assert expected.orig_shape == SIZES[3]
    assert expected.names == dict(enumerate(CLASS_MAP.names))


def test_a_mixed_list_keeps_its_order_and_names(predictor: Predictor, paths: list[Path]) -> None:
    grey = np.full((20, 30), 200, np.uint8)
    found = list(predictor.predict([paths[1], grey, str(paths[0].parent), Image.open(paths[2])]))
    names = ["p1.png", "image_1", "p0.png", "p1.png", "p2.png", "p3.png", "p4.png", "p2.png"]
    assert [Path(r.path).name for r in found] == names
    assert found[1].orig_shape == (20, 30)


def test_batches_have_one_shape(
    predictor: Predictor, paths: list[Path], monkeypatch: pytest.MonkeyPatch, detector: Detector
) -> None:
    shapes: list[int] = []
    detect = detector.detect

    def record(images: torch.Tensor) -> Any:
        shapes.append(len(images))
        return detect(images)

    monkeypatch.setattr(detector, "detect", record)
    assert len(list(predictor.predict(paths))) == 5
    assert shapes == [2, 2, 2]
    shapes.clear()
    assert len(list(predictor.predict(paths[0]))) == 1
    assert shapes == [1]


def test_a_stream_is_read_as_it_is_needed(predictor: Predictor, paths: list[Path]) -> None:
    read = 0

    def frames() -> Iterator[np.ndarray]:
        nonlocal read
        buffer = np.empty((30, 40, 3), np.uint8)
        for value in range(1000):
            buffer[:] = value % 256  # its owner reuses the memory
            read += 1
            yield buffer

    stream = predictor.predict(frames())
    for number in range(9):
        result = next(stream)
        assert result.orig_img is not None
        assert (result.orig_img == number).all()
    assert read <= 9 + 3 * BATCH_SIZE
    stream.close()  # type: ignore[attr-defined]
    assert not [t for t in threading.enumerate() if t.name.startswith("ThreadPool")]


def test_threads_may_share_a_predictor(predictor: Predictor, paths: list[Path]) -> None:
    expected = list(predictor.predict(paths))
    found: dict[int, list[Results]] = {}

    def work(number: int) -> None:
        found[number] = list(predictor.predict(paths))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    for results in found.values():
        assert all(same(a, b) for a, b in zip(expected, results, strict=True))


def test_confidence_and_count_limit_what_is_returned(detector: Detector, paths: list[Path]) -> None:
    (every,) = Predictor(detector, conf=0.0).predict(paths[0])
    threshold = float(every.boxes.conf[20])
    (sure,) = Predictor(detector, conf=threshold).predict(paths[0])
    assert 21 <= len(sure) < len(every)
    assert torch.equal(sure.boxes.data, every[: len(sure)].boxes.data)
    (few,) = Predictor(detector, conf=0.0, max_det=7).predict(paths[0])
    assert torch.equal(few.boxes.data, every[:7].boxes.data)


def test_speed_is_in_milliseconds(predictor: Predictor, paths: list[Path]) -> None:
    (result,) = predictor.predict(paths[0])
    assert set(result.speed) == {"preprocess", "inference", "postprocess"}
    assert 0.1 < result.speed["inference"] < 60_000


@pytest.mark.parametrize("content", [b"", b"<html></html>", b"\x89PNG\r\n\x1a\n"], ids=["empty", "html", "cut"])
def test_an_undecodable_file_is_named(predictor: Predictor, paths: list[Path], content: bytes) -> None:
    paths[3].write_bytes(content)
    stream = predictor.predict(paths)
    assert [Path(next(stream).path).name for _ in range(2)] == ["p0.png", "p1.png"]
    with pytest.raises(UndecodableImageError, match=r"p3\.png"):
        list(stream)
    with pytest.raises(UndecodableImageError, match="image_1"):
        list(predictor.predict([paths[0].read_bytes(), io.BytesIO(content).getvalue()]))


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("nowhere", FileNotFoundError, "nowhere"),
        ([], ValueError, "empty list"),
        (7, Exception, "7|int"),
        ([None], Exception, "None"),
        (np.zeros((2, 8, 8, 3), np.uint8), ValueError, "as a list"),
        (np.zeros((8, 8, 3), np.float32), ValueError, "uint8"),
        (np.zeros((0, 8, 3), np.uint8), ValueError, "uint8"),
        (torch.zeros(2, 3, 8, 8), ValueError, "as a list"),
        (torch.full((3, 8, 8), 255.0), ValueError, r"\[0, 1\]"),
        (torch.zeros(3, 8, 8, dtype=torch.uint8), ValueError, "floating-point"),
    ],
    ids=str,
)
def test_a_wrong_source_is_refused(predictor: Predictor, source: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        list(predictor.predict(source))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"conf": 1.5}, "conf"),
        ({"conf": float("nan")}, "conf"),
        ({"batch_size": 0}, "batch_size"),
        ({"max_det": 301}, "max_det"),
    ],
)
def test_a_wrong_argument_is_refused(detector: Detector, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Predictor(detector, **arguments)


def test_the_deployed_branch_and_known_channels_are_needed(ckpt_path: Path, predictor: Predictor) -> None:
    other = Detector.from_checkpoint(ckpt_path, "cpu", branches=("one_to_many",))
    with pytest.raises(ValueError, match="one_to_one"):
        Predictor(other)
    with pytest.raises(Exception, match="channels"):
        predictor.predict(np.zeros((4, 4, 3), np.uint8), channels="gbr")  # type: ignore[arg-type]
