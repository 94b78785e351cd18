import io
import threading
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image, ImageFile

from lucid_yolo.data.image import UndecodableImageError, decode_image, image_size, read_header, read_image

WIDTH, HEIGHT = 40, 24
INVERSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


@pytest.fixture
def rgb() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)


def encode(image: Image.Image, image_format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, image_format, **options)
    return buffer.getvalue()


def smooth_jpeg(**options: Any) -> bytes:
    rows, columns = np.mgrid[0:200, 0:320]
    pixels = np.stack([rows, columns // 2, (rows + columns) // 3], axis=2).astype(np.uint8)
    return encode(Image.fromarray(pixels), "JPEG", quality=90, **options)


@pytest.mark.parametrize("image_format", ["PNG", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied_to_pixels_and_size(
    rgb: np.ndarray, tmp_path: Path, image_format: str, orientation: int
) -> None:
    stored = Image.fromarray(rgb)
    if orientation in INVERSE:
        stored = stored.transpose(INVERSE[orientation])
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "image"
    path.write_bytes(encode(stored, image_format, exif=exif))
    np.testing.assert_array_equal(read_image(path), rgb)
    assert image_size(path) == (HEIGHT, WIDTH)
    assert read_header(path).orientation == orientation
    with Image.open(path) as opened:
        np.testing.assert_array_equal(read_image(opened), rgb)


def test_png_orientation_after_the_pixels_is_seen_by_header_and_decoder(rgb: np.ndarray, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encode(Image.fromarray(rgb).transpose(INVERSE[6]), "PNG", exif=exif)
    start = data.index(b"eXIf") - 4
    chunk = data[start : start + 12 + int.from_bytes(data[start : start + 4], "big")]
    path = tmp_path / "late.png"
    path.write_bytes(data.replace(chunk, b"")[:-12] + chunk + data[-12:])
    assert image_size(path) == (HEIGHT, WIDTH)
    np.testing.assert_array_equal(read_image(path), rgb)


def test_illegal_orientation_counts_as_upright(rgb: np.ndarray) -> None:
    exif = Image.Exif()
    exif[0x0112] = 99
    np.testing.assert_array_equal(read_image(encode(Image.fromarray(rgb), "PNG", exif=exif)), rgb)


def alpha_reference(rgb: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    share = alpha[..., None] / 255
    return np.rint(rgb * share + 114 * (1 - share))


def test_alpha_is_laid_over_grey(rgb: np.ndarray) -> None:
    alpha = np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH), dtype=np.uint8)
    image = Image.fromarray(np.dstack([rgb, alpha]))
    error = np.abs(read_image(encode(image, "PNG")).astype(float) - alpha_reference(rgb, alpha))
    assert error.max() <= 1


def test_transparent_palette_entry_becomes_grey() -> None:
    image = Image.new("P", (4, 2), 0)
    image.putpalette([200, 0, 0, 0, 0, 200])
    image.putpixel((0, 0), 1)
    pixels = read_image(encode(image, "PNG", transparency=0))
    assert pixels[0, 0].tolist() == [0, 0, 200]
    assert pixels[1, 1].tolist() == [114, 114, 114]


def test_sixteen_bits_are_shifted_right_by_eight(rgb: np.ndarray) -> None:
    wide = np.random.default_rng(2).integers(0, 65536, (HEIGHT, WIDTH, 3), dtype=np.uint16)
    for suffix in (".png", ".tif"):
        colour = cv2.imencode(suffix, wide[..., ::-1])[1].tobytes()
        np.testing.assert_array_equal(read_image(colour), wide >> 8)
        grey = cv2.imencode(suffix, wide[..., 0])[1].tobytes()
        np.testing.assert_array_equal(read_image(grey)[..., 2], wide[..., 0] >> 8)


@pytest.mark.parametrize(
    ("values", "expected", "reason"),
    [
        ([0.0, 0.5, 1.0], [0, 128, 255], "in [0, 1]: times 255"),
        ([-10.0, 0.0, 10.0], [0, 128, 255], "beyond: minimum to maximum"),
        ([float("nan"), 0.0, 1.0], [0, 0, 255], "NaN is black"),
        ([7.0, 7.0, 7.0], [0, 0, 0], "constant beyond [0, 1]"),
    ],
)
def test_float_images(values: list[float], expected: list[int], reason: str) -> None:
    data = encode(Image.fromarray(np.array([values], np.float32)), "TIFF")
    assert read_image(data)[0, :, 0].tolist() == expected, reason


def test_other_modes_become_rgb(rgb: np.ndarray) -> None:
    image = Image.fromarray(rgb)
    for mode in ("L", "1", "LA", "P", "CMYK"):
        image_format = "TIFF" if mode == "CMYK" else "PNG"
        pixels = read_image(encode(image.convert(mode), image_format))
        assert pixels.shape == (HEIGHT, WIDTH, 3), mode
        assert pixels.dtype == np.uint8, mode
        assert pixels.flags.c_contiguous, mode
        assert pixels.flags.writeable, mode
    np.testing.assert_array_equal(read_image(image.convert("L"))[..., 0], np.asarray(image.convert("L")))
    assert set(np.unique(read_image(image.convert("1")))) == {0, 255}


def test_animation_gives_its_first_frame(rgb: np.ndarray) -> None:
    first = Image.fromarray(rgb)
    data = encode(first, "PNG", save_all=True, append_images=[Image.new("RGB", first.size)])
    decoded = decode_image(data)
    np.testing.assert_array_equal(decoded.pixels, rgb)
    assert decoded.kind == "PNG RGB first frame"


@pytest.mark.parametrize("is_progressive", [False, True])
def test_truncated_jpeg_is_used_and_told(tmp_path: Path, is_progressive: bool) -> None:
    data = smooth_jpeg(progressive=is_progressive)
    path = tmp_path / "half.jpg"
    path.write_bytes(data[: len(data) * 6 // 10])
    decoded = decode_image(path)
    assert decoded.is_truncated
    assert read_header(path).lacks_end
    assert np.abs(decoded.pixels[:64].astype(int) - read_image(data)[:64]).mean() < 8
    with Image.open(path) as opened:
        np.testing.assert_array_equal(read_image(opened), decoded.pixels)
    assert not ImageFile.LOAD_TRUNCATED_IMAGES


def test_truncated_png_keeps_its_first_rows() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (200, 200, 3), dtype=np.uint8)
    data = encode(Image.fromarray(pixels), "PNG")
    decoded = decode_image(data[: len(data) // 2])
    assert decoded.is_truncated
    np.testing.assert_array_equal(decoded.pixels[:50], pixels[:50])
    assert not decoded.pixels[150:].any()


def damaged_png() -> bytes:
    data = bytearray(encode(Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64), np.uint8)), "PNG"))
    data[len(data) // 2] ^= 255
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty file"),
        (b"<!doctype html><title>404</title>", "a web page"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "formats that run programs are never opened"),
        (encode(Image.new("RGB", (9, 9)), "PNG")[:40], "header only"),
        (damaged_png(), "bad checksum"),
        (smooth_jpeg()[:620], "JPEG without any pixel"),
    ],
)
def test_undecodable_is_one_error(data: bytes, reason: str) -> None:
    with pytest.raises(UndecodableImageError):
        read_image(data)


def test_pixel_limit_names_the_switch(tmp_path: Path) -> None:
    path = tmp_path / "large.png"
    Image.new("1", (1000, 500)).save(path)
    with pytest.raises(UndecodableImageError, match=r"1000 x 500 = 500000 pixels, limit 400000.*max_pixels"):
        read_image(path, max_pixels=400_000)
    with pytest.raises(UndecodableImageError, match="max_pixels"):
        read_header(path, max_pixels=400_000)
    assert read_image(path).shape == (500, 1000, 3)


def test_pillows_own_size_limit_and_warning_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    assert read_image(encode(Image.new("RGB", (12, 12)), "PNG")).shape == (12, 12, 3)


def test_threads_decode_whole_and_truncated_files_alike() -> None:
    data = smooth_jpeg()
    sources = [data, data[: len(data) // 2]] * 8
    expected = [read_image(source) for source in sources]
    found: list[Any] = [None] * len(sources)

    def decode(index: int) -> None:
        found[index] = read_image(sources[index])

    threads = [threading.Thread(target=decode, args=(index,)) for index in range(len(sources))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_wrong_source_type() -> None:
    with pytest.raises(TypeError, match="source"):
        read_image(np.zeros((2, 2, 3), np.uint8))  # type: ignore[arg-type]
