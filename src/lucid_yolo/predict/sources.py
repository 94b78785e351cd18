"""Which pictures a source names: a file, a folder, a pattern, or a list of these."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from pathlib import Path

from lucid_yolo.data.image import UndecodableImageError, read_header
from lucid_yolo.data.readers.layout import IMAGE_SUFFIXES

Source = str | Path | Sequence[str | Path]


def list_images(source: Source) -> list[Path]:
    """Return the image files that a source names; nothing is decoded.

    A file is taken as it is. A folder gives the image files directly inside it, a pattern (``*``, ``?``, ``[]``,
    ``**`` for any depth) those that match, both sorted: files with a known suffix in any case, and files without a
    suffix whose content is an image; names that start with a dot are left out. A list keeps its order.

    Args:
        source: File, folder, pattern, or a sequence of these.

    Raises:
        FileNotFoundError: Something is not there, or holds no image; the message says what was looked for.
        ValueError: The source is an empty list, an empty text or a URL.
    """
    if not isinstance(source, str | Path):
        if not source:
            raise ValueError("source: expected at least one file, folder or pattern, found an empty list")
        return [path for entry in source for path in list_images(entry)]
    text = str(source)
    if not text.strip() or (isinstance(source, str) and "://" in text):
        raise ValueError(f"source: expected a file, folder or pattern on this machine, found {text!r}")
    path = Path(text)
    if path.is_file():
        return [path]
    if path.is_dir():
        return _only_images(path.iterdir(), f"folder {text!r}", f"{text.rstrip('/')}/**/*")
    if glob.has_magic(text):
        return _only_images(map(Path, glob.iglob(text, recursive=True)), f"pattern {text!r}", None)
    raise FileNotFoundError(f"source: {text!r} is no file, no folder and no pattern; looked in {Path.cwd()}")


def _only_images(paths: Iterable[Path], place: str, deeper: str | None) -> list[Path]:
    seen = sorted(paths)
    images = [path for path in seen if path.is_file() and not path.name.startswith(".") and _is_image(path)]
    if not images:
        others = f"{sum(p.is_file() for p in seen)} other files and {sum(p.is_dir() for p in seen)} folders"
        hint = f"; for images in sub-folders use {deeper!r}" if deeper and any(p.is_dir() for p in seen) else ""
        known = " ".join(sorted(IMAGE_SUFFIXES))
        raise FileNotFoundError(f"source: no image in {place}, only {others}; looked for {known}{hint}")
    return images


def _is_image(path: Path) -> bool:
    if path.suffix:
        return path.suffix.lower() in IMAGE_SUFFIXES
    try:
        read_header(path)
    except UndecodableImageError:
        return False
    return True
