"""The values that travel between the parts of the package.

Axis legend, used in every shape annotation:
``B`` images, ``N`` branches x images, ``C`` channels, ``H W`` rows and columns, ``A`` anchor points, ``G`` padded
targets, ``K`` classes, ``P`` compacted positives, ``D`` detections.
Units in names: ``_px`` network-input pixels, ``_src`` source-image pixels, ``_norm`` fractions, ``_cell`` strides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped, UInt8
from torch import Tensor

CAPACITIES = (64, 256, 1024, 4096)


def target_capacity(num_rows: int) -> int:
    """Return the padded target count ``G`` for a batch whose fullest image has ``num_rows`` label rows.

    The steps are 64, 256, 1024, 4096, then times four, so that a run sees a handful of shapes only.
    """
    capacity = CAPACITIES[0]
    while capacity < num_rows:
        capacity *= 4
    return capacity


@dataclass(frozen=True)
class ClassMap:
    """The classes of a data set: contiguous index -> name and source id.

    Attributes:
        names: Class names, position = contiguous label.
        source_ids: Category ids as the data set writes them, position = contiguous label.
    """

    names: tuple[str, ...]
    source_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.names) != len(self.source_ids):
            raise ValueError(f"class map: {len(self.names)} names but {len(self.source_ids)} source ids")
        if len(set(self.source_ids)) != len(self.source_ids):
            raise ValueError(f"class map: source ids repeat: {self.source_ids}")

    @classmethod
    def from_names(cls, names: Sequence[str]) -> ClassMap:
        """Build the map of a data set whose ids are already 0..K-1."""
        return cls(tuple(names), tuple(range(len(names))))

    def to_dict(self) -> dict[str, list[Any]]:
        """Return plain lists, as stored in checkpoints, results and exports."""
        return {"names": list(self.names), "source_ids": list(self.source_ids)}

    @classmethod
    def from_dict(cls, state: Mapping[str, Sequence[Any]]) -> ClassMap:
        """Invert :meth:`to_dict`."""
        return cls(tuple(str(n) for n in state["names"]), tuple(int(i) for i in state["source_ids"]))

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Polygons:
    """Outlines of consecutive objects, packed; an object may have several rings, or none when it has only a box.

    Attributes:
        points_xy_src: ``[n, 2]`` float32 corners of all rings.
        ring_ends: ``[r]`` int64; where each ring ends among the points.
        object_ends: ``[objects]`` int64; where each object ends among the rings.
    """

    points_xy_src: np.ndarray
    ring_ends: np.ndarray
    object_ends: np.ndarray

    @classmethod
    def pack(cls, rings_xy_src: Sequence[Sequence[np.ndarray]]) -> Polygons:
        """Pack the rings of each object, ``[k, 2]`` each."""
        rings = [ring for rings in rings_xy_src for ring in rings]
        points = np.concatenate([np.empty((0, 2), np.float32), *rings]).astype(np.float32)
        ring_ends = np.cumsum([len(ring) for ring in rings], dtype=np.int64)
        return cls(points, ring_ends, np.cumsum([len(rings) for rings in rings_xy_src], dtype=np.int64))

    @property
    def has_rings(self) -> np.ndarray:
        """``[objects]`` bool, False for objects with only a box."""
        return np.diff(self.object_ends, prepend=0) > 0

    def rings(self, index: int) -> list[np.ndarray]:
        """Return the rings of one object as views."""
        first, last = (int(self.object_ends[i]) if i >= 0 else 0 for i in (index - 1, index))
        ends = [int(self.ring_ends[i]) if i >= 0 else 0 for i in range(first - 1, last)]
        return [self.points_xy_src[start:end] for start, end in pairwise(ends)]

    def part(self, start: int, stop: int) -> Polygons | None:
        """Return the outlines of objects ``start`` to ``stop``; None if none of them has one."""
        first, last = (int(self.object_ends[i - 1]) if i else 0 for i in (start, stop))
        if first == last:
            return None
        low, high = (int(self.ring_ends[i - 1]) if i else 0 for i in (first, last))
        object_ends = self.object_ends[start:stop] - first
        return Polygons(self.points_xy_src[low:high], self.ring_ends[first:last] - low, object_ends)


@dataclass(frozen=True)
class ImageRecord:
    """One image of a data set and its annotations, in pixels of the displayed (EXIF-upright) source image.

    Attributes:
        path: File of the image.
        image_id: Id in results and JSON: COCO's own id, else the path relative to the image root without suffix.
        height_src: Height after EXIF orientation.
        width_src: Width after EXIF orientation.
        boxes_xyxy_src: ``[n, 4]`` float64.
        labels: ``[n]`` int64 contiguous class index.
        is_ignored: ``[n]`` bool; crowd and ignore regions, neither objects nor background.
        area_src: ``[n]`` float64; the annotated area where the format has one (COCO), else the box area.
        num_label_rows: Label rows in the file before any was dropped; the target capacity is planned from it.
        polygons: Outlines of the ``n`` objects; None when they have only boxes.
    """

    path: str
    image_id: int | str
    height_src: int
    width_src: int
    boxes_xyxy_src: np.ndarray
    labels: np.ndarray
    is_ignored: np.ndarray
    area_src: np.ndarray
    num_label_rows: int
    polygons: Polygons | None = None


@dataclass(frozen=True)
class Targets:
    """Padded ground truth of a batch.

    Attributes:
        boxes_xyxy_px: Corners; zero where padded.
        labels: Contiguous class index; 0 where padded.
        is_padded: True for rows that hold nothing.
        is_ignored: True for ignore regions (crowds): no classification loss inside, never a positive.
    """

    boxes_xyxy_px: Float[Tensor, "B G 4"]
    labels: Int[Tensor, "B G"]
    is_padded: Bool[Tensor, "B G"]
    is_ignored: Bool[Tensor, "B G"]

    @property
    def is_object(self) -> Bool[Tensor, "B G"]:
        """True for rows that may be assigned to anchor points."""
        return ~(self.is_padded | self.is_ignored)

    @property
    def capacity(self) -> int:
        """The padded target count ``G``."""
        return self.labels.shape[1]


@dataclass(frozen=True)
class TargetField:
    """One array of :class:`Targets`: its name, dtype and shape per target row."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...] = ()

    def num_bytes(self, batch_size: int, capacity: int) -> int:
        """Return the bytes this field takes in a packed batch."""
        per_row = int(np.prod(self.shape, dtype=np.int64)) if self.shape else 1
        return batch_size * capacity * per_row * self.dtype.itemsize


BOX_FIELDS = (
    TargetField("boxes_xyxy_px", torch.float32, (4,)),
    TargetField("labels", torch.int64),
    TargetField("is_padded", torch.bool),
    TargetField("is_ignored", torch.bool),
)


class PackedTargets:
    """What every kind of batch has: ``sample_index`` and the targets of its images in one byte buffer."""

    packed: Tensor
    capacity: int
    target_fields: tuple[TargetField, ...]

    def __len__(self) -> int:
        raise NotImplementedError

    @property
    def sample_index(self) -> Int[Tensor, " B"]:
        """Position of each image in its split; -1 for a blank that fills a batch. A view."""
        return self.packed[: 8 * len(self)].view(torch.int64)

    def field(self, name: str) -> Tensor:
        """Return one target array as a view into ``packed``.

        Raises:
            KeyError: The batch holds no such field.
        """
        for field, view in self._views():
            if field.name == name:
                return view
        raise KeyError(f"batch has no target field {name!r}; it has {[f.name for f in self.target_fields]}")

    @property
    def targets(self) -> Targets:
        """The targets, every tensor a view into ``packed``: no copy, no synchronisation."""
        names = {f.name for f in fields(Targets)}
        return Targets(**{field.name: view for field, view in self._views() if field.name in names})

    def _views(self) -> Iterator[tuple[TargetField, Tensor]]:
        start = 8 * len(self)
        for field in self.target_fields:
            stop = start + field.num_bytes(len(self), self.capacity)
            yield field, self.packed[start:stop].view(field.dtype).view(len(self), self.capacity, *field.shape)
            start = stop


def allocate_targets(batch_size: int, capacity: int, target_fields: tuple[TargetField, ...]) -> UInt8[Tensor, " bytes"]:
    """Return the packed targets of blanks: ``sample_index`` -1, every target padded.

    Args:
        batch_size: Number of images ``B``.
        capacity: Padded target count ``G``, a multiple of 64.
        target_fields: Arrays to hold.
    """
    if capacity % 64:
        raise ValueError(f"capacity: expected a multiple of 64, found {capacity}")
    packed = torch.zeros(
        8 * batch_size + sum(f.num_bytes(batch_size, capacity) for f in target_fields), dtype=torch.uint8
    )
    packed[: 8 * batch_size].view(torch.int64).fill_(-1)
    start = 8 * batch_size
    for field in target_fields:
        stop = start + field.num_bytes(batch_size, capacity)
        if field.name == "is_padded":
            packed[start:stop].view(field.dtype).fill_(True)
        start = stop
    return packed


@dataclass(frozen=True)
class Batch(PackedTargets):
    """Images and packed targets; two tensors, so that it is cheap to send between processes and devices.

    Attributes:
        images: RGB, channels-last memory; ``uint8``, or ``float32`` in [0, 1] where the device has drawn them.
        packed: ``sample_index`` (int64 per image, -1 for a blank) followed by every target field, raw bytes.
        capacity: Padded target count ``G``.
        target_fields: Which arrays ``packed`` holds, in order.
    """

    images: Shaped[Tensor, "B 3 H W"]
    packed: UInt8[Tensor, " num_bytes"]
    capacity: int
    target_fields: tuple[TargetField, ...] = BOX_FIELDS

    @classmethod
    def allocate(
        cls,
        batch_size: int,
        image_size_px: tuple[int, int],
        capacity: int,
        target_fields: tuple[TargetField, ...] = BOX_FIELDS,
    ) -> Batch:
        """Return a CPU batch of blanks: grey images, ``sample_index`` -1, every target padded.

        Args:
            batch_size: Number of images ``B``.
            image_size_px: (height, width) of the network input.
            capacity: Padded target count ``G``, a multiple of 64.
            target_fields: Arrays to hold.
        """
        height, width = image_size_px
        packed = allocate_targets(batch_size, capacity, target_fields)
        images = torch.full((batch_size, height, width, 3), 114, dtype=torch.uint8).permute(0, 3, 1, 2)
        return cls(images, packed, capacity, target_fields)

    def __len__(self) -> int:
        return self.images.shape[0]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors; with :attr:`constants` they are the whole batch."""
        return self.images, self.packed

    @property
    def constants(self) -> tuple[Any, ...]:
        """What the tensors do not show, hashable."""
        return self.capacity, self.target_fields

    @classmethod
    def restore(cls, constants: tuple[Any, ...], tensors: Sequence[Tensor]) -> Batch:
        """Invert :attr:`tensors` and :attr:`constants`; nothing is copied."""
        images, packed = tensors
        return cls(images, packed, *constants)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        """Return the batch on ``device``; itself when it is there already."""
        return Batch.restore(self.constants, [x.to(device, non_blocking=non_blocking) for x in self.tensors])

    def pin_memory(self) -> Batch:
        """Return the batch in page-locked host memory."""
        return Batch.restore(self.constants, [x.pin_memory() for x in self.tensors])


@dataclass(frozen=True)
class AnchorPoints:
    """The fixed grid of prediction points of one image size, all levels in a row.

    Attributes:
        center_xy_px: Point centres.
        stride_px: Stride of each point's level.
    """

    center_xy_px: Float[Tensor, "A 2"]
    stride_px: Float[Tensor, " A"]


@dataclass(frozen=True)
class Prediction:
    """Raw network output in float32; ``N`` is images, or branches x images (one-to-many first) in training.

    Attributes:
        box_ltrb_cell: Distances from the point to the left, top, right, bottom side, in strides; may be negative.
        class_logit: One logit per class.
    """

    box_ltrb_cell: Float[Tensor, "N A 4"]
    class_logit: Float[Tensor, "N A K"]


@dataclass(frozen=True)
class Assignment:
    """Which anchor point learns which target.

    Attributes:
        target_index: Row of the target each point belongs to; 0 for background.
        weight: Soft target in [0, 1] (the method's t-hat); exactly 0 for background.
        is_positive: True for points that belong to a target.
        is_ignored: True for background points inside an ignore region: no classification loss.
    """

    target_index: Int[Tensor, "N A"]
    weight: Float[Tensor, "N A"]
    is_positive: Bool[Tensor, "N A"]
    is_ignored: Bool[Tensor, "N A"]


@dataclass(frozen=True)
class Positives:
    """The positives of an assignment packed into a constant number of slots, heaviest first.

    Attributes:
        point_index: Anchor point of each slot; 0 where the slot is empty.
        target_index: Target row of each slot; 0 where empty.
        weight: Soft target; 0 where empty.
        is_valid: True for slots that hold a positive.
        num_surplus: Positives that found no slot, per image.
    """

    point_index: Int[Tensor, "N P"]
    target_index: Int[Tensor, "N P"]
    weight: Float[Tensor, "N P"]
    is_valid: Bool[Tensor, "N P"]
    num_surplus: Int[Tensor, " N"]


@dataclass(frozen=True)
class LossTerms:
    """Sums of every loss term and what they are divided by, per branch (0 one-to-many, 1 one-to-one).

    Attributes:
        names: Term names, the columns of ``sums``.
        sums: Un-normalised, un-weighted sums over the local batch.
        normalizers: Sum of the soft targets over the local batch; averaged over ranks before use.
    """

    names: tuple[str, ...]
    sums: Float[Tensor, "branches terms"]
    normalizers: Float[Tensor, " branches"]


@dataclass(frozen=True)
class Detections:
    """A fixed number of ranked detections per image, best first.

    Attributes:
        boxes_xyxy_px: Corners in network-input pixels.
        score: Class probability; 0 in slots that hold nothing.
        label: Contiguous class index.
        point_index: Anchor point each detection came from (other tasks gather their rows with it).
    """

    boxes_xyxy_px: Float[Tensor, "B D 4"]
    score: Float[Tensor, "B D"]
    label: Int[Tensor, "B D"]
    point_index: Int[Tensor, "B D"]
