"""A tiny real data set: four aerial photographs of trees, from a wheel on PyPI, cut into tiles.

The wheel ``deepforest`` 2.1.0 (MIT licence) carries photographs of the airborne surveys of the National Ecological
Observatory Network with hand-drawn boxes in VOC XML. pip fetches it by its pinned hash; it is read, never installed.
"""

from __future__ import annotations

import io
import itertools
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
import zipfile
from pathlib import Path

import numpy as np
from jaxtyping import Float
from PIL import Image

from lucid_yolo.data.made_root import make_root, write_yolo_yaml
from lucid_yolo.data.transfer import DownloadError as DownloadError

WHEEL = "deepforest==2.1.0"
WHEEL_SHA256 = "8c2798d8e9be7f0004b194fe207b76c1d9fff6e711b3db67b9508dcd5d00ae54"

TILE_PX = 400
MIN_VISIBLE = 0.4
"""Share of a box's area that must lie inside a tile for the box to be kept."""

# Validation is a whole photograph of its own: same survey and year as the first, 13 km away, no tree in common.
PHOTOGRAPHS = {
    "train": ("2019_YELL_2_528000_4978000_image_crop2", "OSBS_029", "SOAP_061"),
    "val": ("2019_YELL_2_541000_4977000_image_crop",),
}

_LICENCE = "deepforest-2.1.0.dist-info/licenses/LICENSE"
_TIMEOUT_S = 300
_ATTRIBUTION = f"""# Where these images come from

The photographs and boxes were taken from the Python package `{WHEEL}` (sha256 {WHEEL_SHA256}),
https://github.com/weecology/DeepForest, under the MIT licence in `LICENSE.txt`; its photographs come from the airborne
surveys of the National Ecological Observatory Network (NEON).

Changes: cut into tiles of about {TILE_PX} px, boxes clipped to their tile, boxes with less than {MIN_VISIBLE:.0%} of
their area inside left out, all boxes in the one class `tree`, stored as JPEG.
"""


def fetch_trees(data_root: str | Path) -> bool:
    """Write a YOLO root of 47 aerial tiles with 974 trees; train and val are different photographs.

    Args:
        data_root: Folder to make; new, empty, or made by the same call before.

    Returns:
        False when the same data set was there already.

    Raises:
        DownloadError: pip could not fetch the wheel.
        FileExistsError: ``data_root`` holds something else.
    """
    recipe = {"name": "trees", "wheel": WHEEL, "tile_px": TILE_PX, "min_visible": MIN_VISIBLE}
    return make_root(data_root, recipe, _fetch_and_tile)


def tile_wheel(wheel: Path, root: Path) -> None:
    """Cut the photographs in ``wheel`` into tiles below ``root``, with labels, licence and attribution."""
    with zipfile.ZipFile(wheel) as archive:
        for split, names in PHOTOGRAPHS.items():
            for folder in ("images", "labels"):
                (root / folder / split).mkdir(parents=True)
            for name in names:
                image = Image.open(io.BytesIO(archive.read(f"deepforest/data/{name}.png"))).convert("RGB")
                boxes = _parse_voc(archive.read(f"deepforest/data/{name}.xml"))
                _write_tiles(image, boxes, root, split, name)
        (root / "LICENSE.txt").write_bytes(archive.read(_LICENCE))
    (root / "ATTRIBUTION.md").write_text(_ATTRIBUTION, encoding="utf-8")
    write_yolo_yaml(root, ("tree",))


def _fetch_and_tile(root: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tile_wheel(_download_wheel(Path(folder)), root)


def _download_wheel(folder: Path) -> Path:
    requirement = folder / "requirements.txt"
    requirement.write_text(f"{WHEEL} --hash=sha256:{WHEEL_SHA256}\n", encoding="utf-8")
    options = ["--no-deps", "--require-hashes", "--only-binary=:all:", "--ignore-requires-python", "--no-input"]
    quiet = ["--quiet", "--disable-pip-version-check", "--retries=1", "--timeout=15"]
    command = [sys.executable, "-m", "pip", "download", *options, *quiet, "-r", str(requirement), "-d", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except subprocess.CalledProcessError as error:
        last_line = (error.stderr.strip().splitlines() or ["no message"])[-1]
        raise DownloadError(f"pip could not fetch {WHEEL}: {last_line}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DownloadError(f"pip could not fetch {WHEEL}: {error}") from error
    return next(folder.glob("*.whl"))


def _parse_voc(xml: bytes) -> Float[np.ndarray, "n 4"]:
    """Return the corners of every object in pixels."""
    corners = [
        [float(item.findtext(f"bndbox/{name}", "nan")) for name in ("xmin", "ymin", "xmax", "ymax")]
        for item in ElementTree.fromstring(xml).iter("object")
    ]
    return np.array(corners).reshape(-1, 4)


def _write_tiles(image: Image.Image, boxes: Float[np.ndarray, "n 4"], root: Path, split: str, name: str) -> None:
    """Cut one photograph into equal tiles of about ``TILE_PX``, without overlap and without slivers."""
    columns, rows = (_tile_edges(length) for length in image.size)
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    for row, (top, bottom) in enumerate(rows):
        for column, (left, right) in enumerate(columns):
            tile_name = f"{name}_{row}{column}"
            image.crop((left, top, right, bottom)).save(root / "images" / split / f"{tile_name}.jpg", quality=95)
            size = np.array([right - left, bottom - top, right - left, bottom - top])
            clipped = np.clip(boxes - [left, top, left, top], 0, size)
            extent = clipped[:, 2:] - clipped[:, :2]
            is_kept = (extent > 0).all(axis=1) & (extent.prod(axis=1) >= MIN_VISIBLE * areas)
            center_size = np.concatenate([(clipped[:, :2] + clipped[:, 2:]) / 2, extent], axis=1)[is_kept] / size
            text = "".join("0 {:.6f} {:.6f} {:.6f} {:.6f}\n".format(*box) for box in center_size)
            (root / "labels" / split / f"{tile_name}.txt").write_text(text, encoding="utf-8")


def _tile_edges(length: int) -> list[tuple[int, int]]:
    edges = np.rint(np.linspace(0, length, max(1, round(length / TILE_PX)) + 1)).astype(int).tolist()
    return list(itertools.pairwise(edges))
