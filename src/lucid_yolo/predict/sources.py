"""What a source names: picture files, videos, cameras, streams; a folder, a pattern, or a list of these."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lucid_yolo.data.image import UndecodableImageError, read_header
from lucid_yolo.data.readers.layout import IMAGE_SUFFIXES

_VIDEO_FORMATS = "3gp asf avi flv m2ts m4v mkv mov mp4 mpeg mpg mts ogv ts vob webm wmv"
VIDEO_SUFFIXES = frozenset(f".{name}" for name in _VIDEO_FORMATS.split())
STREAM_SCHEMES = ("http", "https", "rtmp", "rtmps", "rtsp", "rtsps", "tcp", "udp")
LIST_SUFFIX = ".txt"


@dataclass(frozen=True)
class VideoSource:
    """A video that is read frame by frame; nothing is opened yet.

    Attributes:
        location: File, address of a stream, or number of a camera.
    """

    location: Path | str | int

    @property
    def is_live(self) -> bool:
        """Whether it is a camera or a stream, whose frames come when they come."""
        return not isinstance(self.location, Path)

    @property
    def name(self) -> str:
        """File, address, or ``camera_<number>``."""
        return f"camera_{self.location}" if isinstance(self.location, int) else str(self.location)


Source = str | Path | int | Sequence[str | Path | int]


def list_sources(source: Source) -> list[Path | VideoSource]:
    """Return the picture files, as paths, and the videos that a source names; nothing is decoded or opened.

    A file is taken as it is: a video by its suffix, ``.txt`` as a list with one file or address a line, relative to
    the folder of the list; any other as a picture. A folder gives the pictures and videos directly inside it, a
    pattern (``*``, ``?``, ``[]``, ``**`` for any depth) those that match, both sorted: files with a known suffix in
    any case, and files without a suffix whose content is an image; names that start with a dot are left out. A
    number, also as text, is a camera, an address with ``://`` a stream. A sequence keeps its order.

    Args:
        source: File, folder, pattern, camera, stream, or a sequence of these.

    Raises:
        FileNotFoundError: Something is not there, or holds no picture; the message says what was looked for.
        ValueError: The source is an empty list or text, a camera below 0, or an address of an unknown kind.
    """
    if isinstance(source, int):
        if isinstance(source, bool) or source < 0:
            raise ValueError(f"source: expected the number of a camera, at least 0, found {source}")
        return [VideoSource(source)]
    if not isinstance(source, str | Path):
        if not source:
            raise ValueError("source: expected at least one file, folder or pattern, found an empty list")
        return [found for entry in source for found in list_sources(entry)]
    if isinstance(source, str) and "://" in source:
        return [_stream(source)]
    return _list_named(str(source))


def _stream(address: str) -> VideoSource:
    if address.partition("://")[0].lower() not in STREAM_SCHEMES:
        known = ", ".join(STREAM_SCHEMES)
        raise ValueError(f"source: expected a file or an address that begins with one of {known}, found {address!r}")
    return VideoSource(address)


def _list_named(text: str) -> list[Path | VideoSource]:
    if not text.strip():
        raise ValueError(f"source: expected a file, folder, pattern, camera or address, found {text!r}")
    path = Path(text)
    if path.is_file():
        return _read_list(path) if path.suffix.lower() == LIST_SUFFIX else [_as_media(path)]
    if path.is_dir():
        return _only_media(path.iterdir(), f"folder {text!r}", f"{text.rstrip('/')}/**/*")
    if glob.has_magic(text):
        return _only_media(map(Path, glob.iglob(text, recursive=True)), f"pattern {text!r}", None)
    if text.isdecimal():
        return [VideoSource(int(text))]
    raise FileNotFoundError(f"source: {text!r} is no file, no folder and no pattern; looked in {Path.cwd()}")


def _read_list(path: Path) -> list[Path | VideoSource]:
    lines = [line.strip() for line in path.read_text("utf-8-sig", errors="surrogateescape").splitlines()]
    found: list[Path | VideoSource] = []
    for line in filter(None, lines):
        if "://" in line:
            found.append(_stream(line))
        elif (file := path.parent / line).is_file():
            found.append(_as_media(file))
        else:
            raise FileNotFoundError(f"source: the list {path} names {line!r}, which is no file; looked for {file}")
    if not found:
        raise FileNotFoundError(f"source: no line in the list {path}; expected one picture or video a line")
    return found


def _only_media(paths: Iterable[Path], place: str, deeper: str | None) -> list[Path | VideoSource]:
    seen = sorted(paths)
    media = [path for path in seen if path.is_file() and not path.name.startswith(".") and _is_media(path)]
    if not media:
        others = f"{sum(p.is_file() for p in seen)} other files and {sum(p.is_dir() for p in seen)} folders"
        hint = f"; for images in sub-folders use {deeper!r}" if deeper and any(p.is_dir() for p in seen) else ""
        known = " ".join([*sorted(IMAGE_SUFFIXES), *sorted(VIDEO_SUFFIXES)])
        raise FileNotFoundError(f"source: no image in {place}, only {others}; looked for {known}{hint}")
    return [_as_media(path) for path in media]


def _as_media(path: Path) -> Path | VideoSource:
    return VideoSource(path) if path.suffix.lower() in VIDEO_SUFFIXES else path


def _is_media(path: Path) -> bool:
    if path.suffix:
        return path.suffix.lower() in IMAGE_SUFFIXES | VIDEO_SUFFIXES
    try:
        read_header(path)
    except UndecodableImageError:
        return False
    return True
