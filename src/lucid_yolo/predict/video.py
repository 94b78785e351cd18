"""Videos read and written frame by frame, through OpenCV."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import cv2
import numpy as np
from jaxtyping import UInt8

from lucid_yolo.data.image import UndecodableImageError
from lucid_yolo.predict.sources import VideoSource

CODECS = {".mp4": "mp4v", ".m4v": "mp4v", ".mov": "mp4v", ".mkv": "mp4v", ".avi": "MJPG"}
DEFAULT_FPS = 30.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Frame:
    """One picture of a video.

    Attributes:
        image_rgb: RGB, its own memory.
        name: File, address, or ``camera_<number>``.
        index: Number of the frame in the video, from 0; frames that were passed over count.
        timestamp_s: Time in the video; since the first frame for a camera or a stream.
    """

    image_rgb: UInt8[np.ndarray, "H W 3"]
    name: str
    index: int
    timestamp_s: float


def read_frames(video: VideoSource, stride: int = 1) -> Iterator[Frame]:
    """Yield frames in order, one in memory at a time.

    Of a camera or an endless stream the newest frame is given and those that came meanwhile are dropped, so that the
    reader is never late; of a file, here or behind an address, none is.

    Args:
        video: The video; it is opened at the first frame.
        stride: 1 for every frame, 2 for every other one, ...

    Raises:
        UndecodableImageError: It cannot be opened, or has no frame.
    """
    location = str(video.location) if isinstance(video.location, Path) else video.location
    capture = cv2.VideoCapture(location)
    try:
        if not capture.isOpened():
            raise UndecodableImageError(f"{video.name}: not a video that can be opened")
        announced = int(capture.get(cv2.CAP_PROP_FRAME_COUNT))
        is_endless = video.is_live and announced <= 0
        count = 0
        with closing((_newest if is_endless else _every)(capture, video, stride)) as frames:
            for frame in frames:
                count = frame.index + 1
                yield frame
        if not count:
            raise UndecodableImageError(f"{video.name}: a video without a frame that can be decoded")
        if not is_endless and count + stride <= announced:
            _log.warning("%s: ends after frame %d of %d; the file may be damaged", video.name, count, announced)
    finally:
        capture.release()


def video_fps(video: VideoSource) -> float:
    """Return the frame rate that a video file announces; 30 where it does not, and for what is live."""
    if video.is_live:
        return DEFAULT_FPS
    capture = cv2.VideoCapture(str(video.location))
    try:
        return _fps(capture)
    finally:
        capture.release()


def _fps(capture: cv2.VideoCapture) -> float:
    fps = float(capture.get(cv2.CAP_PROP_FPS))
    return fps if 0 < fps <= 1000 else DEFAULT_FPS


def _every(capture: cv2.VideoCapture, video: VideoSource, stride: int) -> Generator[Frame, None, None]:
    """Yield every ``stride``-th frame; those between are not converted."""
    index, period_s = 0, stride / _fps(capture)
    last_s = -period_s
    while capture.grab():
        if index % stride == 0:
            is_decoded, bgr = capture.retrieve()
            if not is_decoded:
                return
            stated_s = float(capture.get(cv2.CAP_PROP_POS_MSEC)) / 1000
            last_s = stated_s if stated_s > max(last_s, 0) else last_s + period_s
            yield Frame(_to_rgb(bgr), video.name, index, last_s)
        index += 1


def _newest(capture: cv2.VideoCapture, video: VideoSource, stride: int) -> Generator[Frame, None, None]:
    """Yield the newest frame, at least ``stride`` after the one before."""
    reader = _NewestReader(capture)
    try:
        wanted = 0
        while (latest := reader.wait_for(wanted)) is not None:
            index, timestamp_s, bgr = latest
            wanted = index + stride
            yield Frame(_to_rgb(bgr), video.name, index, timestamp_s)
    finally:
        reader.close()


class _NewestReader:
    """A thread that empties a source's buffer and keeps its newest frame.

    Args:
        capture: The opened source; until :meth:`close` only the thread reads it.
    """

    def __init__(self, capture: cv2.VideoCapture) -> None:
        self._capture = capture
        self._changed = threading.Condition()
        self._latest: tuple[int, float, np.ndarray] | None = None
        self._is_over = False
        self._thread = threading.Thread(target=self._drain, name="newest-frame", daemon=True)
        self._thread.start()

    def wait_for(self, index: int) -> tuple[int, float, np.ndarray] | None:
        """Return (index, seconds, BGR picture) of the newest frame from ``index`` on; None when the source ends."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._has(index))
            return self._latest if self._has(index) else None

    def close(self) -> None:
        """End the thread."""
        self._is_over = True
        self._thread.join()

    def _has(self, index: int) -> bool:
        return self._latest is not None and self._latest[0] >= index

    def _drain(self) -> None:
        index, start = 0, time.monotonic()
        while not self._is_over:
            is_decoded, bgr = self._capture.read()
            with self._changed:
                if is_decoded:
                    self._latest = (index, time.monotonic() - start, bgr)
                else:
                    self._is_over = True
                self._changed.notify()
            index += 1


def _to_rgb(bgr: np.ndarray) -> np.ndarray:
    if bgr.ndim == 2:
        return np.repeat(bgr[:, :, None], 3, axis=2)
    rgb: np.ndarray = cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB)
    return rgb


class VideoWriter:
    """Writes frames to a video file, opened with the first of them.

    Args:
        path: File; its suffix names the container, one of mp4, m4v, mov, mkv, avi. Missing folders are made.
        fps: Frames per second.

    Raises:
        ValueError: Another suffix, or a frame rate that is not positive.
    """

    def __init__(self, path: str | Path, fps: float = DEFAULT_FPS) -> None:
        self.path = Path(path)
        if self.path.suffix.lower() not in CODECS:
            raise ValueError(f"video: expected a file of {' '.join(CODECS)}, found {self.path.name}")
        if not 0 < fps < float("inf"):
            raise ValueError(f"fps: expected a positive frame rate, found {fps}")
        self.fps = fps
        self._size: tuple[int, int] | None = None
        self._writer: cv2.VideoWriter | None = None

    def __enter__(self) -> VideoWriter:
        return self

    def write(self, image_rgb: UInt8[np.ndarray, "H W 3"]) -> None:
        """Append a frame.

        Args:
            image_rgb: RGB, the size of the first.

        Raises:
            ValueError: Another size than the first frame.
            OSError: The file cannot be written.
        """
        height, width = image_rgb.shape[:2]
        if self._writer is None:
            self._size = (height, width)
            self._writer = self._open(width, height)
        if self._size != (height, width):
            raise ValueError(f"{self.path}: expected frames of {self._size} (height, width), found {(height, width)}")
        self._writer.write(cv2.cvtColor(image_rgb, cv2.COLOR_RGB2BGR))

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.release()
            self._writer = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self, width: int, height: int) -> cv2.VideoWriter:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        codec = cv2.VideoWriter.fourcc(*CODECS[self.path.suffix.lower()])
        writer = cv2.VideoWriter(str(self.path), codec, self.fps, (width, height))
        if not writer.isOpened():
            raise OSError(f"{self.path}: this build of OpenCV cannot write such a video")
        return writer
