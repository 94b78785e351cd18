"""Pascal VOC XML: one file per image, ``object`` elements with ``name`` and ``bndbox`` in pixels.

* Corners are continuous pixel coordinates as written, which is what labelling tools write. Files of the PASCAL VOC data
  sets themselves (``source/database`` or ``source/annotation`` names them) count pixels from 1, both ends included:
  there 1 is taken off the left and the upper side.
* ``difficult`` objects become ignore regions: the VOC evaluation neither rewards nor punishes them. ``truncated``,
  ``occluded`` and ``pose`` change nothing.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

from lucid_yolo.data.readers.boxes import RowError
from lucid_yolo.data.readers.objects import LabelFile, LabelledObject, ObjectFormat

_SIDES = ("xmin", "ymin", "xmax", "ymax")
_TRUE = ("1", "true", "yes")


def parse_voc(path: Path) -> LabelFile:
    """Read one file.

    Raises:
        ValueError: It is not XML with a root element ``annotation``.
    """
    try:
        tree = ElementTree.fromstring(path.read_bytes())
    except ElementTree.ParseError as error:
        raise ValueError(f"expected XML, found: {error}") from error
    if tree.tag != "annotation":
        raise ValueError(f"expected the root element `annotation`, found `{tree.tag}`")
    origin = f"{tree.findtext('source/database', '')} {tree.findtext('source/annotation', '')}".upper()
    first_pixel = 1.0 if "VOC20" in origin else 0.0
    objects = (_parse_object(item, f"{path}:object[{i}]", first_pixel) for i, item in enumerate(tree.iter("object")))
    return LabelFile(_length(tree, "height"), _length(tree, "width"), tuple(objects))


VOC = ObjectFormat("VOC XML", ".xml", parse_voc)


def _parse_object(item: ElementTree.Element, where: str, first_pixel: float) -> LabelledObject:
    name = (item.findtext("name") or "").strip()
    texts = [item.findtext(f"bndbox/{side}") for side in _SIDES]
    is_difficult = (item.findtext("difficult") or "").strip().lower() in _TRUE
    try:
        x1, y1, x2, y2 = (float(text) for text in texts if text is not None)
        fault = None if name else RowError("no class name", "found an object without `name`, expected one")
    except ValueError:
        x1 = y1 = x2 = y2 = 0.0
        fault = RowError("no box", f"found bndbox {texts}, expected 4 numbers {' '.join(_SIDES)}")
    corners = (x1 - first_pixel, y1 - first_pixel, x2, y2)
    return LabelledObject(where, name, corners, "difficult" if is_difficult else "", fault)


def _length(tree: ElementTree.Element, side: str) -> int | None:
    text = (tree.findtext(f"size/{side}") or "").strip()
    return int(text) if text.isdecimal() else None
