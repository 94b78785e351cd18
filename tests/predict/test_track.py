"""Tracks of bright rectangles that move as the test knows, through the real predictor and the real trackers."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from bright_detector import BrightDetector, draw_frame

from lucid_yolo.predict.predictor import Predictor
from lucid_yolo.predict.results import Results
from samples import write_video

trackers = pytest.importorskip("trackers")

NUM_FRAMES = 24
Boxes = list[tuple[int, int, int, int, int]]


def crossing(frame: int) -> Boxes:
    """Two rectangles of two classes that pass one above the other, and one that comes at frame 8."""
    moving: Boxes = [(4 + 3 * frame, 6, 20, 16, 0), (76 - 3 * frame, 30, 16, 20, 1)]
    return moving + ([(40, 64, 24, 24, 2)] if frame >= 8 else [])


@pytest.fixture
def predictor() -> Predictor:
    return Predictor(BrightDetector(), batch_size=4)


@pytest.fixture
def video(tmp_path: Path) -> Path:
    return write_video(tmp_path / "a.avi", [draw_frame(crossing(i)) for i in range(NUM_FRAMES)])


def ids_by_class(results: list[Results]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for result in results:
        for row in result.summary():
            found.setdefault(row["name"], set()).add(row["track_id"])
    return found


@pytest.mark.parametrize("tracker", ["bytetrack", "ocsort", "botsort", "sort"])
@pytest.mark.filterwarnings("error")
def test_an_object_keeps_its_id(predictor: Predictor, video: Path, tracker: str) -> None:
    found = list(predictor.track(video, tracker))
    assert [r.frame_index for r in found] == list(range(NUM_FRAMES))
    ids = ids_by_class(found)
    assert sorted(ids) == ["blue", "green", "red"]
    assert all(len(own) == 1 for own in ids.values()), ids
    assert set.union(*ids.values()) == {1, 2, 3}
    late = [r for r in found if "blue" in {row["name"] for row in r.summary()}]
    assert 8 < late[0].frame_index <= 12  # type: ignore[operator]
    for result in found[6:]:
        frame = result.frame_index or 0
        for box, label in zip(result.boxes.xyxy.tolist(), result.boxes.cls.int().tolist(), strict=True):
            (x, y, w, h, _) = next(b for b in crossing(frame) if b[4] == label)
            assert box == pytest.approx([max(x, 0), y, min(x + w, 96), y + h], abs=2)


def test_an_object_that_hides_for_a_while_keeps_its_id(predictor: Predictor) -> None:
    frames = [draw_frame(crossing(i)[:1] if i not in (9, 10, 11) else []) for i in range(20)]
    found = list(predictor.track(frames, channels="rgb"))
    assert ids_by_class(found) == {"red": {1}}
    assert [len(r) for r in found[9:12]] == [0, 0, 0]
    assert len(found[15]) == 1


def test_frames_out_of_order_are_other_objects(predictor: Predictor) -> None:
    """Negative control: what does not move like an object gets more ids than there are objects."""
    places = [4, 70, 4, 70, 40, 4, 70, 40]
    frames = [draw_frame([(x, 10, 16, 16, 0)]) for x in places for _ in range(3)]
    assert len(ids_by_class(list(predictor.track(frames, channels="rgb")))["red"]) >= 3


def test_ids_begin_anew_with_every_video_and_call(predictor: Predictor, video: Path) -> None:
    once = [r.boxes.data.tolist() for r in predictor.track(video)]
    both = [r.boxes.data.tolist() for r in predictor.track([video, video])]
    assert both == once + once
    pictures = [draw_frame(crossing(i)) for i in range(NUM_FRAMES)]
    after_pictures = [r.boxes.data.tolist() for r in predictor.track([*pictures, video], channels="rgb")]
    assert after_pictures[NUM_FRAMES:] == once
    tracker = trackers.ByteTrackTracker(track_activation_threshold=0.25, high_conf_det_threshold=0.25)
    for _ in range(2):
        assert [r.boxes.data.tolist() for r in predictor.track(video, tracker)] == once


def test_calls_in_threads_do_not_mix(predictor: Predictor, video: Path) -> None:
    expected = [r.boxes.data.tolist() for r in predictor.track(video)]
    found: list[Any] = []
    work = lambda: found.append([r.boxes.data.tolist() for r in predictor.track(video)])  # noqa: E731
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 3


def test_weak_detections_continue_a_track_but_begin_none(predictor: Predictor) -> None:
    def frame(i: int, level: int) -> np.ndarray:
        image = np.zeros((96, 96, 3), np.uint8)
        image[20:44, 2 * i : 2 * i + 24, 0] = level
        return image

    levels = [250] * 6 + [180] * 6
    followed = list(predictor.track([frame(i, v) for i, v in enumerate(levels)], channels="rgb", conf=0.9))
    assert ids_by_class(followed) == {"red": {1}}
    assert len(followed[-1]) == 1
    assert followed[-1].boxes.conf.item() < 0.9
    weak = list(predictor.track([frame(i, 180) for i in range(12)], channels="rgb", conf=0.9))
    assert sum(map(len, weak)) == 0


def test_frames_are_taken_one_by_one(predictor: Predictor) -> None:
    read = 0

    def frames() -> Iterator[np.ndarray]:
        nonlocal read
        for i in range(1000):
            read += 1
            yield draw_frame(crossing(i % 10))

    stream = predictor.track(frames(), channels="rgb")
    for _ in range(5):
        next(stream)
    assert read <= 20
    stream.close()  # type: ignore[attr-defined]


def test_ids_are_drawn(predictor: Predictor, video: Path) -> None:
    last = list(predictor.track(video))[-1]
    detected = list(predictor.predict(video))[-1]
    assert len(last) == len(detected)
    assert last.boxes.xyxy.tolist() == detected.boxes.xyxy.tolist()
    assert (last.plot() != detected.plot()).any()
    assert cv2.absdiff(last.plot(conf=False, labels=False), detected.plot(conf=False, labels=False)).any()


def test_what_cannot_track(predictor: Predictor, video: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"bytetrack.*found 'best'"):
        predictor.track(video, "best")
    with pytest.raises(ValueError, match="conf"):
        predictor.track(video, conf=1.5)
    monkeypatch.setitem(sys.modules, "trackers", None)
    with pytest.raises(ImportError, match="extra `track`"):
        predictor.track(video)
