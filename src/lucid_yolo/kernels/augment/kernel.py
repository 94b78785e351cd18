"""The drawing of images as one Triton kernel, one program per image and run of output pixels.

Byte-equal to the plain form: multiply-adds are fused where OpenCV fuses them and nowhere else, divisions are correctly
rounded, rounding to a code is to the nearest even.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from lucid_yolo.geometry.letterbox import FILL_VALUE
from lucid_yolo.kernels.augment.planned_batch import CUT, MAX_PLACEMENTS, MIX, PASTE, PLACEMENT_COLUMNS, PlannedBatch
from lucid_yolo.kernels.launch import launch

BLOCK = 256
# Adding and taking away 1.5 * 2^23 rounds a number of this size to an integer.
ROUND = tl.constexpr(12582912.0)
FILL = tl.constexpr(float(FILL_VALUE))
COLUMNS = tl.constexpr(PLACEMENT_COLUMNS)


@triton.jit
def _tap(pixels, placements, x, y, exists, MAX_PLACEMENTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return red, green and blue of a canvas pixel; grey where no source lies."""
    start = x.to(tl.int64) * 0
    is_inside = x < -(1 << 24)
    for slot in tl.static_range(MAX_PLACEMENTS):
        at = placements + slot * COLUMNS
        x1, y1 = tl.load(at + 4).to(tl.int32), tl.load(at + 5).to(tl.int32)
        x2, y2 = tl.load(at + 6).to(tl.int32), tl.load(at + 7).to(tl.int32)
        is_here = exists & (x >= x1) & (y >= y1) & (x < x2) & (y < y2)
        column = (x - tl.load(at + 1).to(tl.int32)).to(tl.int64)
        line = (y - tl.load(at + 2).to(tl.int32)).to(tl.int64)
        start = tl.where(is_here, tl.load(at) + (line * tl.load(at + 3) + column) * 3, start)
        is_inside = is_inside | is_here
    red = tl.load(pixels + start, is_inside, 0).to(tl.float32)
    green = tl.load(pixels + start + 1, is_inside, 0).to(tl.float32)
    blue = tl.load(pixels + start + 2, is_inside, 0).to(tl.float32)
    return tl.where(is_inside, red, FILL), tl.where(is_inside, green, FILL), tl.where(is_inside, blue, FILL)


@triton.jit
def _bilinear(p00, p01, p10, p11, x_part, y_part):  # type: ignore[no-untyped-def]
    upper = tl.fma(x_part, p01 - p00, p00)
    lower = tl.fma(x_part, p11 - p10, p10)
    return _to_code(tl.fma(y_part, lower - upper, upper))


@triton.jit
def _to_code(value):  # type: ignore[no-untyped-def]
    return tl.minimum(tl.maximum((value + ROUND) - ROUND, 0.0), 255.0)


@triton.jit
def _layer(pixels, placements, layer, m, x, y, size, exists, MAX_PLACEMENTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Sample one layer bilinearly."""
    column = tl.where(tl.load(layer + 1) != 0, size - 1 - x, x).to(tl.float32)
    line = y.to(tl.float32)
    depth = tl.fma(column, tl.load(m + 6), line * tl.load(m + 7) + tl.load(m + 8))
    x_src = tl.div_rn(tl.fma(column, tl.load(m), line * tl.load(m + 1) + tl.load(m + 2)), depth)
    y_src = tl.div_rn(tl.fma(column, tl.load(m + 3), line * tl.load(m + 4) + tl.load(m + 5)), depth)
    left, top = tl.floor(x_src), tl.floor(y_src)
    x_part, y_part = x_src - left, y_src - top
    # What is not finite lies outside of every source.
    x_part = tl.where((x_part >= 0) & (x_part <= 1), x_part, 0.0)
    y_part = tl.where((y_part >= 0) & (y_part <= 1), y_part, 0.0)
    left = tl.where((left >= -2.0) & (left <= 1048576.0), left, -2.0).to(tl.int32)
    top = tl.where((top >= -2.0) & (top <= 1048576.0), top, -2.0).to(tl.int32)
    r00, g00, b00 = _tap(pixels, placements, left, top, exists, MAX_PLACEMENTS)
    r01, g01, b01 = _tap(pixels, placements, left + 1, top, exists, MAX_PLACEMENTS)
    r10, g10, b10 = _tap(pixels, placements, left, top + 1, exists, MAX_PLACEMENTS)
    r11, g11, b11 = _tap(pixels, placements, left + 1, top + 1, exists, MAX_PLACEMENTS)
    red = _bilinear(r00, r01, r10, r11, x_part, y_part)
    green = _bilinear(g00, g01, g10, g11, x_part, y_part)
    blue = _bilinear(b00, b01, b10, b11, x_part, y_part)
    return red, green, blue


@triton.jit
def _recolored(red, green, blue, tables, divisors, exists):  # type: ignore[no-untyped-def]
    """Look hue, saturation and value up in the image's tables."""
    r, g, b = red.to(tl.int32), green.to(tl.int32), blue.to(tl.int32)
    value = tl.maximum(tl.maximum(r, g), b)
    spread = value - tl.minimum(tl.minimum(r, g), b)
    saturation = (spread * tl.load(divisors + value, exists, 0) + 2048) >> 12
    turned = tl.where(value == g, b - r + 2 * spread, r - g + 4 * spread)
    hue = (tl.where(value == r, g - b, turned) * tl.load(divisors + 256 + spread, exists, 0) + 2048) >> 12
    hue = tl.where(hue < 0, hue + 180, hue)
    h = tl.load(tables + hue, exists, 0).to(tl.float32)
    s = tl.load(tables + 256 + saturation, exists, 0).to(tl.float32) * 0.00392156862745098
    v = tl.load(tables + 512 + value, exists, 0).to(tl.float32) * 0.00392156862745098
    sixths = h * 0.03333333333333333
    sector = sixths.to(tl.int32)
    part = sixths - sector.to(tl.float32)
    low = v * (1.0 - s)
    falling = v * tl.fma(-s, part, part * 0.0 + 1.0)
    rising = v * tl.fma(-s, 1.0 - part, part * 0.0 + 1.0)
    r1 = tl.where(sector == 1, falling, tl.where((sector == 2) | (sector == 3), low, tl.where(sector == 4, rising, v)))
    g1 = tl.where(sector == 0, rising, tl.where(sector == 3, falling, tl.where(sector >= 4, low, v)))
    b1 = tl.where(sector <= 1, low, tl.where(sector == 2, rising, tl.where(sector == 5, falling, v)))
    return _cut(r1), _cut(g1), _cut(b1)


@triton.jit
def _cut(level):  # type: ignore[no-untyped-def]
    return tl.minimum(tl.maximum((level * 255.0).to(tl.int32), 0), 255).to(tl.float32)


@triton.jit
def _draw_kernel(  # type: ignore[no-untyped-def]
    pixels,
    placements,
    layers,
    colors,
    maps,
    shares,
    tables,
    divisors,
    masks,
    images,
    size,
    LAYERS: tl.constexpr,
    HAS_MASKS: tl.constexpr,
    MAX_PLACEMENTS: tl.constexpr,
    PASTE: tl.constexpr,
    CUT: tl.constexpr,
    MIX: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Draw a run of pixels of one image."""
    image = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exists = at < size * size
    x, y = at % size, at // size
    place = placements + image * LAYERS * MAX_PLACEMENTS * COLUMNS
    layer = layers + image * LAYERS * 6
    m = maps + image * LAYERS * 9
    red, green, blue = _layer(pixels, place, layer, m, x, y, size, exists, MAX_PLACEMENTS)
    if LAYERS > 1:
        if HAS_MASKS:  # noqa: SIM102 (the first is known when the kernel is compiled)
            if tl.load(layer + PASTE * 6) != 0:
                is_pasted = exists & (tl.load(masks + image * size * size + at, exists, 0) != 0)
                r, g, b = _layer(
                    pixels,
                    place + PASTE * MAX_PLACEMENTS * COLUMNS,
                    layer + PASTE * 6,
                    m + PASTE * 9,
                    x,
                    y,
                    size,
                    is_pasted,
                    MAX_PLACEMENTS,
                )
                red, green, blue = (
                    tl.where(is_pasted, r, red),
                    tl.where(is_pasted, g, green),
                    tl.where(is_pasted, b, blue),
                )
        cut = layer + CUT * 6
        if tl.load(cut) != 0:
            is_cut = exists & (x >= tl.load(cut + 2)) & (y >= tl.load(cut + 3))
            is_cut = is_cut & (x < tl.load(cut + 4)) & (y < tl.load(cut + 5))
            r, g, b = _layer(
                pixels, place + CUT * MAX_PLACEMENTS * COLUMNS, cut, m + CUT * 9, x, y, size, is_cut, MAX_PLACEMENTS
            )
            red, green, blue = tl.where(is_cut, r, red), tl.where(is_cut, g, green), tl.where(is_cut, b, blue)
        mix = layer + MIX * 6
        if tl.load(mix) != 0:
            r, g, b = _layer(
                pixels, place + MIX * MAX_PLACEMENTS * COLUMNS, mix, m + MIX * 9, x, y, size, exists, MAX_PLACEMENTS
            )
            own, other = tl.load(shares + image * 2), tl.load(shares + image * 2 + 1)
            red, green = _to_code(tl.fma(red, own, r * other)), _to_code(tl.fma(green, own, g * other))
            blue = _to_code(tl.fma(blue, own, b * other))
    if tl.load(colors + image * 2) != 0:
        red, green, blue = _recolored(red, green, blue, tables + image * 768, divisors, exists)
    is_bgr = tl.load(colors + image * 2 + 1) != 0
    out = images + (image * size * size + at) * 3
    tl.store(out, tl.where(is_bgr, blue, red) * 0.00392156862745098, exists)
    tl.store(out + 1, green * 0.00392156862745098, exists)
    tl.store(out + 2, tl.where(is_bgr, red, blue) * 0.00392156862745098, exists)


def draw_images_kernel(batch: PlannedBatch, pixels: Tensor, divisors: Tensor) -> Tensor:
    """Draw the images of a batch on the device. Graph-safe; allocates its output."""
    size = batch.image_size_px
    images = torch.empty((len(batch), size, size, 3), device=pixels.device)
    views = (batch.plan_field(name) for name in ("placements", "layers", "colors", "maps", "shares", "tables"))
    launch(
        _draw_kernel,
        (triton.cdiv(size * size, BLOCK), len(batch)),
        pixels,
        *views,
        divisors,
        batch.plans if batch.masks is None else batch.masks,
        images,
        size,
        LAYERS=batch.num_layers,
        HAS_MASKS=batch.masks is not None,
        MAX_PLACEMENTS=MAX_PLACEMENTS,
        PASTE=PASTE,
        CUT=CUT,
        MIX=MIX,
        BLOCK=BLOCK,
        enable_fp_fusion=False,
    )
    return images.permute(0, 3, 1, 2)
