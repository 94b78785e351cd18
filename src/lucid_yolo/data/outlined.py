"""Which objects of a split have outlines and may be pasted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lucid_yolo.structures import ImageRecord


class OutlinedObjects:
    """Rows of the objects with outlines, for every image; ignore regions are no objects.

    Args:
        records: Images of the split.
    """

    def __init__(self, records: Sequence[ImageRecord]) -> None:
        rows = [_outlined_rows(record) for record in records]
        self._ends = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        self._rows = np.concatenate([np.empty(0, np.int32), *rows])

    def __len__(self) -> int:
        return len(self._rows)

    def of(self, sources: Sequence[int]) -> list[tuple[int, int]]:
        """Return (position among the sources, row in its record) of each object.

        Args:
            sources: Positions of images in the split.
        """
        return [
            (position, row)
            for position, source in enumerate(sources)
            for row in self._rows[self._ends[source] : self._ends[source + 1]].tolist()
        ]


def _outlined_rows(record: ImageRecord) -> np.ndarray:
    if record.polygons is None:
        return np.empty(0, np.int32)
    return np.flatnonzero(record.polygons.has_rings & ~record.is_ignored).astype(np.int32)
