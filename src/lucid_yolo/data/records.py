"""The records of a split in a few blocks of shared memory, for worker processes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import overload

import numpy as np
import torch

from lucid_yolo.data.polygons import join_polygons, polygons_part
from lucid_yolo.structures import ImageRecord, Polygons


class SharedArray:
    """An array that worker processes see too, every change of it included; sent to them it costs one handle.

    Args:
        values: First content; copied.

    Attributes:
        array: The values.
    """

    def __init__(self, values: np.ndarray) -> None:
        # NumPy has no array that processes share by handle, torch has.
        self._tensor = torch.from_numpy(values.copy())
        self._tensor.share_memory_()  # type: ignore[no-untyped-call]
        self.array: np.ndarray = self._tensor.numpy()

    def __getstate__(self) -> torch.Tensor:
        return self._tensor

    def __setstate__(self, tensor: torch.Tensor) -> None:
        self._tensor, self.array = tensor, tensor.numpy()


class SharedRecords(Sequence[ImageRecord]):
    """Records kept once for all processes: sent to a worker they cost a few handles, whatever their number.

    Args:
        records: Images of a split.
    """

    def __init__(self, records: Sequence[ImageRecord]) -> None:
        texts = [json.dumps([record.path, record.image_id]).encode() for record in records]
        boxes = [record.boxes_xyxy_src for record in records]
        self._text = SharedArray(np.frombuffer(b"".join(texts), np.uint8))
        self._text_ends = SharedArray(np.cumsum([len(text) for text in texts], dtype=np.int64))
        self._sizes = SharedArray(_rows([(r.height_src, r.width_src, r.num_label_rows) for r in records], np.int64, 3))
        self._ends = SharedArray(np.cumsum([len(rows) for rows in boxes], dtype=np.int64))
        self._boxes = SharedArray(_joined(boxes, np.float64, (4,)))
        self._areas = SharedArray(_joined([record.area_src for record in records], np.float64))
        self._labels = SharedArray(_joined([record.labels for record in records], np.int64))
        self._is_ignored = SharedArray(_joined([record.is_ignored for record in records], np.bool_))
        polygons = join_polygons(records)
        self._points = SharedArray(polygons.points_xy_src)
        self._ring_ends, self._object_ends = SharedArray(polygons.ring_ends), SharedArray(polygons.object_ends)

    @classmethod
    def of(cls, records: Sequence[ImageRecord]) -> SharedRecords:
        """Return the records themselves when they are shared already."""
        return records if isinstance(records, SharedRecords) else cls(records)

    def __len__(self) -> int:
        return len(self._sizes.array)

    @overload
    def __getitem__(self, index: int) -> ImageRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[ImageRecord]: ...
    def __getitem__(self, index: int | slice) -> ImageRecord | list[ImageRecord]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        rows = _span(self._ends.array, index)
        path, image_id = self._text_of(index)
        polygons = Polygons(self._points.array, self._ring_ends.array, self._object_ends.array)
        return ImageRecord(
            path,
            image_id,
            *self.size_src(index),
            self._boxes.array[rows],
            self._labels.array[rows],
            self._is_ignored.array[rows],
            self._areas.array[rows],
            int(self._sizes.array[index, 2]),
            polygons_part(polygons, rows),
        )

    def path(self, index: int) -> str:
        """Return the file of an image without building its record."""
        return self._text_of(index)[0]

    def size_src(self, index: int) -> tuple[int, int]:
        """Return (height, width) of an image without building its record."""
        height, width, _ = self._sizes.array[index].tolist()
        return height, width

    def _text_of(self, index: int) -> tuple[str, int | str]:
        path, image_id = json.loads(self._text.array[_span(self._text_ends.array, index)].tobytes())
        return path, image_id


def _span(ends: np.ndarray, index: int) -> slice:
    return slice(int(ends[index - 1]) if index else 0, int(ends[index]))


def _rows(values: Sequence[tuple[int, ...]], dtype: type, width: int) -> np.ndarray:
    return np.array(values, dtype).reshape(-1, width)


def _joined(parts: Sequence[np.ndarray], dtype: type, row_shape: tuple[int, ...] = ()) -> np.ndarray:
    return np.concatenate([np.empty((0, *row_shape), dtype), *parts]).astype(dtype, copy=False)
