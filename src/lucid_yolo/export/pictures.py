"""Pictures for the gate: the user's own, or drawn ones."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image

from lucid_yolo.data.image import UndecodableImageError, read_image
from lucid_yolo.data.sources import resize_image
from lucid_yolo.data.synthetic import draw_shapes
from lucid_yolo.export.verify import Found, Picture
from lucid_yolo.geometry.letterbox import FILL_VALUE, letterbox
from lucid_yolo.models.scales import STRIDES
from lucid_yolo.viz.draw import draw_boxes, side_by_side

NUM_DRAWN = 4
DRAWN_SIDE_PX = 320

_log = logging.getLogger(__name__)


def spread(paths: Sequence[Path], count: int) -> list[Path]:
    """Return ``count`` of the files, evenly over the list."""
    return [paths[i * len(paths) // count] for i in range(min(count, len(paths)))] if count < len(paths) else [*paths]


def load_pictures(paths: Iterable[Path], size_px: tuple[int, int], *, has_dynamic_size: bool = False) -> list[Picture]:
    """Read files and put each on a canvas; one that cannot be decoded is left out, and a warning says so.

    Args:
        paths: The files.
        size_px: (height, width) of the canvas.
        has_dynamic_size: The later half gets canvases that are one stride higher, to try a second size.
    """
    files = list(paths)
    height, width = size_px
    pictures = []
    for number, path in enumerate(files):
        extra = STRIDES[-1] if has_dynamic_size and 2 * number >= len(files) > 1 else 0
        try:
            pictures.append(Picture(str(path), torch.from_numpy(_on_canvas(read_image(path), height + extra, width))))
        except UndecodableImageError as error:
            _log.warning("%s cannot be decoded and is left out of the gate: %s", path, error)
    return pictures


def draw_pictures(size_px: tuple[int, int], *, has_dynamic_size: bool = False) -> list[Picture]:
    """Return drawn shapes, for a user who has no pictures at hand; see :func:`load_pictures`."""
    with TemporaryDirectory() as folder:
        root = Path(folder) / "drawn"
        draw_shapes(root, 1, NUM_DRAWN, image_size_px=DRAWN_SIDE_PX)
        paths = sorted((root / "images" / "val").iterdir())
        drawn = load_pictures(paths, size_px, has_dynamic_size=has_dynamic_size)
    return [Picture(f"drawn {Path(picture.name).stem}", picture.canvas) for picture in drawn]


def _on_canvas(image: UInt8[np.ndarray, "h w 3"], height: int, width: int) -> UInt8[np.ndarray, "3 H W"]:
    """Letterbox onto the largest square in the middle of the canvas."""
    side = min(height, width)
    box = letterbox(image.shape[0], image.shape[1], side)
    canvas = np.full((height, width, 3), FILL_VALUE, np.uint8)
    top, left = (height - side) // 2 + box.top_px, (width - side) // 2 + box.left_px
    canvas[top : top + box.height_px, left : left + box.width_px] = resize_image(image, box.height_px, box.width_px)
    return np.ascontiguousarray(canvas.transpose(2, 0, 1))


def save_pair(picture: Picture, pair: tuple[Found, Found], names: Sequence[str], min_score: float, path: Path) -> None:
    """Draw what eager (left) and the exported file (right) found.

    Args:
        picture: The picture.
        pair: Detections of both.
        names: Class names.
        min_score: Least score of a drawn detection.
        path: File to write.
    """
    pixels = picture.canvas.permute(1, 2, 0).contiguous().numpy()
    sides = list[np.ndarray]()
    for found in pair:
        kept = found.head(found.count_above(min_score))
        arrays = (kept.boxes_xyxy_px.numpy(), kept.label.numpy())
        sides.append(draw_boxes(pixels, *arrays, names, kept.score.numpy()))
    Image.fromarray(side_by_side(sides[0], sides[1])).save(path)
