"""Boxes with class names on a picture."""

from __future__ import annotations

import colorsys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from lucid_yolo.viz.fonts import drawable_text

Color = tuple[int, int, int]
Rectangle = tuple[int, int, int, int]
ClassNames = Mapping[int, str] | Sequence[str]

GOLDEN_RATIO = 0.6180339887498949
# Saturation and brightness by turns, so that neighbours on the colour circle differ in more than hue.
TONES = ((0.85, 1.0), (0.55, 1.0), (0.9, 0.72))
GAP_PX = 8
BLACK, WHITE = (0, 0, 0), (255, 255, 255)


def class_color(label: int) -> Color:
    """Return the RGB colour of a class: the same in every picture, plot and run."""
    saturation, brightness = TONES[label % len(TONES)]
    red, green, blue = colorsys.hsv_to_rgb((0.58 + label * GOLDEN_RATIO) % 1.0, saturation, brightness)
    return round(red * 255), round(green * 255), round(blue * 255)


def draw_boxes(
    image_rgb: NDArray[np.uint8],
    boxes_xyxy: NDArray[Any],
    labels: NDArray[Any],
    names: ClassNames,
    scores: NDArray[Any] | None = None,
    *,
    remarks: Sequence[str] | None = None,
    ids: NDArray[Any] | None = None,
    has_names: bool = True,
    line_width: int | None = None,
) -> NDArray[np.uint8]:
    """Return a copy of the picture with boxes and class names; the first box lies on top.

    Args:
        image_rgb: ``[H, W, 3]``.
        boxes_xyxy: ``[n, 4]`` corners in pixels of the picture; parts outside are cut.
        labels: ``[n]`` class indices.
        names: Class names by index.
        scores: ``[n]`` in [0, 1], written behind the name when given.
        remarks: ``[n]`` words written behind name and score when given; an empty one adds nothing.
        ids: ``[n]`` ids of tracked objects, written before the name; they then choose the colour.
        has_names: Write names and ids.
        line_width: Of the boxes, pixels; None suits the size of the picture.

    Raises:
        ValueError: An array has another type or shape, or a box is not finite.
    """
    _check(image_rgb, boxes_xyxy, labels, scores)
    if remarks is not None and len(remarks) != len(labels):
        raise ValueError(f"remarks: expected {len(labels)} as of labels, found {len(remarks)}")
    if ids is not None and len(ids) != len(labels):
        raise ValueError(f"ids: expected {len(labels)} as of labels, found {len(ids)}")
    if line_width is not None and line_width < 1:
        raise ValueError(f"line_width: expected at least 1, found {line_width}")
    height, width = image_rgb.shape[:2]
    if not height or not width:
        return image_rgb.copy()
    canvas = Image.fromarray(np.ascontiguousarray(image_rgb))
    pen = ImageDraw.Draw(canvas)
    style = _Style.of_size(height, width, line_width)
    colors = labels if ids is None else ids
    visible = [(i, r) for i, b in enumerate(boxes_xyxy) if (r := _inside(b, height, width))]
    for i, rectangle in reversed(visible):
        _draw_outline(pen, rectangle, class_color(int(colors[i])), style)
    taken: list[Rectangle] = []
    for i, rectangle in visible:
        score = "" if scores is None else f" {float(scores[i]):.2f}"
        score += f" {remarks[i]}" if remarks is not None and remarks[i] else ""
        name = _name(names, int(labels[i])) if has_names else ""
        track = f"#{int(ids[i])} " if ids is not None and has_names else ""
        _draw_tag(pen, rectangle, (track, name, score), (int(labels[i]), int(colors[i])), style, taken)
    return np.asarray(canvas).copy()


def side_by_side(left_rgb: NDArray[np.uint8], right_rgb: NDArray[np.uint8], gap_px: int = GAP_PX) -> NDArray[np.uint8]:
    """Return two pictures of one height as one, with a white gap between them.

    Args:
        left_rgb: ``[H, W, 3]``.
        right_rgb: ``[H, V, 3]``.
        gap_px: Width of the gap.
    """
    gap = np.full((len(left_rgb), gap_px, 3), 255, np.uint8)
    return np.concatenate([left_rgb, gap, right_rgb], axis=1)


@dataclass(frozen=True)
class _Style:
    """Sizes that suit one picture, and its borders."""

    height: int
    width: int
    line: int
    halo: int
    font: int
    pad: int

    @classmethod
    def of_size(cls, height: int, width: int, line_width: int | None) -> _Style:
        scale = (height * width) ** 0.5
        font = max(10, round(scale * 0.02))
        line = line_width or max(1, round(scale * 0.0032))
        return cls(height, width, line, max(1, round(line / 3)), font, max(1, font // 5))


def _check(image: NDArray[Any], boxes: NDArray[Any], labels: NDArray[Any], scores: NDArray[Any] | None) -> None:
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise ValueError(f"image_rgb: expected uint8 [H, W, 3], found {image.dtype} {image.shape}")
    if boxes.shape != (len(labels), 4):
        raise ValueError(f"boxes_xyxy: expected shape ({len(labels)}, 4) for {len(labels)} labels, found {boxes.shape}")
    if scores is not None and len(scores) != len(labels):
        raise ValueError(f"scores: expected {len(labels)} as of labels, found {len(scores)}")
    if not np.isfinite(boxes).all():
        raise ValueError("boxes_xyxy: expected finite numbers, found NaN or infinity")


def _name(names: ClassNames, label: int) -> str:
    try:
        return names[label]
    except LookupError:
        raise ValueError(f"names: expected one for label {label}, found {len(names)} names without it") from None


def _inside(box: NDArray[Any], height: int, width: int) -> Rectangle | None:
    """Return the box as whole pixels inside the picture, None when it lies outside."""
    left, right = sorted((float(box[0]), float(box[2])))
    top, bottom = sorted((float(box[1]), float(box[3])))
    if right < 0 or bottom < 0 or left > width or top > height:
        return None
    columns = (min(max(round(x), 0), width - 1) for x in (left, right))
    rows = (min(max(round(y), 0), height - 1) for y in (top, bottom))
    (x1, x2), (y1, y2) = columns, rows
    return x1, y1, x2, y2


def _draw_outline(pen: ImageDraw.ImageDraw, rectangle: Rectangle, color: Color, style: _Style) -> None:
    x1, y1, x2, y2 = rectangle
    grown = (x1 - style.halo, y1 - style.halo, x2 + style.halo, y2 + style.halo)
    pen.rectangle(grown, outline=_contrast(color), width=style.line + 2 * style.halo)
    pen.rectangle(rectangle, outline=color, width=style.line)


def _draw_tag(
    pen: ImageDraw.ImageDraw,
    rectangle: Rectangle,
    text: tuple[str, str, str],
    label_color: tuple[int, int],
    style: _Style,
    taken: list[Rectangle],
) -> None:
    """Write id, name and score where they hide no earlier tag, if such a place exists."""
    box_width = rectangle[2] - rectangle[0]
    line, font = _fit(
        text, label_color[0], style.font, min(style.width, max(box_width, style.width // 3)) - 2 * style.pad
    )
    left, top, right, bottom = (round(v) for v in font.getbbox(line, anchor="ls"))
    ascent, descent = font.getmetrics()
    ascent, descent = max(ascent, -top), max(descent, bottom)
    width, height = right - left + 2 * style.pad, ascent + descent + style.pad
    if not line or width > style.width or height > style.height:
        return
    places = _places(rectangle, width, height, style)
    place = next((p for p in places if not any(_overlap(p, t) for t in taken)), places[0])
    taken.append(place)
    color = class_color(label_color[1])
    pen.rectangle(place, fill=color, outline=_contrast(color))
    origin = (place[0] + style.pad - left, place[1] + style.pad // 2 + ascent)
    pen.text(origin, line, fill=_contrast(color), font=font, anchor="ls")


def _fit(text: tuple[str, str, str], label: int, font_size: int, room: int) -> tuple[str, ImageFont.FreeTypeFont]:
    """Return the tag, its name shortened until it is no wider than ``room``, and its font."""
    track, name, score = text
    name, path = drawable_text(name, f"#{label}")
    font = _font(path, font_size)
    line = track + name + score
    while name and font.getlength(line) > room:
        name = name[:-1].rstrip()
        line = track + (f"{name}…" if name else "") + score
    return line.strip() if font.getlength(line) <= room else "", font


def _places(rectangle: Rectangle, width: int, height: int, style: _Style) -> list[Rectangle]:
    """Return where a tag may stand, best first, all inside the picture: above the box, below it, in its corners."""
    x1, y1, x2, y2 = rectangle
    halo = style.halo
    corners = [
        (x1 - halo, y1 - halo - height),
        (x2 + halo - width + 1, y1 - halo - height),
        (x1 - halo, y2 + halo + 1),
        (x1 - halo, y1 - halo),
        (x2 + halo - width + 1, y1 - halo),
        (x1 - halo, y2 + halo - height + 1),
    ]
    fitting = [(x, y) for x, y in corners if 0 <= y <= style.height - height] or [corners[3]]
    places = []
    for x, y in fitting:
        left, top = min(max(x, 0), style.width - width), min(max(y, 0), style.height - height)
        places.append((left, top, left + width - 1, top + height - 1))
    return places


def _overlap(a: Rectangle, b: Rectangle) -> bool:
    return a[0] <= b[2] and b[0] <= a[2] and a[1] <= b[3] and b[1] <= a[3]


def _contrast(color: Color) -> Color:
    red, green, blue = color
    return BLACK if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else WHITE


@lru_cache(maxsize=64)
def _font(path: str, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(path, size)
