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

Perspective = tuple[float, float]
_AFFINE: Perspective = (0.0, 0.0)


def warp_image(
    canvas: np.ndarray,
    matrix: Affine,
    output_size_px: int,
    perspective: Perspective = _AFFINE,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Resample the canvas bilinearly; outside of it lies grey.

    Args:
        canvas: ``[h, w, 3]`` uint8.
        matrix: First two rows of the canvas-to-output map in continuous coordinates.
        output_size_px: Side of the square result.
        perspective: First two entries of the map's third row, whose last is 1.
        out: Contiguous ``[output, output, 3]`` uint8 to write to.

    Returns:
        ``[output, output, 3]`` uint8; without ``out`` the canvas itself when the map changes nothing.
    """
    size = (output_size_px, output_size_px)
    if matrix == IDENTITY_MATRIX and perspective == _AFFINE and canvas.shape[:2] == size:
        if out is None:
            return canvas
        out[:] = canvas
        return out
    linear, constant, grey = cv2.INTER_LINEAR, cv2.BORDER_CONSTANT, (FILL_VALUE,) * 3
    rows = _between_centers(matrix, perspective)
    warp = cv2.warpPerspective
    if perspective == _AFFINE:
        rows, warp = rows[:2], cv2.warpAffine
    return warp(canvas, rows, size, dst=out, flags=linear, borderMode=constant, borderValue=grey)


def _between_centers(matrix: Affine, perspective: Perspective) -> np.ndarray:
    """Return the canvas-to-output map in OpenCV's coordinates: the centre of the first pixel at 0, not at 0.5."""
    if perspective == _AFFINE:
        rows = np.array((*matrix, 0.0, 0.0, 1.0), np.float64).reshape(3, 3)
        rows[:2, 2] += 0.5 * (rows[:2, 0] + rows[:2, 1]) - 0.5
        return rows
    to_centers, to_corners = np.eye(3), np.eye(3)
    to_centers[:2, 2], to_corners[:2, 2] = -0.5, 0.5
    return to_centers @ np.array((*matrix, *perspective, 1.0), np.float64).reshape(3, 3) @ to_corners


def output_to_canvas(matrix: Affine, perspective: Perspective = _AFFINE) -> np.ndarray:
    """Return the ``[3, 3]`` map that :func:`warp_image` looks pixels up with, both counted from a first centre.

    Args:
        matrix: First two rows of the canvas-to-output map in continuous coordinates.
        perspective: First two entries of the map's third row, whose last is 1.

    Note:
        The products are taken in OpenCV's order, so that the same bits come out.
    """
    rows = _between_centers(matrix, perspective)
    if perspective != _AFFINE:
        inverse: np.ndarray = cv2.invert(rows)[1]
        return inverse
    (xx, xy, x0), (yx, yy, y0) = rows[:2].tolist()
    determinant = xx * yy - xy * yx
    scale = 1 / determinant if determinant else 0.0
    xx, xy, yx, yy = yy * scale, xy * -scale, yx * -scale, xx * scale
    return np.array(((xx, xy, -xx * x0 - xy * y0), (yx, yy, -yx * x0 - yy * y0), (0.0, 0.0, 1.0)))


def warp_boxes(boxes_xyxy_px: np.ndarray, matrix: Affine, perspective: Perspective = _AFFINE) -> np.ndarray:
    """Map the four corners of each box and return the upright box around them, not clipped.

    Args:
        boxes_xyxy_px: ``[n, 4]`` canvas corners.
        matrix: First two rows of the canvas-to-output map.
        perspective: First two entries of the map's third row, whose last is 1.
    """
    corners = boxes_xyxy_px[:, [[0, 1], [2, 1], [0, 3], [2, 3]]]
    moved = warp_points(corners, matrix, perspective)
    x, y = moved[..., 0], moved[..., 1]
    return np.stack((x.min(1), y.min(1), x.max(1), y.max(1)), 1)


def warp_points(points_xy_px: np.ndarray, matrix: Affine, perspective: Perspective = _AFFINE) -> np.ndarray:
    """Map points from the canvas to the output.

    Args:
        points_xy_px: ``[..., 2]`` canvas points.
        matrix: First two rows of the canvas-to-output map.
        perspective: First two entries of the map's third row, whose last is 1.
    """
    xx, xy, x0, yx, yy, y0 = matrix
    x, y = points_xy_px[..., 0], points_xy_px[..., 1]
    moved = np.stack((xx * x + xy * y + x0, yx * x + yy * y + y0), -1)
    if perspective != _AFFINE:
        moved /= (perspective[0] * x + perspective[1] * y + 1)[..., None]
    return moved


def visible_rectangle(
    matrix: Affine, perspective: Perspective, canvas_size_px: int, output_size_px: int
) -> tuple[int, int, int, int]:
    """Return the corners of a canvas rectangle that holds every pixel the output is made from.

    Args:
        matrix: First two rows of the canvas-to-output map.
        perspective: First two entries of the map's third row; anything but zero needs the whole canvas.
        canvas_size_px: Side of the square canvas.
        output_size_px: Side of the square output.
    """
    xx, xy, x0, yx, yy, y0 = matrix
    determinant = xx * yy - xy * yx
    if perspective != _AFFINE or determinant == 0:
        return 0, 0, canvas_size_px, canvas_size_px
    low, high = -1.0, output_size_px + 1.0
    moved = [(x - x0, y - y0) for x in (low, high) for y in (low, high)]
    columns = [(yy * x - xy * y) / determinant for x, y in moved]
    rows = [(xx * y - yx * x) / determinant for x, y in moved]
    # Bilinear taps reach one canvas pixel further; one more covers rounding.
    left, top = (min(max(int(min(axis)) - 2, 0), canvas_size_px) for axis in (columns, rows))
    right, bottom = (min(max(int(max(axis)) + 3, 0), canvas_size_px) for axis in (columns, rows))
    return left, top, right, bottom


def move_boxes(
    boxes_xyxy_px: np.ndarray,
    clip_xyxy_px: np.ndarray,
    matrix: Affine,
    output_size_px: int,
    is_ignored: np.ndarray,
    perspective: Perspective = _AFFINE,
) -> tuple[np.ndarray, np.ndarray]:
    """Cut boxes to what the canvas shows, warp and clip them, and apply the drop rule.

    Args:
        boxes_xyxy_px: ``[n, 4]`` canvas corners, not yet cut.
        clip_xyxy_px: ``[n, 4]`` canvas rectangle of each box's source.
        matrix: First two rows of the canvas-to-output map.
        output_size_px: Side of the square output.
        is_ignored: ``[n]`` bool, True for ignore regions.
        perspective: First two entries of the map's third row, whose last is 1.

    Returns:
        ``[n, 4]`` output boxes and ``[n]`` bool, True for those that stay.
    """
    visible, is_visible = clip_boxes(boxes_xyxy_px, clip_xyxy_px)
    moved = np.clip(warp_boxes(visible, matrix, perspective), 0, output_size_px)
    whole = warp_boxes(boxes_xyxy_px, matrix, perspective)
    return moved, is_visible & stays(moved, whole, is_ignored)


def clip_boxes(boxes_xyxy_px: np.ndarray, clip_xyxy_px: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cut boxes to rectangles; also return True for those of which something is left.

    Args:
        boxes_xyxy_px: ``[n, 4]`` corners.
        clip_xyxy_px: ``[n, 4]`` or ``[1, 4]`` corners.
    """
    visible = np.clip(boxes_xyxy_px, clip_xyxy_px[:, [0, 1, 0, 1]], clip_xyxy_px[:, [2, 3, 2, 3]])
    return visible, (visible[:, 2:] > visible[:, :2]).all(1)


def stays(visible_xyxy_px: np.ndarray, whole_xyxy_px: np.ndarray, is_ignored: np.ndarray) -> np.ndarray:
    """Return ``[n]`` bool: the drop rule.

    Args:
        visible_xyxy_px: ``[n, 4]`` boxes of what is visible.
        whole_xyxy_px: ``[n, 4]`` boxes of the whole objects.
        is_ignored: ``[n]`` bool, True for ignore regions.
    """
    is_large: np.ndarray = ((visible_xyxy_px[:, 2:] - visible_xyxy_px[:, :2]) >= MIN_SIDE_PX).all(1)
    is_whole_enough = _area(visible_xyxy_px) >= MIN_KEPT_FRACTION * _area(whole_xyxy_px)
    return is_large & (is_whole_enough | is_ignored)


def _area(boxes_xyxy_px: np.ndarray) -> np.ndarray:
    area: np.ndarray = (boxes_xyxy_px[:, 2:] - boxes_xyxy_px[:, :2]).prod(1)
    return area
