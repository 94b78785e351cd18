"""Images drawn from plans with plain operations.

The arithmetic is that of OpenCV 5 on a processor with fused multiply-add, found by comparing results: the same bytes as
:func:`lucid_yolo.data.augment.apply.apply_plan` makes there. Elsewhere a code may differ by one.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from lucid_yolo.geometry.letterbox import FILL_VALUE
from lucid_yolo.kernels.augment.planned_batch import CUT, MAX_PLACEMENTS, MIX, PASTE, PlannedBatch

# Which of (value, low, falling, rising) is red, green and blue in each sixth of the hue circle.
_SECTORS = ((0, 3, 1), (2, 0, 1), (1, 0, 3), (1, 2, 0), (3, 1, 0), (0, 1, 2))
_SHIFT = 12


def hsv_divisors() -> Int[Tensor, "2 256"]:
    """Return what a difference of channels is multiplied by, instead of divided: for saturation, then for hue.

    Fixed point with 12 places: 255 / value and 180 / (6 x difference).
    """
    codes = torch.arange(256, dtype=torch.float64).clamp(min=1)
    rows = torch.stack(((255 << _SHIFT) / codes, (180 << _SHIFT) / (6 * codes))).round()
    rows[:, 0] = 0
    return rows.int()


def draw_images_reference(
    batch: PlannedBatch, pixels: UInt8[Tensor, " num_values"], divisors: Int[Tensor, "2 256"]
) -> Float[Tensor, "B 3 S S"]:
    """Return images in [0, 1], channels-last; see :func:`lucid_yolo.kernels.augment.draw_images`.

    Args:
        batch: The plans.
        pixels: Source pixels.
        divisors: :func:`hsv_divisors`, on the batch's device.
    """
    codes = _layer(batch, pixels, 0)
    if batch.num_layers > 1:
        codes = _joined(batch, pixels, codes)
    codes = _recolored(batch, codes.int(), divisors)
    is_bgr = batch.plan_field("colors")[:, 1, None, None, None] != 0
    codes = torch.where(is_bgr, codes.flip(-1), codes)
    return codes.float().mul(1 / 255).permute(0, 3, 1, 2)


def _layer(batch: PlannedBatch, pixels: Tensor, layer: int) -> Float[Tensor, "B S S 3"]:
    """Sample one layer of every image bilinearly."""
    size, device = batch.image_size_px, pixels.device
    row = torch.arange(size, device=device, dtype=torch.float32)
    is_mirrored = batch.plan_field("layers")[:, layer, 1, None, None] != 0
    x = torch.where(is_mirrored, size - 1 - row, row)
    y = row[:, None]
    m = batch.plan_field("maps")[:, layer, :, None, None].unbind(1)
    depth = _fma(x, m[6], y * m[7] + m[8])
    x_src, y_src = (_fma(x, m[i], y * m[i + 1] + m[i + 2]) / depth for i in (0, 3))
    left, top = x_src.floor(), y_src.floor()
    x_part, y_part = ((a - b).nan_to_num(0, 0, 0).unsqueeze(-1) for a, b in ((x_src, left), (y_src, top)))
    left, top = (v.nan_to_num(-2.0).clamp(-2.0, 2.0**20).long() for v in (left, top))
    p00, p01, p10, p11 = (_taps(batch, pixels, layer, left + dx, top + dy) for dy in (0, 1) for dx in (0, 1))
    upper, lower = _fma(x_part, p01 - p00, p00), _fma(x_part, p11 - p10, p10)
    return _fma(y_part, lower - upper, upper).round().clamp(0, 255)


def _taps(batch: PlannedBatch, pixels: Tensor, layer: int, x: Tensor, y: Tensor) -> Float[Tensor, "B S S 3"]:
    """Return canvas pixels; grey where no source lies."""
    start = x.new_full(x.shape, -1)
    for slot in range(MAX_PLACEMENTS):
        first, x0, y0, width, *clip, _ = batch.plan_field("placements")[:, layer, slot, :, None, None].unbind(1)
        is_inside = (x >= clip[0]) & (y >= clip[1]) & (x < clip[2]) & (y < clip[3])
        start = torch.where(is_inside, first + ((y - y0) * width + x - x0) * 3, start)
    channels = torch.arange(3, device=pixels.device)
    values = pixels[(start.clamp(min=0).unsqueeze(-1) + channels).flatten()].view(*start.shape, 3)
    return torch.where((start >= 0).unsqueeze(-1), values, FILL_VALUE).float()


def _joined(batch: PlannedBatch, pixels: Tensor, codes: Tensor) -> Float[Tensor, "B S S 3"]:
    """Paste objects, paste a region, blend, each where the plan says so."""
    layers = batch.plan_field("layers")
    if batch.masks is not None:
        is_pasted = (batch.masks != 0) & (layers[:, PASTE, 0, None, None] != 0)
        codes = torch.where(is_pasted.unsqueeze(-1), _layer(batch, pixels, PASTE), codes)
    at = torch.arange(batch.image_size_px, device=codes.device)
    x1, y1, x2, y2 = layers[:, CUT, 2:, None, None].unbind(1)
    in_region = (at >= x1) & (at < x2) & (at[:, None] >= y1) & (at[:, None] < y2) & (layers[:, CUT, 0, None, None] != 0)
    codes = torch.where(in_region.unsqueeze(-1), _layer(batch, pixels, CUT), codes)
    own, other = batch.plan_field("shares")[:, :, None, None, None].unbind(1)
    blended = _fma(codes, own, _layer(batch, pixels, MIX) * other).round().clamp(0, 255)
    return torch.where(layers[:, MIX, 0, None, None, None] != 0, blended, codes)


def _recolored(batch: PlannedBatch, rgb: Int[Tensor, "B S S 3"], divisors: Tensor) -> Int[Tensor, "B S S 3"]:
    """Look hue, saturation and value up in the image's tables."""
    red, green, blue = rgb.unbind(-1)
    value = rgb.amax(-1)
    spread = value - rgb.amin(-1)
    half = 1 << (_SHIFT - 1)
    saturation = (spread * divisors[0][value] + half) >> _SHIFT
    turned = torch.where(value == green, blue - red + 2 * spread, red - green + 4 * spread)
    hue = (torch.where(value == red, green - blue, turned) * divisors[1][spread] + half) >> _SHIFT
    hue = torch.where(hue < 0, hue + 180, hue)
    tables, image = batch.plan_field("tables"), torch.arange(len(batch), device=rgb.device)[:, None, None]
    hue, saturation, value = (tables[:, i][image, x].float() for i, x in enumerate((hue, saturation, value)))

    sixths, s, v = hue * (6 / 180), saturation * (1 / 255), value * (1 / 255)
    sector = sixths.trunc()
    part, one = sixths - sector, torch.ones_like(s)
    levels = torch.stack((v, v * (1 - s), v * _fma(-s, part, one), v * _fma(-s, 1 - part, one)), -1)
    chosen = torch.tensor(_SECTORS, device=rgb.device)[sector.long()]
    recolored = (levels.gather(-1, chosen) * 255).int().clamp(0, 255)
    is_recolored = batch.plan_field("colors")[:, 0, None, None, None] != 0
    return torch.where(is_recolored, recolored, rgb)


def _fma(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Return ``a * b + c`` rounded once."""
    return (a.double() * b.double() + c.double()).float()
