"""labelme JSON: one file per image, ``shapes`` with ``label``, ``shape_type`` and ``points`` in pixels.

* Rectangles, polygons, masks and oriented rectangles become the box of their points; a circle (centre and a point on
  it) its box. Points, lines and line strips are no objects and are dropped.
* A shape labelled ``__ignore__``, or with a true flag ``ignore``, ``difficult`` or ``iscrowd``, is an ignore region.
* The image is the one with the file's name, not ``imagePath``; embedded ``imageData`` is not read.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from lucid_yolo.data.readers.boxes import RowError
from lucid_yolo.data.readers.objects import LabelFile, LabelledObject, ObjectFormat

IGNORE_LABEL = "__ignore__"
IGNORE_FLAGS = ("ignore", "difficult", "iscrowd")

_MIN_POINTS = {"rectangle": 2, "mask": 2, "circle": 2, "polygon": 3, "oriented_rectangle": 3}
_HEAD_BYTES = 1 << 16


def parse_labelme(path: Path) -> LabelFile:
    """Read one file.

    Raises:
        ValueError: It is not JSON with a list ``shapes``.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"expected JSON in UTF-8, found: {error}") from error
    shapes = content.get("shapes") if isinstance(content, dict) else None
    if not isinstance(shapes, list):
        raise ValueError(f"expected an object with a list `shapes`, found {type(content).__name__}")
    objects = tuple(_parse_shape(shape, f"{path}:shapes[{i}]") for i, shape in enumerate(shapes))
    height, width = (content.get(f"image{side}") for side in ("Height", "Width"))
    is_size = isinstance(height, int) and isinstance(width, int)
    return LabelFile(height if is_size else None, width if is_size else None, objects)


LABELME = ObjectFormat("labelme JSON", ".json", parse_labelme)


def looks_like_labelme(path: Path) -> bool:
    """Tell by its beginning whether a JSON file is one of labelme."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    return any(key in head for key in (b'"shapes"', b'"imagePath"', b'"imageData"'))


def _parse_shape(shape: Any, where: str) -> LabelledObject:
    nothing = (0.0, 0.0, 0.0, 0.0)
    if not isinstance(shape, dict) or not isinstance(shape.get("label"), str) or not shape["label"]:
        fault = RowError("not a shape", f"found {str(shape)[:60]}, expected an object with `label` and `points`")
        return LabelledObject(where, None, nothing, fault=fault)
    label, flags = shape["label"], shape.get("flags")
    reason = next((f for f in IGNORE_FLAGS if isinstance(flags, dict) and flags.get(f) is True), "")
    name: str | None = label
    if label == IGNORE_LABEL:
        name, reason = None, IGNORE_LABEL
    try:
        return LabelledObject(where, name, _bound(shape.get("shape_type") or "polygon", shape.get("points")), reason)
    except RowError as fault:
        return LabelledObject(where, name, nothing, reason, fault)


def _bound(kind: Any, points: Any) -> tuple[float, float, float, float]:
    """Return the corners of a shape."""
    if not isinstance(kind, str) or kind not in _MIN_POINTS:
        raise RowError("no box", f"found a shape of type {kind!r}, expected one of {list(_MIN_POINTS)}")
    try:
        xs, ys = zip(*((float(x), float(y)) for x, y in points), strict=True)
    except (TypeError, ValueError) as error:
        raise RowError("no box", f"found points {str(points)[:60]}, expected a list of x y pairs") from error
    if len(xs) < _MIN_POINTS[kind]:
        raise RowError("no box", f"found {len(xs)} points of a {kind}, expected at least {_MIN_POINTS[kind]}")
    if kind == "circle":
        radius = math.dist((xs[0], ys[0]), (xs[1], ys[1]))
        return xs[0] - radius, ys[0] - radius, xs[0] + radius, ys[0] + radius
    if not all(map(math.isfinite, (*xs, *ys))):
        raise RowError("not finite", f"found points {str(points)[:60]}, expected finite coordinates")
    return min(xs), min(ys), max(xs), max(ys)
