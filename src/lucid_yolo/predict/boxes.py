"""What was found, one row per object; tensors, or arrays after :meth:`Rows.numpy`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

Index = int | slice | list[int] | Tensor | np.ndarray
AnyRows = TypeVar("AnyRows", bound="Rows")


@dataclass(frozen=True, eq=False)
class Rows:
    """One row per object; the base of everything in a result that is indexed by object.

    Attributes:
        data: One row per object, float32.
        orig_shape: (height, width) of the source picture.
    """

    data: Tensor | np.ndarray
    orig_shape: tuple[int, int]

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self: AnyRows, index: Index) -> AnyRows:
        """Return the chosen rows; a number keeps the row axis."""
        return replace(self, data=self.data[[index]] if isinstance(index, int) else self.data[index])

    def __iter__(self: AnyRows) -> Iterator[AnyRows]:
        return (self[i] for i in range(len(self)))

    def to(self: AnyRows, device: str | torch.device) -> AnyRows:
        """Return the rows as a tensor on ``device``."""
        return replace(self, data=torch.as_tensor(self.data).to(device))

    def cpu(self: AnyRows) -> AnyRows:
        """Return the rows as a tensor on the CPU."""
        return self.to("cpu")

    def numpy(self: AnyRows) -> AnyRows:
        """Return the rows as an array; every property then is an array too."""
        return replace(self, data=self.array)

    @property
    def array(self) -> np.ndarray:
        """The rows as an array, wherever they lie."""
        return torch.as_tensor(self.data).cpu().numpy()


@dataclass(frozen=True, eq=False)
class Boxes(Rows):
    """Boxes in source pixels, inside the picture and never inverted.

    ``data`` is x1, y1, x2, y2, confidence, class, and the id of the object where it was followed through a video.

    Raises:
        ValueError: ``data`` has another type or shape, or a row breaks a promise; :meth:`clipped` keeps them.
    """

    def __post_init__(self) -> None:
        data = torch.as_tensor(self.data)
        if data.ndim != 2 or data.shape[1] not in (6, 7) or data.dtype != torch.float32:
            raise ValueError(f"boxes: expected float32 [n, 6] or [n, 7], found {data.dtype} {list(data.shape)}")
        height, width = self.orig_shape
        limit = torch.tensor([width, height], device=data.device)
        is_good = (data[:, :2] >= 0) & (data[:, :2] <= data[:, 2:4]) & (data[:, 2:4] <= limit)
        is_good = is_good.all(dim=1) & torch.isfinite(data).all(dim=1)
        if not is_good.all():
            row = data[~is_good][0].tolist()
            raise ValueError(
                f"boxes: expected finite 0 <= x1 <= x2 <= {width} and 0 <= y1 <= y2 <= {height}, found {row}; "
                "use Boxes.clipped"
            )

    @classmethod
    def clipped(
        cls,
        boxes_xyxy_src: Float[Tensor, "n 4"],
        score: Float[Tensor, " n"],
        label: Int[Tensor, " n"],
        orig_shape: tuple[int, int],
    ) -> Boxes:
        """Build from raw detections: moved to the CPU, cut at the borders, an inverted side becomes zero.

        Args:
            boxes_xyxy_src: Corners in source pixels.
            score: Confidence in [0, 1].
            label: Contiguous class index.
            orig_shape: (height, width) of the source picture.
        """
        boxes, columns = boxes_xyxy_src.detach().float().cpu(), (score, label)
        height, width = orig_shape
        limit = torch.tensor([width, height], dtype=torch.float32)
        low = boxes[:, :2].clamp(min=0).minimum(limit)
        high = boxes[:, 2:].clamp(min=0).minimum(limit).maximum(low)
        extra = torch.stack([c.detach().float().cpu() for c in columns], dim=1)
        return cls(torch.cat([low, high, extra], dim=1), orig_shape)

    def with_ids(self, ids: Int[np.ndarray, " n"]) -> Boxes:
        """Return the boxes with an id for each object.

        Args:
            ids: At most 2**24, which float32 holds exactly.
        """
        column = torch.from_numpy(ids.astype(np.float32))[:, None]
        return replace(self, data=torch.cat([torch.as_tensor(self.data)[:, :6].cpu(), column], dim=1))

    @property
    def xyxy(self) -> Float[Any, "n 4"]:
        """Corners in source pixels."""
        return self.data[:, :4]

    @property
    def xywh(self) -> Float[Any, "n 4"]:
        """Centre, width and height in source pixels."""
        low, high = self.data[:, :2], self.data[:, 2:4]
        join: Any = np.concatenate if isinstance(self.data, np.ndarray) else torch.cat
        return join([(low + high) / 2, high - low], 1)

    @property
    def xyxyn(self) -> Float[Any, "n 4"]:
        """Corners as fractions of the picture."""
        return self.xyxy / self._size_xyxy

    @property
    def xywhn(self) -> Float[Any, "n 4"]:
        """Centre, width and height as fractions of the picture."""
        return self.xywh / self._size_xyxy

    @property
    def conf(self) -> Float[Any, " n"]:
        """Confidence in [0, 1]."""
        return self.data[:, 4]

    @property
    def cls(self) -> Float[Any, " n"]:
        """Class index, as a float."""
        return self.data[:, 5]

    @property
    def id(self) -> Float[Any, " n"] | None:
        """Id of each object through a video, as a float; None where objects were not tracked."""
        return self.data[:, 6] if self.is_track else None

    @property
    def is_track(self) -> bool:
        """Whether the objects have ids."""
        return self.data.shape[1] == 7

    @property
    def _size_xyxy(self) -> Float[Any, " 4"]:
        height, width = self.orig_shape
        size = np.array([width, height, width, height], dtype=np.float32)
        return size if isinstance(self.data, np.ndarray) else torch.from_numpy(size).to(self.data.device)
