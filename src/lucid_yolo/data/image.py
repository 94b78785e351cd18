"""The one image decoder: every entry (path, bytes, PIL image) gives the same RGB pixels by the same stated rules.

* EXIF orientation is applied, also in PNG, WebP and TIFF; an illegal value counts as upright.
* Animations and multi-page files: first frame.
* 1-bit 0/255; grey copied to three channels; 16-bit ``>> 8``; float in [0, 1] times 255, else minimum to maximum.
* Alpha and transparent palette entries: laid over grey 114, the letterbox colour.
* CMYK and YCCK: Pillow's conversion, without ICC profiles; profiles are ignored everywhere.
* Truncated files: the decodable part is used, the rest is black (grey in a JPEG), and ``is_truncated`` says so.
"""

from __future__ import annotations

import io
import os
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageFile

ALPHA_GROUND = 114
MAX_PIXELS = 250_000_000

BinaryFile = io.BufferedReader | io.BytesIO

_ORIENTATION_TAG = 0x0112
_TRANSPOSES = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# Tried in this order. Formats that run other programs or lack a signature (EPS, WMF, TGA) are left out on purpose.
_FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF", "PPM", "JPEG2000", "AVIF", "QOI", "ICO", "PCX", "SGI")
_END_MARKERS = {"JPEG": b"\xff\xd9", "PNG": b"IEND"}
_TAIL_BYTES = 4096
_OPEN_ERRORS = (SyntaxError, IndexError, TypeError, KeyError, EOFError, struct.error, OSError, ValueError)


class UndecodableImageError(ValueError):
    """The file holds no image that can be decoded, or one beyond the pixel limit."""


@dataclass(frozen=True)
class DecodedImage:
    """Pixels of one image and what kind of file they came from.

    Attributes:
        pixels: RGB, EXIF-upright.
        kind: File format and stored mode, as in ``"PNG I;16"``.
        is_truncated: True when a part of the file is missing and the decodable part was used.
    """

    pixels: UInt8[np.ndarray, "H W 3"]
    kind: str
    is_truncated: bool


@dataclass(frozen=True)
class ImageHeader:
    """What the header of an image file tells without decoding it.

    Attributes:
        height_src: Height after EXIF orientation.
        width_src: Width after EXIF orientation.
        orientation: EXIF orientation, 1 to 8.
        kind: File format and stored mode, as in ``"PNG I;16"``.
        lacks_end: True when the file ends without its end marker (JPEG, PNG): probably truncated.
    """

    height_src: int
    width_src: int
    orientation: int
    kind: str
    lacks_end: bool


def read_image(source: str | Path | bytes | Image.Image, max_pixels: int = MAX_PIXELS) -> UInt8[np.ndarray, "H W 3"]:
    """Decode an image to upright RGB.

    Args:
        source: File name, the bytes of a file, or a PIL image (its current frame).
        max_pixels: Refuse images with more pixels than this (decompression bombs).

    Returns:
        A new, writable, contiguous array.

    Raises:
        UndecodableImageError: Not an image, damaged, or beyond ``max_pixels``.
        FileNotFoundError: No such file.
    """
    return decode_image(source, max_pixels).pixels


def decode_image(source: str | Path | bytes | Image.Image, max_pixels: int = MAX_PIXELS) -> DecodedImage:
    """Decode an image like :func:`read_image`, and tell its kind and whether it was truncated."""
    if isinstance(source, Image.Image):
        name = str(getattr(source, "filename", "") or "PIL image")
        _check_size(source, name, max_pixels)
        return _decode_opened(source, name, b"")
    if isinstance(source, bytes | bytearray | memoryview):
        name, data = "image bytes", bytes(source)
    elif isinstance(source, str | os.PathLike):
        name, data = os.fspath(source), Path(source).read_bytes()
    else:
        raise TypeError(f"source: expected a path, bytes or a PIL image, found {type(source).__name__}")
    with io.BytesIO(data) as file, _open_image(file, name) as opened:
        _check_size(opened, name, max_pixels)
        return _decode_opened(opened, name, data)


def read_header(path: str | Path, max_pixels: int = MAX_PIXELS) -> ImageHeader:
    """Read size, orientation and kind of an image file without decoding its pixels.

    Raises:
        UndecodableImageError: Not an image, or beyond ``max_pixels``.
    """
    name = os.fspath(path)
    with Path(path).open("rb") as file, _open_image(file, name) as opened:
        _check_size(opened, name, max_pixels)
        orientation = _orientation(opened, file)
        width, height = opened.size
        if orientation >= 5 and opened.format != "TIFF":  # Pillow turns TIFF itself
            width, height = height, width
        return ImageHeader(height, width, orientation, _kind(opened), _lacks_end(file, opened.format))


def image_size(path: str | Path) -> tuple[int, int]:
    """Return (height, width) of an image file after EXIF orientation, from its header alone."""
    header = read_header(path)
    return header.height_src, header.width_src


def _open_image(file: BinaryFile, name: str) -> ImageFile.ImageFile:
    """Open through Pillow's plugins, without the process-wide size limit and warning of ``Image.open``."""
    prefix = file.read(16)
    if any(f not in Image.OPEN for f in _FORMATS):
        Image.init()
    for factory, accept in (Image.OPEN[f] for f in _FORMATS if f in Image.OPEN):
        try:
            if accept is not None and accept(prefix) is not True:
                continue
            file.seek(0)
            return factory(file, name)
        except _OPEN_ERRORS:
            continue
    raise UndecodableImageError(f"{name}: not an image that can be decoded (first bytes {prefix[:8]!r})")


def _check_size(opened: Image.Image, name: str, max_pixels: int) -> None:
    num_pixels = opened.width * opened.height
    if num_pixels == 0:
        raise UndecodableImageError(f"{name}: image of {opened.width} x {opened.height} pixels")
    if num_pixels > max_pixels:
        raise UndecodableImageError(
            f"{name}: {opened.width} x {opened.height} = {num_pixels} pixels, limit {max_pixels}; "
            "cut the image into tiles, or raise max_pixels if the file is trusted"
        )


def _decode_opened(opened: Image.Image, name: str, data: bytes) -> DecodedImage:
    kind = _kind(opened)
    turn = None
    if opened.format != "TIFF":
        turn = _TRANSPOSES.get(_orientation(opened, io.BytesIO(data)))
    try:
        loaded, is_truncated = _load(opened, data)
        pixels = _to_rgb(loaded if turn is None else loaded.transpose(turn))
    except _OPEN_ERRORS as error:
        raise UndecodableImageError(f"{name}: {kind} that cannot be decoded: {error}") from error
    return DecodedImage(pixels, kind, is_truncated)


def _load(opened: Image.Image, data: bytes) -> tuple[Image.Image, bool]:
    """Decode the pixels; of a truncated file the part that is there."""
    try:
        opened.load()
    except OSError as error:
        if "truncated" not in str(error) or not isinstance(opened, ImageFile.ImageFile):
            raise
        if not data and opened.fp is not None:
            opened.fp.seek(0)
            data = opened.fp.read()
    else:
        return opened, False
    if opened.format in ("JPEG", "MPO"):
        opened = _open_image(io.BytesIO(data + _END_MARKERS["JPEG"]), "")
    else:
        opened.tile = []  # nothing more to read: keep the rows that were decoded
    opened.load()
    lows_highs = np.reshape(opened.getextrema(), (-1, 2))
    if (lows_highs[:, 0] == lows_highs[:, 1]).all():
        raise ValueError("the file ends before the first pixel")
    return opened, True


def _to_rgb(image: Image.Image) -> UInt8[np.ndarray, "H W 3"]:
    if image.mode in ("F", "I") or image.mode.startswith("I;16"):
        grey = _wide_to_uint8(np.asarray(image))
        return np.repeat(grey[:, :, None], 3, axis=2)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        ground = Image.new("RGBA", image.size, (ALPHA_GROUND, ALPHA_GROUND, ALPHA_GROUND, 255))
        image = Image.alpha_composite(ground, image)
    pixels: np.ndarray = np.array(image if image.mode == "RGB" else image.convert("RGB"))
    return pixels


def _wide_to_uint8(values: np.ndarray) -> UInt8[np.ndarray, "H W"]:
    """Reduce 16-bit, 32-bit or float grey to 8 bits."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    is_float = values.dtype.kind == "f"
    if not is_float and low >= 0 and high < 65536:
        return (values.astype(np.int64) >> 8).astype(np.uint8)
    if not (is_float and low >= 0 and high <= 1):
        values = (values - low) / max(high - low, 1e-12)
    values = np.nan_to_num(values, nan=0.0, posinf=1.0, neginf=0.0)
    scaled: np.ndarray = np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8)
    return scaled


def _kind(opened: Image.Image) -> str:
    """Name the file format and the stored mode; Pillow hides 16-bit colour behind mode RGB."""
    mode = opened.mode
    for tile in getattr(opened, "tile", []):
        arguments = tile[3] if isinstance(tile[3], tuple) else (tile[3],)
        mode = next((a for a in arguments if isinstance(a, str) and ";16" in a), mode)
    frame = " first frame" if getattr(opened, "is_animated", False) and opened.format != "MPO" else ""
    return f"{opened.format or 'memory'} {mode}{frame}"


def _orientation(opened: Image.Image, file: BinaryFile) -> int:
    """Read the EXIF orientation without decoding; 1 when absent, illegal or unreadable."""
    try:
        if opened.format == "PNG" and "exif" not in opened.info:
            late_exif = _late_png_exif(file)
            if late_exif:
                opened.info["exif"] = late_exif
        # the base method: Pillow's own PNG method would decode the whole image
        value = Image.Image.getexif(opened).get(_ORIENTATION_TAG, 1)
    except _OPEN_ERRORS:
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _late_png_exif(file: BinaryFile) -> bytes:
    """Return the eXIf chunk of a PNG, wherever it stands, by hopping over the other chunks."""
    position, exif = file.tell(), b""
    file.seek(8)
    while len(head := file.read(8)) == 8:
        length, name = struct.unpack(">I4s", head)
        if name == b"eXIf":
            exif = b"Exif\0\0" + file.read(length)
            break
        file.seek(length + 4, os.SEEK_CUR)
    file.seek(position)
    return exif


def _lacks_end(file: BinaryFile, image_format: str | None) -> bool:
    marker = _END_MARKERS.get(image_format or "")
    if marker is None:
        return False
    file.seek(0, os.SEEK_END)
    file.seek(max(0, file.tell() - _TAIL_BYTES))
    return marker not in file.read()
