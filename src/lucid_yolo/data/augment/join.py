"""Two samples made one: a pasted region, or a blend."""

from __future__ import annotations

import cv2
import numpy as np

from lucid_yolo.data.augment.affine import clip_boxes, stays


def is_region_free(boxes_xyxy_px: np.ndarray, region_xyxy_px: tuple[int, int, int, int]) -> bool:
    """True when the region covers no part of any box, ignore regions included.

    Args:
        boxes_xyxy_px: ``[n, 4]`` corners.
        region_xyxy_px: Corners of the region.
    """
    region = np.array(region_xyxy_px)
    overlap = np.minimum(boxes_xyxy_px[:, 2:], region[2:]) - np.maximum(boxes_xyxy_px[:, :2], region[:2])
    return not (overlap > 0).all(1).any()


def paste_region(image: np.ndarray, partner: np.ndarray, region_xyxy_px: tuple[int, int, int, int]) -> np.ndarray:
    """Return the image with a region of another in its place.

    Args:
        image: ``[S, S, 3]`` uint8, not changed.
        partner: ``[S, S, 3]`` uint8.
        region_xyxy_px: Corners of the region, within both.
    """
    x1, y1, x2, y2 = region_xyxy_px
    pasted = image.copy()
    pasted[y1:y2, x1:x2] = partner[y1:y2, x1:x2]
    return pasted


def cut_boxes(
    boxes_xyxy_px: np.ndarray, is_ignored: np.ndarray, region_xyxy_px: tuple[int, int, int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Cut boxes to the region and apply the drop rule.

    Args:
        boxes_xyxy_px: ``[n, 4]`` corners.
        is_ignored: ``[n]`` bool, True for ignore regions.
        region_xyxy_px: Corners of the region.

    Returns:
        ``[n, 4]`` boxes and ``[n]`` bool, True for those that stay.
    """
    visible, is_visible = clip_boxes(boxes_xyxy_px, np.array([region_xyxy_px], np.float64))
    return visible, is_visible & stays(visible, boxes_xyxy_px, is_ignored)


def blend(image: np.ndarray, partner: np.ndarray, share: float) -> np.ndarray:
    """Return ``share * image + (1 - share) * partner``, rounded.

    Args:
        image: ``[S, S, 3]`` uint8.
        partner: ``[S, S, 3]`` uint8.
        share: Weight of ``image``, [0, 1].

    Source:
        Zhang et al., "mixup", 2018, without the label weights.
    """
    return cv2.addWeighted(image, share, partner, 1 - share, 0)
