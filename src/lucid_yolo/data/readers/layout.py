"""Where the images, labels and class names of a data set are: a data YAML, or folders found by looking.

Paths are joined and tidied as text; no symbolic link is resolved, so labels are sought next to the name that the data
set uses. ``path``, ``train``, ``val``, ``test`` of a YAML are relative to the YAML.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from lucid_yolo.data.image import UndecodableImageError, read_header
from lucid_yolo.structures import ClassMap

_log = logging.getLogger(__name__)

Split = Literal["train", "val", "test"]
SPLIT_ALIASES: dict[Split, tuple[str, ...]] = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}
IMAGE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".webp", ".tif", ".tiff", ".bmp", ".dib", ".gif"}
    | {".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".j2k", ".avif", ".qoi"}
)

YAML_NAMES = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")
NAME_FILES = ("classes.txt", "obj.names", "labels/classes.txt", "labels.txt")
_ABSENT = ("", "null", "~")


@dataclass(frozen=True)
class DataConfig:
    """What a data YAML, or a look at the folders, says about a data set.

    Attributes:
        root: Folder that relative paths start from.
        yaml_path: The YAML, if there is one.
        entries: Per split, the files and folders named for it, tidied but not checked.
        class_map: Classes, if they are named anywhere.
        labels_root: Folder that takes the place of ``labels``, if set.
        keypoint_shape: ``kpt_shape`` (K, D) of a keypoint set, whose rows carry K·D more fields.
    """

    root: Path
    yaml_path: Path | None
    entries: dict[Split, tuple[Path, ...]]
    class_map: ClassMap | None
    labels_root: Path | None = None
    keypoint_shape: tuple[int, int] | None = None


def load_config(data_root: str | Path) -> DataConfig:
    """Read the data YAML of ``data_root`` (the YAML itself or a folder), or look for the usual folders.

    Raises:
        FileNotFoundError: ``data_root`` does not exist.
        ValueError: The YAML contradicts itself.
    """
    root = Path(os.path.abspath(data_root))
    if not root.exists():
        raise FileNotFoundError(f"data_root: expected a folder or a data YAML, found nothing at {root}")
    yaml_path = root if root.is_file() else _find_yaml(root)
    if yaml_path is None:
        return DataConfig(root, None, _find_split_folders(root), _read_name_file(root))
    if yaml_path.suffix.lower() not in (".yaml", ".yml"):
        raise ValueError(f"data_root: expected a folder or a data YAML, found the file {yaml_path}")
    return _parse_yaml(yaml_path)


def tidy(path: str | Path) -> Path:
    """Remove ``.`` and ``..`` from a path as text, without asking the file system."""
    return Path(os.path.normpath(path))


def walk_folders(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield every folder at and below ``folder`` with the names of its image files, sorted.

    Images are known by their suffix; files without one by their content. Linked folders are entered under their own
    name, once; names that start with a dot are left out.
    """
    seen: set[tuple[int, int]] = set()
    for current, folders, files in os.walk(folder, followlinks=True):
        status = os.stat(current)
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield Path(current), [name for name in sorted(files) if name[0] != "." and _is_image(current, name)]


def _is_image(folder: str, name: str) -> bool:
    suffix = os.path.splitext(name)[1].lower()
    if suffix:
        return suffix in IMAGE_SUFFIXES
    try:
        read_header(os.path.join(folder, name))
    except (UndecodableImageError, OSError):
        return False
    return True


def _find_yaml(root: Path) -> Path | None:
    for name in YAML_NAMES:
        if (root / name).is_file():
            return root / name
    found = sorted(p for p in root.iterdir() if p.suffix.lower() in (".yaml", ".yml") and not p.name.startswith("."))
    return found[0] if len(found) == 1 and "names" in _load_yaml(found[0]) else None


def _load_yaml(path: Path) -> dict[str, Any]:
    """Load with every scalar as text: class names such as ``no`` or ``1.0`` stay what they are."""
    try:
        content = yaml.load(path.read_text(encoding="utf-8-sig"), Loader=yaml.BaseLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: expected UTF-8 YAML, found: {error}") from error
    is_mapping = isinstance(content, dict)
    if not is_mapping:
        raise ValueError(f"{path}: expected a mapping with `train`, `val` and `names`, found {type(content).__name__}")
    settings: dict[str, Any] = content
    return settings


def _parse_yaml(path: Path) -> DataConfig:
    content = _load_yaml(path)
    root = path.parent
    if content.get("path", "") not in _ABSENT:
        named = tidy(root / os.path.expanduser(content["path"]))
        if named.is_dir():
            root = named
        else:  # written for another machine or another working folder
            _log.warning("%s: `path` %s does not exist; reading relative to the YAML instead", path, named)
    entries: dict[Split, tuple[Path, ...]] = {}
    folders = _find_split_folders(root)
    for split, aliases in SPLIT_ALIASES.items():
        value = next((content[alias] for alias in aliases if content.get(alias, "") not in _ABSENT), None)
        if value is None:
            entries.update({split: folders[split]} if split in folders else {})
        else:
            values = value if isinstance(value, list) else [value]
            entries[split] = tuple(_find_entry(root, str(item), split) for item in values)
    labels = content.get("labels", "")
    return DataConfig(
        root=root,
        yaml_path=path,
        entries=entries,
        class_map=_parse_names(path, content),
        labels_root=None if labels in _ABSENT else tidy(root / labels),
        keypoint_shape=_parse_keypoint_shape(path, content),
    )


def _find_entry(root: Path, value: str, split: Split) -> Path:
    """Return the place a YAML value means: as written, without leading ``..``, or under another split name."""
    written = tidy(root / os.path.expanduser(value))
    stripped = value
    while stripped.startswith("../"):
        stripped = stripped[3:]
    candidates = [written, tidy(root / stripped)]
    for place in tuple(candidates):
        parts = place.relative_to(root).parts if place.is_relative_to(root) else ()
        aliases = SPLIT_ALIASES[split]
        candidates += [root.joinpath(*(alias if p in aliases else p for p in parts)) for alias in aliases]
    found = next((place for place in candidates if place.exists() and place != root), written)
    if found != written:
        _log.warning("`%s: %s`: %s does not exist; using %s", split, value, written, found)
    return found


def _find_split_folders(root: Path) -> dict[Split, tuple[Path, ...]]:
    found: dict[Split, tuple[Path, ...]] = {}
    for split, aliases in SPLIT_ALIASES.items():
        image_sets = [root / "ImageSets" / "Main" / f"{alias}.txt" for alias in aliases]
        folders = [f for alias in aliases for f in (root / "images" / alias, root / alias / "images", root / alias)]
        place = next((p for p in image_sets if p.is_file()), None) or next((p for p in folders if p.is_dir()), None)
        if place is not None:
            found[split] = (place,)
    return found


def _parse_names(path: Path, content: dict[str, Any]) -> ClassMap | None:
    names, count = content.get("names"), content.get("nc", "")
    if isinstance(names, dict):
        try:
            by_id = {int(key): str(value) for key, value in names.items()}
        except ValueError as error:
            raise ValueError(f"{path}: `names` expected integer ids as keys, found {list(names)}") from error
        class_map = ClassMap(tuple(by_id[i] for i in sorted(by_id)), tuple(sorted(by_id)))
    elif isinstance(names, list):
        class_map = ClassMap.from_names([str(name) for name in names])
    elif names in (None, *_ABSENT):
        if not str(count).isdigit():
            return _read_name_file(path.parent)
        class_map = ClassMap.from_names([str(i) for i in range(int(count))])
    else:
        raise ValueError(f"{path}: `names` expected a list or a map from id to name, found {names!r}")
    if str(count).isdigit() and int(count) != len(class_map):
        raise ValueError(f"{path}: `nc` is {count} but `names` holds {len(class_map)}; make them agree or remove `nc`")
    return class_map


def _parse_keypoint_shape(path: Path, content: dict[str, Any]) -> tuple[int, int] | None:
    value = content.get("kpt_shape")
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2 or not all(str(item).isdigit() for item in value):
        raise ValueError(f"{path}: `kpt_shape` expected [K, D], found {value!r}")
    return int(value[0]), int(value[1])


def _read_name_file(root: Path) -> ClassMap | None:
    for name in NAME_FILES:
        if (root / name).is_file():
            lines = (root / name).read_text(encoding="utf-8-sig").splitlines()
            names = [line.strip() for line in lines if line.strip()]
            return ClassMap.from_names(names) if names else None
    return None
