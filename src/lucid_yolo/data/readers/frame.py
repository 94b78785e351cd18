"""The pixel frame that boxes were written in, where a label file declares the size of its image.

The image file decides about the size. Where the declared size disagrees, it is counted, and the boxes are turned with
the EXIF orientation if the declared size is that of the stored, unturned pixels; scaled if the shape is the same (the
image was resized after labelling); otherwise read as pixels of the file.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lucid_yolo.data.image import ImageHeader
from lucid_yolo.data.readers.boxes import OUTSIDE_LIMIT, Box, RowError, bound_points

_LONGEST_SIDE = 1_000_000


@dataclass(frozen=True)
class Frame:
    """The pixel frame that annotations of an image are written in.

    Attributes:
        height: Declared height.
        width: Declared width.
        orientation: EXIF orientation to turn by, 1 for none.
        area_scale: Factor from declared to file pixels of an area.
        remark: What disagreed, if anything.
    """

    height: int
    width: int
    orientation: int
    area_scale: float
    remark: str

    @classmethod
    def of(cls, source_format: str, height: object, width: object, header: ImageHeader) -> Frame:
        """Compare the declared size of an image with its file.

        Args:
            source_format: Named in the remark.
            height: As declared; anything but a positive integer counts as missing.
            width: As declared.
            header: Of the file.
        """
        file_size = (header.height_src, header.width_src)
        if (
            not isinstance(height, int)
            or not isinstance(width, int)
            or not 0 < min(height, width) <= max(height, width) <= _LONGEST_SIDE
        ):
            return cls(*file_size, 1, 1.0, f"{source_format} size missing, taken from the file")
        if (height, width) == file_size:
            return cls(height, width, 1, 1.0, "")
        if header.orientation >= 5 and (width, height) == file_size:
            return cls(
                height,
                width,
                header.orientation,
                1.0,
                f"{source_format} size is that before EXIF turning, boxes turned",
            )
        scale_y, scale_x = file_size[0] / height, file_size[1] / width
        if abs(scale_y / scale_x - 1) < 0.01:
            return cls(height, width, 1, scale_y * scale_x, f"{source_format} size differs from the file, boxes scaled")
        return cls(*file_size, 1, 1.0, f"{source_format} size contradicts the file, boxes read as pixels of the file")

    def place(self, corners_xyxy: tuple[float, float, float, float]) -> Box:
        """Return the box of declared-pixel corners as fractions of the upright image."""
        x1, y1, x2, y2 = corners_xyxy
        if max(map(abs, corners_xyxy)) <= 1 and min(self.height, self.width) > 2:
            raise RowError("not pixels", f"found corners {corners_xyxy}, expected pixels, not fractions of the image")
        xs, ys = (x1 / self.width, x2 / self.width), (y1 / self.height, y2 / self.height)
        if self.orientation in (6, 7):
            ys = (1 - ys[1], 1 - ys[0])
        if self.orientation in (7, 8):
            xs = (1 - xs[1], 1 - xs[0])
        if self.orientation >= 5:
            xs, ys = ys, xs
        if min(*xs, *ys) < -OUTSIDE_LIMIT or max(*xs, *ys) > 1 + OUTSIDE_LIMIT:
            found = f"x {x1:g}..{x2:g}, y {y1:g}..{y2:g}"
            raise RowError("outside the image", f"found {found}, expected pixels of {self.width} x {self.height}")
        return bound_points(xs, ys)

    def place_points(self, points_xy: np.ndarray) -> np.ndarray:
        """Return declared-pixel points as fractions of the upright image.

        Args:
            points_xy: ``[k, 2]``.
        """
        x, y = points_xy[:, 0] / self.width, points_xy[:, 1] / self.height
        if self.orientation in (6, 7):
            y = 1 - y
        if self.orientation in (7, 8):
            x = 1 - x
        return np.stack((y, x) if self.orientation >= 5 else (x, y), 1)
