"""The outlines of many images joined, as the index cache and the shared records keep them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lucid_yolo.structures import ImageRecord, Polygons


def join_polygons(records: Sequence[ImageRecord]) -> Polygons:
    """Return the outlines of all objects of all images in a row; without any, three empty arrays.

    Args:
        records: Images; ``part`` of the result cuts an image's outlines out again.
    """
    found = [record.polygons for record in records]
    present = [polygons for polygons in found if polygons is not None]
    if not present:
        return Polygons.pack(())
    ring_sizes = [np.diff(polygons.ring_ends, prepend=0) for polygons in present]
    num_rings = [
        np.zeros(len(record.labels), np.int64) if polygons is None else np.diff(polygons.object_ends, prepend=0)
        for record, polygons in zip(records, found, strict=True)
    ]
    points = np.concatenate([polygons.points_xy_src for polygons in present])
    return Polygons(points, np.cumsum(np.concatenate(ring_sizes)), np.cumsum(np.concatenate(num_rings)))


def polygons_part(polygons: Polygons, rows: slice) -> Polygons | None:
    """Return the outlines of one image; None when it has none.

    Args:
        polygons: From :func:`join_polygons`.
        rows: The image's objects among all.
    """
    return polygons.part(rows.start, rows.stop) if len(polygons.ring_ends) else None
