from __future__ import annotations

import http.server
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
from bright_detector import levels

from lucid_yolo.data.image import UndecodableImageError
from lucid_yolo.predict.sources import VideoSource
from lucid_yolo.predict.video import VideoWriter, read_frames, video_fps
from samples import write_video


def level(image: np.ndarray) -> float:
    return float(image.mean()) / 10


@pytest.mark.parametrize("suffix", ["avi", "mp4"])
@pytest.mark.parametrize("stride", [1, 3])
def test_frames_come_in_order_with_number_and_time(tmp_path: Path, suffix: str, stride: int) -> None:
    path = write_video(tmp_path / f"a.{suffix}", levels(20), fps=12.5)
    frames = list(read_frames(VideoSource(path), stride))
    assert [f.index for f in frames] == list(range(0, 20, stride))
    assert [round(level(f.image_rgb)) for f in frames] == [f.index for f in frames]
    assert [f.timestamp_s for f in frames] == pytest.approx([f.index / 12.5 for f in frames], abs=1e-3)
    assert {f.name for f in frames} == {str(path)}
    assert video_fps(VideoSource(path)) == pytest.approx(12.5)


def test_channels_are_rgb(tmp_path: Path) -> None:
    red = np.zeros((48, 64, 3), np.uint8)
    red[:, :, 0] = 200
    (frame,) = read_frames(VideoSource(write_video(tmp_path / "a.avi", [red])))
    assert frame.image_rgb[..., 0].mean() > 180
    assert frame.image_rgb[..., 1:].mean() < 20


def test_nothing_is_opened_before_the_first_frame(tmp_path: Path) -> None:
    frames = read_frames(VideoSource(tmp_path / "a.avi"))
    write_video(tmp_path / "a.avi", levels(2))
    assert next(frames).index == 0
    frames.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("content", [b"", b"<html></html>" * 50], ids=["empty", "html"])
def test_no_video_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.mp4").write_bytes(content)
    with pytest.raises(UndecodableImageError, match=r"a\.mp4"):
        next(read_frames(VideoSource(tmp_path / "a.mp4")))


def test_a_cut_video_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture, rng: np.random.Generator) -> None:
    noise = [rng.integers(0, 256, (48, 64, 3), dtype=np.uint8) for _ in range(40)]
    path = write_video(tmp_path / "a.avi", noise)
    with caplog.at_level(logging.WARNING):
        assert len(list(read_frames(VideoSource(path), stride=7))) == 6
        assert not caplog.records
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        assert 5 < len(list(read_frames(VideoSource(path)))) < 35
    assert "of 40" in caplog.text


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    frames = levels(10)
    with VideoWriter(tmp_path / "new" / "b.mp4", 20.0) as writer:
        for frame in frames:
            writer.write(frame)
    video = VideoSource(writer.path)
    assert video_fps(video) == pytest.approx(20)
    assert [round(level(f.image_rgb)) for f in read_frames(video)] == list(range(10))


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\.mp4.*found b\.gif"):
        VideoWriter(tmp_path / "b.gif")
    with pytest.raises(ValueError, match="positive"):
        VideoWriter(tmp_path / "b.mp4", 0.0)
    with VideoWriter(tmp_path / "b.mp4") as writer:
        writer.write(np.zeros((40, 60, 3), np.uint8))
        with pytest.raises(ValueError, match=r"\(40, 60\).*\(60, 40\)"):
            writer.write(np.zeros((60, 40, 3), np.uint8))


class Stream(http.server.BaseHTTPRequestHandler):
    """An endless stream of pictures whose brightness counts up, 50 a second."""

    num_frames = 120

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=frame")
        self.end_headers()
        for number in range(self.num_frames):
            picture = cv2.imencode(".jpg", np.full((48, 64, 3), 2 * number, np.uint8))[1].tobytes()
            head = f"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {len(picture)}\r\n\r\n"
            try:
                self.wfile.write(head.encode() + picture + b"\r\n")
            except OSError:
                return
            time.sleep(0.02)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stream)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/cam.mjpg"
    server.shutdown()
    thread.join()
    server.server_close()


def test_of_a_stream_a_slow_reader_gets_the_newest_frame(address: str) -> None:
    seen = []
    for frame in read_frames(VideoSource(address)):
        seen.append((frame.index, float(frame.image_rgb.mean()) / 2, frame.timestamp_s))
        time.sleep(0.2)
    indices = [index for index, _, _ in seen]
    assert indices == sorted(set(indices))
    assert 3 <= len(seen) <= 40
    assert all(abs(index - brightness) <= 6 for index, brightness, _ in seen)
    assert indices[-1] >= Stream.num_frames - 15
    assert seen[-1][2] > 0.5
    assert not [t for t in threading.enumerate() if t.name == "newest-frame"]
