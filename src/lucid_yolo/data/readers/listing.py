"""The images of a split and the place of each image's label file, for formats with one label file per image.

* A split is any number of folders, single images, and text files with an image per row. A text file in ``ImageSets``
  holds names without suffix, of images in the neighbouring ``JPEGImages``.
* The label file of ``.../images/.../a.jpg`` has the same name below ``labels`` (last ``images`` folder; ``JPEGImages``
  belongs to ``Annotations``), else it is beside the image; the YAML's ``labels:`` takes the place of ``labels``.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lucid_yolo.data.account import AccountBuilder
from lucid_yolo.data.readers.inputs import InputTrace
from lucid_yolo.data.readers.layout import IMAGE_SUFFIXES, DataConfig, Split, tidy, walk_folders

_LABEL_FOLDERS = {"images": ("labels", "annotations", "Annotations"), "JPEGImages": ("Annotations", "labels")}
IMAGE_FOLDERS = frozenset(_LABEL_FOLDERS)
_SET_FOLDER = "ImageSets"


@dataclass(frozen=True)
class Source:
    """An image of the split and the folder its id is relative to."""

    path: Path
    image_root: Path


def find_sources(config: DataConfig, split: Split, account: AccountBuilder, inputs: InputTrace) -> list[Source]:
    """Return the images of a split, sorted by path.

    Args:
        config: Where things are.
        split: Which split.
        account: Takes a note of images that are listed twice.
        inputs: Takes every folder and list that was looked at.

    Raises:
        ValueError: The split is not named, or its images are not there.
    """
    if split not in config.entries:
        where = config.yaml_path or config.root
        raise ValueError(f"split {split!r}: expected in {where}, found only {sorted(config.entries)}")
    by_path: dict[Path, Source] = {}
    for entry in config.entries[split]:
        for source in _list_entry(entry, config.root, inputs):
            if source.path in by_path:
                account.note("image listed twice (used once)", str(source.path))
            by_path.setdefault(source.path, source)
    if not by_path:
        places = ", ".join(map(str, config.entries[split]))
        raise ValueError(f"split {split!r}: expected images, found none in {places}")
    return [by_path[path] for path in sorted(by_path, key=str)]


def name_images(sources: list[Source], root: Path) -> list[str]:
    """Return image ids: path below the image root without suffix; where that repeats, below the data root with it."""
    ids = [_below(os.path.splitext(s.path)[0], str(s.image_root)) for s in sources]
    counts = Counter(ids)
    return [_below(str(s.path), str(root)) if counts[i] > 1 else i for s, i in zip(sources, ids, strict=True)]


class LabelFinder:
    """Finds the label files of a split; each folder is listed once, so that many are found quickly.

    Args:
        config: Where things are.
        suffix: Of label files, as in ``".txt"``.
        inputs: Takes every folder that was looked into.
    """

    def __init__(self, config: DataConfig, suffix: str, inputs: InputTrace) -> None:
        self._config, self._suffix, self._inputs = config, suffix, inputs
        self._folders: dict[tuple[str, Path], list[str]] = {}
        self._names: dict[str, frozenset[str]] = {}

    def find(self, source: Source) -> Path:
        """Return the label file of an image: the first place that has one, else the first place looked at."""
        image_folder, image_name = os.path.split(source.path)
        folders = self._folders.get((image_folder, source.image_root))
        if folders is None:
            folders = [str(folder) for folder in label_folders(source, self._config)]
            self._folders[image_folder, source.image_root] = folders
        name = os.path.splitext(image_name)[0] + self._suffix
        return Path(next((folder for folder in folders if name in self._list(folder)), folders[0]), name)

    def _list(self, folder: str) -> frozenset[str]:
        if folder not in self._names:
            self._inputs.add_folder(Path(folder))
            try:
                self._names[folder] = frozenset(os.listdir(folder))
            except OSError:
                self._names[folder] = frozenset()
        return self._names[folder]


def label_folders(source: Source, config: DataConfig) -> list[Path]:
    """Return the folders that may hold the label file of an image, most likely first."""
    folder = source.path.parent
    parts = folder.parts
    last = max((i for i, part in enumerate(parts) if part in _LABEL_FOLDERS), default=None)
    if config.labels_root is None:
        swapped = _LABEL_FOLDERS[parts[last]] if last is not None else ()
        return [*(Path(*parts[:last], name, *parts[last + 1 :]) for name in swapped if last is not None), folder]
    folders = [config.labels_root.joinpath(*parts[last + 1 :])] if last is not None else []
    if folder.is_relative_to(source.image_root):
        folders.append(config.labels_root / folder.relative_to(source.image_root))
    return folders or [config.labels_root]


def split_rows(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number, row) of every row of a text file that is not blank."""
    text = path.read_bytes().decode("utf-8-sig", errors="replace")
    for line, row in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        if row.strip():
            yield line, row.strip()


def first_source(config: DataConfig, split: Split) -> Source | None:
    """Return one image of a split without listing them all; None when there is none."""
    for entry in config.entries.get(split, ()):
        if entry.exists():
            source = next(iter(_list_entry(entry, config.root, InputTrace())), None)
            if source is not None:
                return source
    return None


def _list_entry(entry: Path, root: Path, inputs: InputTrace) -> Iterable[Source]:
    """List the images of a folder, a text file of images, or a single image."""
    if entry.is_dir():
        return _list_folder(entry, inputs)
    if not entry.is_file():
        raise ValueError(f"images: expected a folder, an image or a text file of images, found nothing at {entry}")
    inputs.add_file(entry)
    if entry.suffix.lower() in IMAGE_SUFFIXES:
        return [Source(entry, root)]
    if _SET_FOLDER in entry.parts:
        return _list_image_set(entry, inputs)
    return [Source(_find_listed(row, entry.parent, root, inputs), root) for _, row in split_rows(entry)]


def _list_folder(entry: Path, inputs: InputTrace) -> Iterator[Source]:
    for folder, names in walk_folders(entry):
        inputs.add_folder(folder)
        yield from (Source(folder / name, entry) for name in names)


def _find_listed(row: str, list_folder: Path, root: Path, inputs: InputTrace) -> Path:
    """Return a listed image; relative names start from the list's folder, else from the data root."""
    candidates = [tidy(list_folder / row), tidy(root / row)]
    for path in candidates:
        inputs.add_folder(path.parent)
    return next((path for path in candidates if path.is_file()), candidates[0])


def _list_image_set(entry: Path, inputs: InputTrace) -> Iterator[Source]:
    """List a file of ``ImageSets``: one name per row; what follows a blank belongs to other tasks."""
    depth = len(entry.parts) - 1 - entry.parts[::-1].index(_SET_FOLDER)
    image_root = Path(*entry.parts[:depth], "JPEGImages")
    by_name: dict[str, Path] = {}
    for folder, names in walk_folders(image_root):
        inputs.add_folder(folder)
        by_name |= {_below(os.path.splitext(folder / name)[0], str(image_root)): folder / name for name in names}
    for _, row in split_rows(entry):
        name = row if row in by_name else row.split()[0]
        yield Source(by_name.get(name, image_root / f"{name}.jpg"), image_root)


def _below(path: str, root: str) -> str:
    start = root.rstrip(os.sep) + os.sep
    return path.removeprefix(start).replace(os.sep, "/")
