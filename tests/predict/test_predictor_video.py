"""Videos, options of a call and memory of the predictor, with a detector that finds what is bright."""

from __future__ import annotations

import logging
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from bright_detector import BrightDetector, draw_frame, levels

from lucid_yolo.data.image import UndecodableImageError
from lucid_yolo.predict import predictor as predictor_module
from lucid_yolo.predict.predictor import Predictor
from lucid_yolo.predict.results import Results
from lucid_yolo.predict.sources import VideoSource
from lucid_yolo.predict.video import Frame
from samples import write_video

THREE = [(8, 10, 20, 30, 0), (50, 40, 24, 24, 1), (40, 4, 16, 12, 2)]


@pytest.fixture
def detector() -> BrightDetector:
    return BrightDetector()


@pytest.fixture
def predictor(detector: BrightDetector) -> Predictor:
    return Predictor(detector, batch_size=4)


def moving(num: int) -> list[np.ndarray]:
    return [draw_frame([(3 * i, 20, 24, 24, 0)]) for i in range(num)]


def test_every_frame_of_a_video_is_a_result(predictor: Predictor, detector: BrightDetector, tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.avi", moving(10))
    found = list(predictor.predict(path))
    assert [r.frame_index for r in found] == list(range(10))
    assert [r.timestamp_s for r in found] == pytest.approx([i / 25 for i in range(10)])
    assert {r.path for r in found} == {str(path)}
    for number, result in enumerate(found):
        assert result.boxes.xyxy[0].tolist() == pytest.approx([3 * number, 20, 3 * number + 24, 44], abs=1.5)
    assert detector.batch_sizes == [4, 4, 4]


def test_stride_and_mixed_sources_keep_their_order(predictor: Predictor, tmp_path: Path) -> None:
    write_video(tmp_path / "b.avi", moving(7))
    cv2.imwrite(str(tmp_path / "a.png"), draw_frame(THREE))
    cv2.imwrite(str(tmp_path / "c.png"), draw_frame(THREE))
    found = [(Path(r.path).name, r.frame_index) for r in predictor.predict(tmp_path, vid_stride=3)]
    assert found == [("a.png", None), ("b.avi", 0), ("b.avi", 3), ("b.avi", 6), ("c.png", None)]


def test_options_of_a_call(predictor: Predictor) -> None:
    picture = draw_frame(THREE)[:, :, ::-1].copy()

    def labels(**options: object) -> list[int]:
        (result,) = predictor.predict(picture, **options)  # type: ignore[arg-type]
        return sorted(result.boxes.cls.int().tolist())

    assert labels() == [0, 1, 2]
    assert labels(classes=[2, "red"]) == [0, 2]
    assert labels(classes=[]) == []
    assert labels(classes=["blue"], max_det=1) == [2]
    assert len(labels(max_det=2)) == 2
    assert labels(conf=0.99) == []
    assert labels() == [0, 1, 2]


def test_a_call_gives_a_list(predictor: Predictor) -> None:
    found = predictor([draw_frame(THREE)] * 3, channels="rgb", classes=["red"])
    assert [len(result) for result in found] == [1, 1, 1]
    assert predictor(draw_frame(THREE), "rgb")[0].names == {0: "red", 1: "green", 2: "blue"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": ["pink"]}, "pink"),
        ({"classes": [3]}, r"found \[3\]"),
        ({"conf": 1.5}, "conf"),
        ({"max_det": 0}, "max_det"),
        ({"vid_stride": 0}, "vid_stride"),
        ({"on_error": "hide"}, "on_error|hide"),
    ],
)
def test_a_wrong_option_is_refused_at_once(predictor: Predictor, options: dict[str, object], message: str) -> None:
    with pytest.raises(Exception, match=message):
        predictor.predict(draw_frame(THREE), **options)  # type: ignore[arg-type]


def test_undecodable_files_are_left_out_on_demand(
    predictor: Predictor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a.png", "c.png", "e.png"):
        cv2.imwrite(str(tmp_path / name), draw_frame(THREE))
    (tmp_path / "b.png").write_bytes(b"<html>")
    (tmp_path / "d.mp4").write_bytes(b"<html>")
    with pytest.raises(UndecodableImageError, match=r"b\.png"):
        list(predictor.predict(tmp_path))
    with caplog.at_level(logging.WARNING):
        found = list(predictor.predict(tmp_path, on_error="skip"))
    assert [Path(r.path).name for r in found] == ["a.png", "c.png", "e.png"]
    assert [name for name in ("b.png", "d.mp4") if name in caplog.text] == ["b.png", "d.mp4"]


@pytest.fixture
def camera(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make camera 0 give six frames; returns those that were taken."""
    taken: list[int] = []

    def read(video: VideoSource, stride: int) -> Iterator[Frame]:
        for index in range(6):
            taken.append(index)
            yield Frame(draw_frame(THREE), video.name, index, 0.0)

    monkeypatch.setattr(predictor_module, "read_frames", read)
    return taken


@pytest.mark.parametrize(
    "make",
    [lambda: 0, lambda: [0], lambda: iter([0]), lambda: iter([VideoSource(0)])],
    ids=["number", "list", "iterator", "source"],
)
def test_frames_of_a_camera_are_run_as_they_come(
    predictor: Predictor, detector: BrightDetector, camera: list[int], make: Callable[[], Any]
) -> None:
    for number, result in enumerate(predictor.predict(make())):
        assert result.frame_index == number
        assert camera == list(range(number + 1))
    assert detector.batch_sizes == [1] * 6


def test_a_camera_in_an_iterable_leaves_the_rest_in_batches(
    predictor: Predictor, detector: BrightDetector, camera: list[int]
) -> None:
    picture = draw_frame(THREE)
    found = [r.path for r in predictor.predict(item for item in [*[picture] * 5, 0, *[picture] * 4])]
    assert found == [*(f"image_{i}" for i in range(5)), *["camera_0"] * 6, *(f"image_{i}" for i in range(11, 15))]
    assert detector.batch_sizes == [4, 4, *[1] * 6, 4]


@pytest.mark.parametrize("batch_size", [1, 4])
def test_pictures_from_memory_wait_for_no_more_than_their_batch(detector: BrightDetector, batch_size: int) -> None:
    taken: list[int] = []

    def pictures() -> Iterator[np.ndarray]:
        for index in range(8):
            taken.append(index)
            yield draw_frame(THREE)

    for number, _ in enumerate(Predictor(detector, batch_size=batch_size).predict(pictures())):
        assert len(taken) == (number // batch_size + 1) * batch_size


def test_a_camera_that_is_not_there_is_named(predictor: Predictor) -> None:
    with pytest.raises(UndecodableImageError, match="camera_63"):
        list(predictor.predict(63))


def test_memory_does_not_grow_with_the_video(predictor: Predictor, tmp_path: Path) -> None:
    height, width = 240, 320
    path = write_video(tmp_path / "long.avi", [np.full((height, width, 3), 60, np.uint8)] * 400)
    peaks = []
    for last in (40, 400):
        tracemalloc.start()
        for number, result in enumerate(predictor.predict(path), 1):
            assert result.orig_shape == (height, width)
            if number == last:
                break
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    frame = height * width * 3
    assert peaks[0] > frame  # pictures are traced
    assert peaks[1] < peaks[0] + frame
    assert peaks[1] < 20 * frame


def test_frames_are_read_as_they_are_needed(predictor: Predictor, tmp_path: Path) -> None:
    found = predictor.predict(tmp_path / "a.avi") if write_video(tmp_path / "a.avi", levels(25)) else None
    assert found is not None
    assert next(found).frame_index == 0
    names = {t.name.partition("-")[0] for t in threading.enumerate()}
    assert "ThreadPoolExecutor" in names
    found.close()  # type: ignore[attr-defined]
    names = {t.name.partition("-")[0] for t in threading.enumerate()}
    assert "ThreadPoolExecutor" not in names


def test_threads_predict_videos_like_one_after_the_other(predictor: Predictor, tmp_path: Path) -> None:
    paths = [write_video(tmp_path / f"{n}.avi", moving(12 + n)) for n in range(4)]
    expected = [[r.boxes.data.tolist() for r in predictor.predict(path)] for path in paths]
    found: dict[int, list[Results]] = {}
    threads = [
        threading.Thread(target=lambda n=n: found.update({n: list(predictor.predict(paths[n]))})) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [[r.boxes.data.tolist() for r in found[n]] for n in range(4)] == expected
    assert sum(map(len, expected)) == 12 + 13 + 14 + 15
