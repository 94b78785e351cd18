"""Colour gains in 8-bit HSV."""

from __future__ import annotations

import cv2
import numpy as np

from lucid_yolo.data.plan import IDENTITY_GAINS

HUE_CODES = 180


def shift_hsv(image: np.ndarray, gains: tuple[float, float, float]) -> np.ndarray:
    """Shift the hue around the circle and scale saturation and value, clamped.

    Args:
        image: ``[h, w, 3]`` RGB uint8.
        gains: Hue shift as a fraction of the circle, saturation factor, value factor.

    Returns:
        A new image; the given one when the gains change nothing.
    """
    if gains == IDENTITY_GAINS:
        return image
    hsv = cv2.cvtColor(image, cv2.COLOR_RGB2HSV)
    cv2.LUT(hsv, hsv_table(gains), dst=hsv)
    return cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB, dst=hsv)


def hsv_table(gains: tuple[float, float, float]) -> np.ndarray:
    """Return the ``[1, 256, 3]`` uint8 table from old to new hue, saturation and value codes."""
    hue_shift, saturation, value = gains
    codes = np.arange(256, dtype=np.float64)
    hue = np.rint(codes + hue_shift * HUE_CODES) % HUE_CODES
    scaled = (np.rint(codes * factor).clip(0, 255) for factor in (saturation, value))
    return np.stack((hue, *scaled), 1).astype(np.uint8)[None]
