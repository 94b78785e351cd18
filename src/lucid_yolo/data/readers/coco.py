"""COCO JSON: ``images``, ``annotations``, ``categories``; boxes are ``x y w h`` in pixels.

* Category ids may be any integers; labels are their positions in ascending order.
* ``iscrowd`` (or ``ignore``) annotations become ignore regions, neither objects nor background.
* An annotation without ``bbox`` takes the box of its polygons.
* The image file decides about the size. Where the declared size disagrees, it is counted, and the boxes are
  turned with the EXIF orientation if the declared size is that of the stored, unturned pixels; scaled if the shape is
  the same (the image was resized after labelling); otherwise read as pixels of the file.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lucid_yolo.data.account import AccountBuilder, RowAccount
from lucid_yolo.data.image import ImageHeader
from lucid_yolo.data.readers.boxes import (
    OUTSIDE_LIMIT,
    Box,
    RecordBuilder,
    RowError,
    bound_points,
    enter_box,
    enter_record,
    read_headers,
)
from lucid_yolo.data.readers.layout import SPLIT_ALIASES, DataConfig, Split
from lucid_yolo.structures import ClassMap, ImageRecord

_FIXED_NAMES = ("_annotations.coco.json", "annotations.json", "instances.json", "coco.json", "labels.json")
_OTHER_TASKS = ("captions", "stuff", "panoptic", "keypoints", "image_info")
_HEAD_BYTES = 65536


@dataclass(frozen=True)
class _Annotation:
    """One annotation and its place, as in ``file:annotations[12]``."""

    where: str
    content: dict[str, Any]


def find_coco_json(config: DataConfig, split: Split) -> Path | None:
    """Return the JSON of a split: named in the YAML, in the split's folder, in ``annotations``, or None.

    Raises:
        ValueError: Several files could be meant.
    """
    named = [entry for entry in config.entries.get(split, ()) if entry.suffix.lower() == ".json"]
    if named:
        return named[0]
    aliases = SPLIT_ALIASES[split]
    for folder in _alias_folders(config.root, aliases):
        for name in _FIXED_NAMES:
            if (folder / name).is_file():
                return folder / name
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
    return found[0] if found else None


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
    config: DataConfig, split: Split, path: Path, class_map: ClassMap
) -> tuple[tuple[ImageRecord, ...], RowAccount]:
    """Read one split.

    Args:
        config: Where things are.
        split: Which split.
        path: Its JSON.
        class_map: Classes of the data set; an annotation's category is looked up among the source ids.

    Returns:
        Records sorted by path, and the account of every annotation.

    Raises:
        ValueError: The JSON is not COCO, or names a category id differently from ``class_map``.
    """
    content = _load_json(path)
    if "categories" in content:
        _check_categories(path, _class_map(path, content["categories"]), class_map)
    account = AccountBuilder()
    images = _index_images(content["images"], account)
    folders = _image_folders(config.root, split, path)
    paths = {key: _find_image(image, folders) for key, image in images.items()}
    annotations = _group_annotations(path, content.get("annotations", []), images, account)
    order = sorted(images, key=lambda key: (str(paths[key]), key))
    records = []
    for key, header in zip(order, read_headers(paths[key] for key in order), strict=True):
        if isinstance(header, str):
            account.leave_out(str(paths[key]), header)
            for annotation in annotations.get(key, ()):
                account.drop(annotation.where, "image unusable", f"{paths[key]}: {header}")
            continue
        builder = _read_annotations(annotations.get(key, ()), images[key], header, class_map, account)
        if builder.num_label_rows == 0:
            account.note("image without annotations (background)", str(paths[key]))
        record = builder.freeze(paths[key], images[key]["id"], (header.height_src, header.width_src))
        enter_record(account, record, header)
        records.append(record)
    return tuple(records), account.freeze()


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


def _image_folders(root: Path, split: Split, path: Path) -> list[Path]:
    """Return the folders that file names may start from, most likely first."""
    suffix = path.stem.removeprefix("instances_").removeprefix("image_info_")
    folders = [path.parent] if path.parent not in (root, root / "annotations") else []
    folders += [root / suffix, root / "images" / suffix]
    for parent in (root, root / "images"):
        for folder in _alias_folders(parent, SPLIT_ALIASES[split]) if parent.is_dir() else ():
            folders += [folder, folder / "images"]
    folders += [root / "images", root]
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def _find_image(image: dict[str, Any], folders: Sequence[Path]) -> Path:
    name = image["file_name"].replace("\\", "/")
    candidates = [folder / name for folder in folders]
    return next((path for path in candidates if path.is_file()), candidates[0])


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
    frame = _Frame.of(image, header)
    if frame.remark:
        account.note(frame.remark, image["file_name"])
    label_by_id = {source_id: label for label, source_id in enumerate(class_map.source_ids)}
    for annotation in annotations:
        try:
            label = _parse_category(annotation.content, label_by_id)
            box = frame.place(_parse_corners(annotation.content))
        except RowError as error:
            account.drop(annotation.where, error.reason, error.detail)
            continue
        crowd_key = next((key for key in ("iscrowd", "ignore") if annotation.content.get(key) in (1, True, "1")), None)
        area = annotation.content.get("area")
        has_area = isinstance(area, int | float) and math.isfinite(area) and area > 0
        area_src = float(area) * frame.area_scale if has_area and area is not None else None
        builder.append(box, label, size_src, crowd_key is not None, area_src)
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
    bbox = content.get("bbox")
    try:
        if bbox:
            x, y, w, h = map(float, bbox)
        else:
            rings = content.get("segmentation")
            if not isinstance(rings, list) or not rings:
                raise RowError("no box", "found neither `bbox` nor polygons in `segmentation`, expected one of them")
            points = [float(value) for ring in rings for value in ring]
            x, y = min(points[0::2]), min(points[1::2])
            w, h = max(points[0::2]) - x, max(points[1::2]) - y
    except (TypeError, ValueError) as error:
        if isinstance(error, RowError):
            raise
        raise RowError("not a box", f"found {str(bbox)[:60]}, expected 4 numbers x y w h") from error
    if not all(map(math.isfinite, (x, y, w, h))):
        raise RowError("not finite", f"found {bbox}, expected finite coordinates")
    if w <= 0 or h <= 0:
        raise RowError("empty box", f"found width {w:g} and height {h:g}, expected both above 0")
    return x, y, x + w, y + h


@dataclass(frozen=True)
class _Frame:
    """The pixel frame that annotations of an image are written in.

    Attributes:
        height: Declared height.
        width: Declared width.
        orientation: EXIF orientation to turn by, 1 for none.
        area_scale: Factor from declared to file pixels of an area.
        remark: What disagreed, if anything.
    """

    height: int
    width: int
    orientation: int
    area_scale: float
    remark: str

    @classmethod
    def of(cls, image: dict[str, Any], header: ImageHeader) -> _Frame:
        """Compare the declared size of an image with its file."""
        height, width = image.get("height"), image.get("width")
        file_size = (header.height_src, header.width_src)
        if not isinstance(height, int) or not isinstance(width, int) or height <= 0 or width <= 0:
            return cls(*file_size, 1, 1.0, "COCO size missing, taken from the file")
        if (height, width) == file_size:
            return cls(height, width, 1, 1.0, "")
        if header.orientation >= 5 and (width, height) == file_size:
            return cls(height, width, header.orientation, 1.0, "COCO size is that before EXIF turning, boxes turned")
        scale_y, scale_x = file_size[0] / height, file_size[1] / width
        if abs(scale_y / scale_x - 1) < 0.01:
            return cls(height, width, 1, scale_y * scale_x, "COCO size differs from the file, boxes scaled")
        return cls(*file_size, 1, 1.0, "COCO size contradicts the file, boxes read as pixels of the file")

    def place(self, corners_xyxy: tuple[float, float, float, float]) -> Box:
        """Return the box of declared-pixel corners as fractions of the upright image."""
        x1, y1, x2, y2 = corners_xyxy
        if max(map(abs, corners_xyxy)) <= 1 and min(self.height, self.width) > 2:
            raise RowError("not pixels", f"found corners {corners_xyxy}, expected pixels, not fractions of the image")
        xs, ys = (x1 / self.width, x2 / self.width), (y1 / self.height, y2 / self.height)
        if self.orientation in (6, 7):
            ys = (1 - ys[1], 1 - ys[0])
        if self.orientation in (7, 8):
            xs = (1 - xs[1], 1 - xs[0])
        if self.orientation >= 5:
            xs, ys = ys, xs
        if min(*xs, *ys) < -OUTSIDE_LIMIT or max(*xs, *ys) > 1 + OUTSIDE_LIMIT:
            found = f"x {x1:g}..{x2:g}, y {y1:g}..{y2:g}"
            raise RowError("outside the image", f"found {found}, expected pixels of {self.width} x {self.height}")
        return bound_points(xs, ys)
