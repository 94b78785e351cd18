"""Labels in four formats, written so that this package's readers and the usual tools read the same boxes.

* YOLO: ``images/<split>``, ``labels/<split>``, ``data.yaml``; ids 0..K-1; no ignore regions.
* COCO: ``<split>``, ``annotations/instances_<split>.json``; category and image ids kept; ignore regions are crowds.
* VOC: ``JPEGImages``, ``Annotations``, ``ImageSets/Main``, ``classes.txt``; ignore regions are ``difficult``.
* labelme: ``<split>`` with a JSON beside every image, ``classes.txt``; ignore regions have the flag ``ignore``.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import yaml

from lucid_yolo.data.readers.labelme import IGNORE_LABEL
from lucid_yolo.runtime.json_file import write_json
from lucid_yolo.structures import ClassMap, ImageRecord

TargetFormat = Literal["yolo", "coco", "voc", "labelme"]

_DECIMALS = 6


@dataclass(frozen=True)
class NamedRecord:
    """An image under the name it is written with: a path below the split's image folder, suffix included."""

    name: str
    record: ImageRecord

    @property
    def stem(self) -> str:
        """The name without its suffix."""
        return str(PurePosixPath(self.name).with_suffix(""))


Splits = Mapping[str, Sequence[NamedRecord]]


LabelWriter = Callable[[Path, Splits, ClassMap], None]


@dataclass(frozen=True)
class Target:
    """A format to write.

    Attributes:
        image_folder: Folder of a split's images; ``{split}`` stands for the split.
        write: Writes the labels.
        holds_ignored: The format has ignore regions.
        holds_ids: The format has ids of classes and images of its own; else classes count from 0 and images are named.
    """

    image_folder: str
    write: LabelWriter
    holds_ignored: bool
    holds_ids: bool


def write_yolo(root: Path, splits: Splits, class_map: ClassMap) -> None:
    """Write ``data.yaml`` and one text file per image; ignore regions are left out."""
    content: dict[str, Any] = {split: f"images/{split}" for split in splits}
    content["names"] = dict(enumerate(class_map.names))
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    (root / "data.yaml").write_text(text, encoding="utf-8")
    for split, images in splits.items():
        for image in images:
            _write_text(root / "labels" / split / f"{image.stem}.txt", "".join(_yolo_rows(image.record)))


def write_coco(root: Path, splits: Splits, class_map: ClassMap) -> None:
    """Write one JSON per split."""
    pairs = zip(class_map.source_ids, class_map.names, strict=True)
    categories = [{"id": source_id, "name": name} for source_id, name in pairs]
    for split, images in splits.items():
        entries: list[dict[str, Any]] = []
        annotations: list[dict[str, Any]] = []
        for image in images:
            record = image.record
            size = {"height": record.height_src, "width": record.width_src}
            entries.append({"id": record.image_id, "file_name": image.name, **size})
            for box, label, is_ignored, area in _rows(record):
                x1, y1, x2, y2 = box
                annotation: dict[str, Any] = {"id": len(annotations) + 1, "image_id": record.image_id}
                annotation["category_id"] = class_map.source_ids[label]
                annotation |= {"bbox": _rounded((x1, y1, x2 - x1, y2 - y1)), "area": round(area, _DECIMALS)}
                annotations.append({**annotation, "iscrowd": int(is_ignored)})
        content = {"images": entries, "annotations": annotations, "categories": categories}
        write_json(root / "annotations" / f"instances_{split}.json", content, is_compact=True)


def write_voc(root: Path, splits: Splits, class_map: ClassMap) -> None:
    """Write one XML per image, the lists of images and the list of classes."""
    _write_classes(root, class_map)
    for split, images in splits.items():
        _write_text(root / "ImageSets" / "Main" / f"{split}.txt", "".join(f"{image.stem}\n" for image in images))
        for image in images:
            tree = _voc_tree(image, class_map)
            ElementTree.indent(tree)
            text = ElementTree.tostring(tree, encoding="unicode")
            _write_text(root / "Annotations" / f"{image.stem}.xml", f"{text}\n")


def write_labelme(root: Path, splits: Splits, class_map: ClassMap) -> None:
    """Write one JSON beside every image and the list of classes."""
    _write_classes(root, class_map)
    for split, images in splits.items():
        for image in images:
            shapes = [
                {
                    "label": class_map.names[label],
                    "points": [_rounded(box[:2]), _rounded(box[2:])],
                    "group_id": None,
                    "shape_type": "rectangle",
                    "flags": {"ignore": True} if is_ignored else {},
                }
                for box, label, is_ignored, _ in _rows(image.record)
            ]
            content: dict[str, Any] = {
                "version": "5.5.0",
                "flags": {},
                "shapes": shapes,
                "imagePath": PurePosixPath(image.name).name,
                "imageData": None,
                "imageHeight": image.record.height_src,
                "imageWidth": image.record.width_src,
            }
            write_json(root / split / f"{image.stem}.json", content)


TARGETS: dict[TargetFormat, Target] = {
    "yolo": Target("images/{split}", write_yolo, holds_ignored=False, holds_ids=False),
    "coco": Target("{split}", write_coco, holds_ignored=True, holds_ids=True),
    "voc": Target("JPEGImages", write_voc, holds_ignored=True, holds_ids=False),
    "labelme": Target("{split}", write_labelme, holds_ignored=True, holds_ids=False),
}


def _rows(record: ImageRecord) -> list[tuple[list[float], int, bool, float]]:
    columns = (record.boxes_xyxy_src, record.labels, record.is_ignored, record.area_src)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _yolo_rows(record: ImageRecord) -> list[str]:
    rows = []
    for (x1, y1, x2, y2), label, is_ignored, _ in _rows(record):
        if not is_ignored:
            width, height = record.width_src, record.height_src
            values = ((x1 + x2) / 2 / width, (y1 + y2) / 2 / height, (x2 - x1) / width, (y2 - y1) / height)
            rows.append(f"{label} {' '.join(f'{value:.10g}' for value in values)}\n")
    return rows


def _voc_tree(image: NamedRecord, class_map: ClassMap) -> ElementTree.Element:
    tree = ElementTree.Element("annotation")
    _add_texts(tree, {"folder": "JPEGImages", "filename": image.name})
    record = image.record
    size = ElementTree.SubElement(tree, "size")
    _add_texts(size, {"width": record.width_src, "height": record.height_src, "depth": 3})
    for box, label, is_ignored, _ in _rows(record):
        item = ElementTree.SubElement(tree, "object")
        _add_texts(item, {"name": class_map.names[label], "difficult": int(is_ignored)})
        sides = dict(zip(("xmin", "ymin", "xmax", "ymax"), _rounded(box), strict=True))
        _add_texts(ElementTree.SubElement(item, "bndbox"), sides)
    return tree


def _add_texts(parent: ElementTree.Element, texts: Mapping[str, object]) -> None:
    for tag, text in texts.items():
        ElementTree.SubElement(parent, tag).text = str(text)


def _write_classes(root: Path, class_map: ClassMap) -> None:
    """Write the list of classes of a format that knows a class by its name alone."""
    names = class_map.names
    is_plain = all(name and name == name.strip() and name.isprintable() and name != IGNORE_LABEL for name in names)
    if not is_plain or len(set(names)) != len(names):
        raise ValueError(
            f"class names: this format knows classes by name alone and needs different, printable names without blanks "
            f"around them, found {list(names)}; convert to coco, or rename the classes"
        )
    _write_text(root / "classes.txt", "".join(f"{name}\n" for name in names))


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, _DECIMALS) for value in values]


def _write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
