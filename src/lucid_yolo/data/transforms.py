"""Uniform draws made into the numbers of the transforms: map, region, colour gains."""

from __future__ import annotations

import math

from lucid_yolo.data.policy import AugmentPolicy

Affine = tuple[float, float, float, float, float, float]


def canvas_to_output(
    policy: AugmentPolicy, draws: list[float], canvas_size: int, size: int, flips: tuple[bool, bool]
) -> tuple[Affine, tuple[float, float]]:
    """Tilt, scale, shear and rotate about the canvas centre, move it to the output centre, shift, then flip."""
    scale_draw, angle_draw, shear_x_draw, shear_y_draw, *shift_draws, tilt_x, tilt_y = (2 * u - 1 for u in draws)
    scale, angle = 1 + policy.scale * scale_draw, math.radians(policy.degrees * angle_draw)
    shear_x, shear_y = (math.tan(math.radians(policy.shear * draw)) for draw in (shear_x_draw, shear_y_draw))
    cos, sin = scale * math.cos(angle), scale * math.sin(angle)
    center = canvas_size / 2
    # Third row of the map, [*depth, depth_0]: the depth is 1 at the canvas centre and linear in x and y.
    depth = (policy.perspective * tilt_x / center, policy.perspective * tilt_y / center)
    depth_0 = 1 - sum(depth) * center
    rows = []
    for row, shift_draw, is_flipped in zip(
        ((cos - sin * shear_y, cos * shear_x - sin), (sin + cos * shear_y, sin * shear_x + cos)),
        shift_draws,
        flips,
        strict=True,
    ):
        shift = size * (0.5 + policy.translate * shift_draw)
        moved = (row[0] + shift * depth[0], row[1] + shift * depth[1], shift * depth_0 - sum(row) * center)
        if is_flipped:
            moved = (size * depth[0] - moved[0], size * depth[1] - moved[1], size * depth_0 - moved[2])
        rows.append(tuple(value / depth_0 for value in moved))
    (xx, xy, x0), (yx, yy, y0) = rows
    return (xx, xy, x0, yx, yy, y0), (depth[0] / depth_0, depth[1] / depth_0)


def cut_region(draws: list[float], size: int) -> tuple[int, int, int, int]:
    """Return a square region of uniform area and centre, cut off at the borders (CutMix, section 3.1)."""
    half, center_x, center_y = 0.5 * size * math.sqrt(draws[2]), draws[3] * size, draws[4] * size
    low_x, low_y, high_x, high_y = center_x - half, center_y - half, center_x + half, center_y + half
    return max(int(low_x), 0), max(int(low_y), 0), min(int(high_x), size), min(int(high_y), size)


def hsv_gains(policy: AugmentPolicy, draws: list[float]) -> tuple[float, float, float]:
    """Return the hue shift and the saturation and value factors."""
    hue, saturation, value = (2 * u - 1 for u in draws[:3])
    return policy.hsv_h * hue, 1 + policy.hsv_s * saturation, 1 + policy.hsv_v * value
