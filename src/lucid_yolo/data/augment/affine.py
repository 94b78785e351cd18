"""The one resample of a training image, and the same map for its boxes.

Drop rule, the only one after augmentation: an object stays when the box of its visible part is at least
``MIN_SIDE_PX`` wide and high and covers at least ``MIN_KEPT_FRACTION`` of the box that the whole object would have
had. An ignore region needs the sides only: whatever is visible of a crowd is not background.
"""

from __future__ import annotations

import cv2
import numpy as np

from lucid_yolo.data.plan import IDENTITY_MATRIX, Affine
from lucid_yolo.geometry.letterbox import FILL_VALUE

MIN_SIDE_PX = 2.0
MIN_KEPT_FRACTION = 0.1


def warp_image(canvas: np.ndarray, matrix: Affine, output_size_px: int) -> np.ndarray:
    """Resample the canvas bilinearly; outside of it lies grey.

    Args:
        canvas: ``[h, w, 3]`` uint8.
        matrix: Canvas-to-output map in continuous coordinates, two rows of three.
        output_size_px: Side of the square result.

    Returns:
        ``[output, output, 3]`` uint8; the canvas itself when the map changes nothing.
    """
    if matrix == IDENTITY_MATRIX and canvas.shape[:2] == (output_size_px, output_size_px):
        return canvas
    rows = np.array(matrix, np.float64).reshape(2, 3)
    # OpenCV puts the centre of the first pixel at 0, the plan at 0.5.
    rows[:, 2] += 0.5 * (rows[:, 0] + rows[:, 1]) - 0.5
    return cv2.warpAffine(
        canvas,
        rows,
        (output_size_px, output_size_px),
        flags=cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_CONSTANT,
        borderValue=(FILL_VALUE,) * 3,
    )


def warp_boxes(boxes_xyxy_px: np.ndarray, matrix: Affine) -> np.ndarray:
    """Map the four corners of each box and return the upright box around them, not clipped.

    Args:
        boxes_xyxy_px: ``[n, 4]`` canvas corners.
        matrix: Canvas-to-output map, two rows of three.
    """
    xx, xy, x0, yx, yy, y0 = matrix
    corner_x, corner_y = boxes_xyxy_px[:, [0, 2, 0, 2]], boxes_xyxy_px[:, [1, 1, 3, 3]]
    x, y = xx * corner_x + xy * corner_y + x0, yx * corner_x + yy * corner_y + y0
    return np.stack((x.min(1), y.min(1), x.max(1), y.max(1)), 1)


def move_boxes(
    boxes_xyxy_px: np.ndarray, clip_xyxy_px: np.ndarray, matrix: Affine, output_size_px: int, is_ignored: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Cut boxes to what the canvas shows, warp and clip them, and apply the drop rule.

    Args:
        boxes_xyxy_px: ``[n, 4]`` canvas corners, not yet cut.
        clip_xyxy_px: ``[n, 4]`` canvas rectangle of each box's source.
        matrix: Canvas-to-output map, two rows of three.
        output_size_px: Side of the square output.
        is_ignored: ``[n]`` bool, True for ignore regions.

    Returns:
        ``[n, 4]`` output boxes and ``[n]`` bool, True for those that stay.
    """
    visible = np.clip(boxes_xyxy_px, clip_xyxy_px[:, [0, 1, 0, 1]], clip_xyxy_px[:, [2, 3, 2, 3]])
    is_visible = (visible[:, 2:] > visible[:, :2]).all(1)
    moved = np.clip(warp_boxes(visible, matrix), 0, output_size_px)
    is_large = ((moved[:, 2:] - moved[:, :2]) >= MIN_SIDE_PX).all(1)
    is_whole_enough = _area(moved) >= MIN_KEPT_FRACTION * _area(warp_boxes(boxes_xyxy_px, matrix))
    return moved, is_visible & is_large & (is_whole_enough | is_ignored)


def _area(boxes_xyxy_px: np.ndarray) -> np.ndarray:
    area: np.ndarray = (boxes_xyxy_px[:, 2:] - boxes_xyxy_px[:, :2]).prod(1)
    return area
