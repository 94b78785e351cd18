"""Odd but legal and broken image files through reading, the training loader and the evaluation loader."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lucid_yolo.data.dataset import DataSplit, open_split
from lucid_yolo.data.loader import EvalLoader, TrainLoader
from lucid_yolo.data.makers import PixelMaker
from lucid_yolo.data.plan import TrainPlanner
from lucid_yolo.data.policy import AugmentPolicy
from lucid_yolo.data.sources import PreparedSource

SIZE_PX, WIDTH, HEIGHT = 64, 60, 40
GREY = 114
UPRIGHT = Image.Transpose.ROTATE_90

Make = Callable[[Image.Image], bytes]


def encode(image_format: str, **options: object) -> Make:
    def make(image: Image.Image) -> bytes:
        buffer = io.BytesIO()
        image.save(buffer, image_format, **options)
        return buffer.getvalue()

    return make


def turned(image_format: str) -> Make:
    """Stored a quarter turn off, with the EXIF orientation that undoes it."""

    def make(image: Image.Image) -> bytes:
        exif = Image.Exif()
        exif[0x0112] = 6
        return encode(image_format, exif=exif, lossless=True)(image.transpose(UPRIGHT))

    return make


def mode(name: str, image_format: str) -> Make:
    return lambda image: encode(image_format)(image.convert(name))


def wide(image: Image.Image) -> bytes:
    return encode("PNG")(Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257))


def unit_float(image: Image.Image) -> bytes:
    return encode("TIFF")(Image.fromarray(np.asarray(image.convert("L")).astype(np.float32) / 255))


def pages(image: Image.Image) -> bytes:
    return encode("TIFF", save_all=True, append_images=[image.resize((9, 9))])(image)


def cut(share: float) -> Make:
    def make(image: Image.Image) -> bytes:
        data = encode("JPEG", quality=95)(image)
        return data[: int(len(data) * share)]

    return make


def bad_checksum(image: Image.Image) -> bytes:
    data = bytearray(encode("PNG")(image))
    data[len(data) // 2] ^= 255
    return bytes(data)


# name, bytes, largest mean difference to the plain picture in levels (None: not compared), why
USED: list[tuple[str, Make, float | None, str]] = [
    ("plain.png", encode("PNG"), 0, "plain"),
    ("a.jpg", encode("JPEG", quality=95), 6, "JPEG"),
    ("progressive.JPG", encode("JPEG", quality=95, progressive=True), 6, "upper-case suffix"),
    ("turned.jpg", turned("JPEG"), 12, "EXIF in JPEG"),
    ("turned.png", turned("PNG"), 0, "EXIF in PNG"),
    ("turned.webp", turned("WEBP"), 2, "EXIF in WebP"),
    ("grey.png", mode("L", "PNG"), None, "grey"),
    ("grey_alpha.png", mode("LA", "PNG"), None, "grey with alpha"),
    ("palette.png", mode("P", "PNG"), None, "palette"),
    ("bits.png", mode("1", "PNG"), None, "one bit"),
    ("alpha.png", mode("RGBA", "PNG"), 0, "opaque alpha"),
    ("inks.jpg", mode("CMYK", "JPEG"), 12, "CMYK"),
    ("wide.png", wide, None, "16 bits"),
    ("float.tif", unit_float, None, "float"),
    ("pages.tif", pages, 0, "several pages: the first"),
    ("named.jpg", encode("PNG"), 0, "PNG under the name of a JPEG"),
    ("noext", encode("PNG"), 0, "no suffix"),
    ("naïve 图像 (1) %20#.png", encode("PNG"), 0, "a name in other scripts, with blanks and signs"),
    ("noend.jpg", lambda image: encode("JPEG", quality=95)(image)[:-2], 6, "end marker missing"),
    ("half.jpg", cut(0.7), None, "a third missing"),
    ("rest.jpg", lambda image: encode("JPEG", quality=95)(image) + b"GARBAGE" * 9, 6, "bytes after the end"),
    ("pixel.png", lambda _: encode("PNG")(Image.new("RGB", (1, 1), (255, 0, 0))), None, "a single pixel"),
    ("line.png", lambda _: encode("PNG")(Image.new("RGB", (4000, 3))), None, "4000 x 3"),
]
LEFT_OUT: list[tuple[str, Make, str]] = [
    ("empty.jpg", lambda _: b"", "no bytes"),
    ("page.jpg", lambda _: b"<!doctype html><title>404</title>", "a saved page"),
    ("header.png", lambda image: encode("PNG")(image)[:40], "header only"),
    ("bomb.png", lambda _: encode("PNG")(Image.new("1", (20_000, 20_000))), "400 million pixels"),
]
DAMAGED = "damaged.png"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("odd")
    coarse = np.random.default_rng(0).integers(0, 255, (4, 6, 3), np.uint8)
    image = Image.fromarray(coarse).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
    files = {name: make(image) for name, make, *_ in (*USED, *LEFT_OUT)} | {DAMAGED: bad_checksum(image)}
    for split in ("train", "val"):
        for folder in ("images", "labels"):
            (root / folder / split).mkdir(parents=True)
        for name, data in files.items():
            (root / "images" / split / name).write_bytes(data)
            (root / "labels" / split / Path(name).with_suffix(".txt").name).write_text("0 0.5 0.5 0.5 0.5\n")
    (root / "data.yaml").write_text("train: images/train\nval: images/val\nnames: [thing]\n")
    return root


def load(split: DataSplit, name: str) -> tuple[dict[str, np.ndarray], dict[str, int], list[str]]:
    """Return the pixels and the number of targets by file name, and what could not be decoded."""
    records = split.records
    prepared = PreparedSource(records, SIZE_PX)
    loader: TrainLoader | EvalLoader
    if name == "train":
        planner = TrainPlanner(records, SIZE_PX, AugmentPolicy.none(), 4, 0, 1)
        loader = TrainLoader(planner, PixelMaker(records, prepared), num_workers=0)
    else:
        loader = EvalLoader(records, prepared, 4, num_workers=0)
    pixels, num_targets = {}, {}
    for batch in loader:
        for slot, index in enumerate(batch.sample_index.tolist()):
            if index >= 0:
                file_name = Path(records[index].path).name
                pixels[file_name] = batch.images[slot].permute(1, 2, 0).numpy().copy()
                num_targets[file_name] = int(batch.targets.is_object[slot].sum())
    return pixels, num_targets, [Path(records[i].path).name for i in prepared.undecodable_indices]


@pytest.mark.parametrize("name", ["train", "val"])
def test_every_file_is_used_or_named(root: Path, name: str) -> None:
    split = open_split(root, name)  # type: ignore[arg-type]
    pixels, num_targets, undecodable = load(split, name)
    assert {Path(item.path).name for item in split.account.left_out} == {row[0] for row in LEFT_OUT}
    assert split.account.reasons("dropped") == {"image unusable": len(LEFT_OUT)}
    assert set(pixels) == {row[0] for row in USED} | {DAMAGED}
    assert undecodable == [DAMAGED]
    assert (pixels[DAMAGED] == GREY).all()
    assert num_targets[DAMAGED] == 0
    for file_name, _, tolerance, why in USED:
        if tolerance is not None:
            difference = np.abs(pixels[file_name].astype(float) - pixels["plain.png"].astype(float)).mean()
            assert difference <= tolerance, (file_name, why, difference)
        if name == "train" and file_name != "line.png":
            assert num_targets[file_name] == 1, (file_name, why)


def test_both_loaders_see_the_same_pixels(root: Path) -> None:
    train, val = (load(open_split(root, name), name)[0] for name in ("train", "val"))  # type: ignore[arg-type]
    for file_name, pixels in train.items():
        np.testing.assert_array_equal(pixels, val[file_name], err_msg=file_name)


def test_odd_files_survive_mosaics(root: Path) -> None:
    split = open_split(root, "train")
    planner = TrainPlanner(split.records, SIZE_PX, AugmentPolicy(close_mosaic=0), 8, 0, 2)
    loader = TrainLoader(planner, PixelMaker(split.records, PreparedSource(split.records, SIZE_PX)), num_workers=0)
    for batch in loader:
        boxes = batch.targets.boxes_xyxy_px[batch.targets.is_object]
        assert (boxes[:, 2:] > boxes[:, :2]).all()
        assert boxes.min() >= 0
        assert boxes.max() <= SIZE_PX


def test_kinds_and_truncation_are_counted(root: Path) -> None:
    notes = {note.kind: note.count for note in open_split(root, "train").account.notes}
    assert notes["image kind PNG I;16B"] == 1
    assert notes["image kind JPEG CMYK"] == 1
    assert notes["image kind TIFF RGB first frame"] == 1
    assert notes["image file without its end marker (probably truncated)"] == 2
