"""COCO JSON: ``images``, ``annotations``, ``categories``; boxes are ``x y w h`` in pixels.

* Category ids may be any integers; labels are their positions in ascending order.
* ``iscrowd`` (or ``ignore``) annotations become ignore regions, neither objects nor background.
* ``segmentation`` polygons are kept as outlines, all parts; run-length masks are not.
* An annotation without ``bbox`` takes the box of its polygons or of its run-length mask.
* A split may have several files; image ids that repeat between them are told apart by the file's name.
* A file name is sought below the folders that the YAML names beside the JSON, then below the usual ones.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lucid_yolo.data.account import AccountBuilder, RowAccount
from lucid_yolo.data.image import ImageHeader
from lucid_yolo.data.readers.boxes import (
    Box,
    RecordBuilder,
    RowError,
    enter_box,
    enter_record,
    read_headers,
)
from lucid_yolo.data.readers.frame import Frame
from lucid_yolo.data.readers.inputs import InputTrace
from lucid_yolo.data.readers.layout import SPLIT_ALIASES, DataConfig, Split
from lucid_yolo.data.readers.run_lengths import bound_runs, decode_runs
from lucid_yolo.structures import ClassMap, ImageRecord

_FIXED_NAMES = ("_annotations.coco.json", "annotations.json", "instances.json", "coco.json", "labels.json")
_OTHER_TASKS = ("captions", "stuff", "panoptic", "keypoints", "image_info")
_HEAD_BYTES = 65536
_LARGEST_AREA = 1e12
_ABSOLUTE = re.compile(r"/|[A-Za-z]:/")


@dataclass(frozen=True)
class _Annotation:
    """One annotation and its place, as in ``file:annotations[12]``."""

    where: str
    content: dict[str, Any]


def find_coco_jsons(config: DataConfig, split: Split) -> tuple[Path, ...]:
    """Return the JSON files of a split: named in the YAML, in the split's folder, in ``annotations``, or none.

    Raises:
        ValueError: Several files could be meant.
    """
    named = tuple(entry for entry in config.entries.get(split, ()) if entry.suffix.lower() == ".json")
    if named:
        return named
    aliases = SPLIT_ALIASES[split]
    for folder in _alias_folders(config.root, aliases):
        for name in _FIXED_NAMES:
            if (folder / name).is_file():
                return (folder / name,)
    found: list[Path] = []
    for folder in (config.root / "annotations", config.root):
        files = sorted(folder.glob("*.json")) if folder.is_dir() else []
        found = [p for p in files if set(re.findall("[a-z]+", p.stem.lower())) & set(aliases) and _looks_like_coco(p)]
        found = [p for p in found if "instances" in p.stem] or [
            p for p in found if not any(word in p.stem for word in _OTHER_TASKS)
        ]
        if found:
            break
    if len(found) > 1:
        names = ", ".join(p.name for p in found)
        raise ValueError(
            f"split {split!r}: expected one COCO JSON in {found[0].parent}, found {names}; name it in a YAML"
        )
    return tuple(found)


def read_coco_classes(path: Path) -> ClassMap:
    """Read only the categories of a COCO JSON, without parsing its annotations where that is possible."""
    text = path.read_text(encoding="utf-8-sig")
    matches = list(re.finditer(r'"categories"\s*:\s*(?=\[)', text))
    if matches:
        categories, _ = json.JSONDecoder().raw_decode(text, matches[-1].end())
        if all(isinstance(item, dict) and {"id", "name"} <= item.keys() for item in categories):
            return _class_map(path, categories)
    return _class_map(path, _load_json(path).get("categories"))


def read_coco(
    config: DataConfig, split: Split, paths: Sequence[Path], class_map: ClassMap, inputs: InputTrace
) -> tuple[tuple[ImageRecord, ...], RowAccount]:
    """Read one split.

    Args:
        config: Where things are.
        split: Which split.
        paths: Its JSON files.
        class_map: Classes of the data set; an annotation's category is looked up among the source ids.
        inputs: Takes every file and folder that was looked at.

    Returns:
        Records sorted by path, and the account of every annotation.

    Raises:
        ValueError: A JSON is not COCO, or names a category id differently from ``class_map``.
    """
    account = AccountBuilder()
    records: list[ImageRecord] = []
    taken: set[str] = set()
    for path in paths:
        inputs.add_file(path)
        content = _load_json(path)
        if "categories" in content:
            _check_categories(path, _class_map(path, content["categories"]), class_map)
        finder = _ImageFinder(config, split, path, inputs)
        for record in _read_file(path, content, finder, class_map, account):
            image_id = record.image_id
            if str(image_id) in taken:
                account.note("image id used in several files (prefixed by its file)", f"{path}: {image_id!r}")
                record = dataclasses.replace(record, image_id=f"{path.stem}/{image_id}")
            taken.add(str(record.image_id))
            records.append(record)
    return tuple(sorted(records, key=lambda record: (record.path, str(record.image_id)))), account.freeze()


def _read_file(
    path: Path, content: dict[str, Any], finder: _ImageFinder, class_map: ClassMap, account: AccountBuilder
) -> Iterator[ImageRecord]:
    images = _index_images(content["images"], account)
    image_paths = {key: finder.find(image["file_name"]) for key, image in images.items()}
    annotations = _group_annotations(path, content.get("annotations", []), images, account)
    order = sorted(images, key=lambda key: (str(image_paths[key]), key))
    for key, header in zip(order, read_headers([image_paths[key] for key in order]), strict=True):
        if isinstance(header, str):
            account.leave_out(str(image_paths[key]), header)
            for annotation in annotations.get(key, ()):
                account.drop(annotation.where, "image unusable", f"{image_paths[key]}: {header}")
            continue
        builder = _read_annotations(annotations.get(key, ()), images[key], header, class_map, account)
        if builder.num_label_rows == 0:
            account.note("image without annotations (background)", str(image_paths[key]))
        record = builder.freeze(image_paths[key], images[key]["id"], (header.height_src, header.width_src))
        enter_record(account, record, header)
        yield record


def _load_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: expected JSON in UTF-8, found: {error}") from error
    is_coco = isinstance(content, dict) and isinstance(content.get("images"), list)
    if not is_coco:
        raise ValueError(f"{path}: expected COCO JSON with `images`, `annotations` and `categories`")
    data_set: dict[str, Any] = content
    return data_set


def _looks_like_coco(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    return any(key in head for key in (b'"images"', b'"annotations"', b'"categories"'))


def _class_map(path: Path, categories: Any) -> ClassMap:
    if not isinstance(categories, list) or not categories:
        raise ValueError(f"{path}: expected a list `categories` with `id` and `name`, found {categories!r}")
    try:
        pairs = sorted((int(item["id"]), str(item["name"])) for item in categories)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: `categories` expected an integer `id` and a `name` each: {error}") from error
    return ClassMap(tuple(name for _, name in pairs), tuple(source_id for source_id, _ in pairs))


def _check_categories(path: Path, found: ClassMap, expected: ClassMap) -> None:
    names = dict(zip(expected.source_ids, expected.names, strict=True))
    for source_id, name in zip(found.source_ids, found.names, strict=True):
        if names.get(source_id, name) != name:
            raise ValueError(
                f"{path}: category {source_id} is {name!r}, but {names[source_id]!r} in the training split; "
                "make the categories of all splits agree"
            )


def _index_images(images: Sequence[Any], account: AccountBuilder) -> dict[str, dict[str, Any]]:
    """Return usable image entries by id as text; their ``id`` stays as written."""
    indexed: dict[str, dict[str, Any]] = {}
    for image in images:
        image_id = image.get("id") if isinstance(image, dict) else None
        name = image.get("file_name") if isinstance(image, dict) else None
        if not isinstance(image_id, int | str) or not isinstance(name, str) or not name:
            account.leave_out(str(name), f"expected `id` and `file_name` of an image, found {str(image)[:80]}")
        elif str(image_id) in indexed:
            account.leave_out(
                name, f"image id {image_id!r} is used twice; the first is {indexed[str(image_id)]['file_name']}"
            )
        else:
            indexed[str(image_id)] = image
    return indexed


def _alias_folders(root: Path, aliases: Sequence[str]) -> list[Path]:
    """Return folders named after a split, also ``train2017``, in order of the aliases."""
    folders = [p for p in sorted(root.iterdir()) if p.is_dir()]
    return [p for alias in aliases for p in folders if re.fullmatch(rf"{alias}[-_]?\d*", p.name)]


def _image_folders(config: DataConfig, split: Split, path: Path) -> list[Path]:
    """Return the folders that file names may start from, most likely first."""
    root = config.root
    suffix = path.stem.removeprefix("instances_").removeprefix("image_info_")
    folders = [entry for entry in config.entries.get(split, ()) if entry.suffix.lower() != ".json"]
    folders += [path.parent] if path.parent not in (root, root / "annotations") else []
    folders += [root / suffix, root / "images" / suffix]
    for parent in (root, root / "images"):
        for folder in _alias_folders(parent, SPLIT_ALIASES[split]) if parent.is_dir() else ():
            folders += [folder, folder / "images"]
    folders += [root / "images", root]
    return list(dict.fromkeys(folders))


class _ImageFinder:
    """Finds the image files of one JSON: each folder is listed once, so that many images are found quickly."""

    def __init__(self, config: DataConfig, split: Split, path: Path, inputs: InputTrace) -> None:
        folders = _image_folders(config, split, path)
        for folder in folders:
            inputs.add_folder(folder)
        self._folders = [str(folder) for folder in folders if folder.is_dir()]
        self._inputs = inputs
        self._names: dict[str, frozenset[str]] = {}

    def find(self, file_name: str) -> Path:
        """Return the first place that has the file; without any, the first place looked at.

        An absolute name that does not exist comes from another machine: its last part is looked for.
        """
        name = file_name.replace("\\", "/")
        if _ABSOLUTE.match(name) and not os.path.isfile(name):
            name = name.rpartition("/")[2]
        places = (os.path.normpath(os.path.join(folder, name)) for folder in self._folders)
        found = next((place for place in places if self._is_there(place)), None)
        return Path(found or os.path.normpath(os.path.join(self._folders[0], name)))

    def _is_there(self, place: str) -> bool:
        folder, name = os.path.split(place)
        if folder not in self._names:
            self._inputs.add_folder(Path(folder))
            try:
                self._names[folder] = frozenset(os.listdir(folder))
            except (OSError, ValueError):
                self._names[folder] = frozenset()
        return name in self._names[folder]


def _group_annotations(
    path: Path, annotations: Sequence[Any], images: dict[str, dict[str, Any]], account: AccountBuilder
) -> dict[str, list[_Annotation]]:
    grouped: dict[str, list[_Annotation]] = {}
    for index, content in enumerate(annotations):
        where = f"{path}:annotations[{index}]"
        if not isinstance(content, dict):
            account.drop(where, "not an annotation", f"found {str(content)[:60]}, expected an object")
        elif str(content.get("image_id")) not in images:
            account.drop(where, "image id unknown", f"found {content.get('image_id')!r}, expected an id of `images`")
        else:
            grouped.setdefault(str(content["image_id"]), []).append(_Annotation(where, content))
    return grouped


def _read_annotations(
    annotations: Sequence[_Annotation],
    image: dict[str, Any],
    header: ImageHeader,
    class_map: ClassMap,
    account: AccountBuilder,
) -> RecordBuilder:
    builder = RecordBuilder(num_label_rows=len(annotations))
    size_src = (header.height_src, header.width_src)
    frame = Frame.of("COCO", image.get("height"), image.get("width"), header)
    if frame.remark:
        account.note(frame.remark, image["file_name"])
    label_by_id = {source_id: label for label, source_id in enumerate(class_map.source_ids)}
    seen: set[tuple[int, Box]] = set()
    for annotation in annotations:
        try:
            label = _parse_category(annotation.content, label_by_id)
            box = frame.place(_parse_corners(annotation.content))
        except RowError as error:
            account.drop(annotation.where, error.reason, error.detail)
            continue
        if (label, box) in seen:
            account.note("annotation repeated in its image (kept)", annotation.where)
        seen.add((label, box))
        crowd_key = next((key for key in ("iscrowd", "ignore") if annotation.content.get(key) in (1, True, "1")), None)
        area = annotation.content.get("area")
        has_area = isinstance(area, int | float) and 0 < area < _LARGEST_AREA
        area_src = float(area) * frame.area_scale if has_area and area is not None else None
        rings = [frame.place_points(ring) for ring in _parse_rings(annotation, account)]
        builder.append(box, label, size_src, crowd_key is not None, area_src, rings)
        if crowd_key is None:
            enter_box(account, annotation.where, box)
        else:
            account.ignore(annotation.where, crowd_key)
    return builder


def _parse_category(content: dict[str, Any], label_by_id: dict[int, int]) -> int:
    found = content.get("category_id")
    try:
        return label_by_id[int(str(found))]
    except (KeyError, ValueError) as error:
        expected = f"one of {list(label_by_id)[:20]}"
        raise RowError("category id unknown", f"found {found!r}, expected {expected}") from error


def _parse_corners(content: dict[str, Any]) -> tuple[float, float, float, float]:
    """Return the corners of an annotation in declared pixels."""
    bbox, segmentation = content.get("bbox"), content.get("segmentation")
    try:
        if bbox:
            x, y, w, h = map(float, bbox)
        elif isinstance(segmentation, dict):
            x, y, w, h = map(float, _bound_mask(segmentation))
        else:
            if not isinstance(segmentation, list) or not segmentation:
                raise RowError("no box", "found neither `bbox` nor a mask in `segmentation`, expected one of them")
            points = [float(value) for ring in segmentation for value in ring]
            x, y = min(points[0::2]), min(points[1::2])
            w, h = max(points[0::2]) - x, max(points[1::2]) - y
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, RowError):
            raise
        raise RowError("not a box", f"found {str(bbox)[:60]}, expected 4 numbers x y w h") from error
    if not all(map(math.isfinite, (x, y, w, h))):
        raise RowError("not finite", f"found {bbox}, expected finite coordinates")
    if w <= 0 or h <= 0:
        raise RowError("empty box", f"found width {w:g} and height {h:g}, expected both above 0")
    return x, y, x + w, y + h


def _parse_rings(annotation: _Annotation, account: AccountBuilder) -> list[np.ndarray]:
    """Return the parts of an outline in declared pixels; those that are none are counted and left out."""
    segmentation = annotation.content.get("segmentation")
    if isinstance(segmentation, dict):
        account.note("run-length mask (no outline for copy-paste)", annotation.where)
    if not isinstance(segmentation, list):
        return []
    rings = []
    for part in segmentation:
        try:
            ring = np.array(part, np.float64).reshape(-1, 2)
        except (TypeError, ValueError):
            ring = np.empty((0, 2))
        if len(ring) >= 3 and np.isfinite(ring).all():
            rings.append(ring)
        else:
            account.note("part of a mask that is no polygon (left out)", annotation.where)
    return rings


def _bound_mask(segmentation: dict[str, Any]) -> tuple[int, int, int, int]:
    """Return x, y, width and height of a run-length mask."""
    try:
        height, width = map(int, segmentation["size"])
        counts = segmentation["counts"]
        corners = bound_runs(decode_runs(counts) if isinstance(counts, str) else counts, height, width)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RowError(
            "not a mask", f"found {str(segmentation)[:60]}, expected `size` and `counts`: {error}"
        ) from error
    if corners is None:
        raise RowError("empty box", "found a mask without a pixel, expected at least one")
    x1, y1, x2, y2 = corners
    return x1, y1, x2 - x1, y2 - y1
