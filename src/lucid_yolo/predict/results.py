"""What was found in one picture."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from lucid_yolo.structures import ClassMap
from lucid_yolo.viz.draw import draw_boxes

Index = int | slice | list[int] | Tensor
AnyRows = TypeVar("AnyRows", bound="Rows")


@dataclass(frozen=True, eq=False)
class Rows:
    """One row per object; the base of everything in :class:`Results` that is indexed by object.

    Attributes:
        data: One row per object, float32 on the CPU.
        orig_shape: (height, width) of the source picture.
    """

    data: Tensor
    orig_shape: tuple[int, int]

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self: AnyRows, index: Index) -> AnyRows:
        """Return the chosen rows; a number keeps the row axis."""
        return replace(self, data=self.data[[index]] if isinstance(index, int) else self.data[index])

    def __iter__(self: AnyRows) -> Iterator[AnyRows]:
        return (self[i] for i in range(len(self)))


@dataclass(frozen=True, eq=False)
class Boxes(Rows):
    """Boxes in source pixels, inside the picture and never inverted; ``data`` is x1, y1, x2, y2, confidence, class.

    Raises:
        ValueError: ``data`` has another type or shape, or a row breaks a promise; :meth:`clipped` keeps them.
    """

    def __post_init__(self) -> None:
        data = self.data
        if data.ndim != 2 or data.shape[1] != 6 or data.dtype != torch.float32 or data.device.type != "cpu":
            found = f"{data.dtype} {list(data.shape)} on {data.device}"
            raise ValueError(f"boxes: expected float32 [n, 6] on the CPU, found {found}")
        height, width = self.orig_shape
        is_good = (data[:, :2] >= 0) & (data[:, :2] <= data[:, 2:4]) & (data[:, 2:4] <= torch.tensor([width, height]))
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

    @property
    def xyxy(self) -> Float[Tensor, "n 4"]:
        """Corners in source pixels."""
        return self.data[:, :4]

    @property
    def xywh(self) -> Float[Tensor, "n 4"]:
        """Centre, width and height in source pixels."""
        low, high = self.data[:, :2], self.data[:, 2:4]
        return torch.cat([(low + high) / 2, high - low], dim=1)

    @property
    def xyxyn(self) -> Float[Tensor, "n 4"]:
        """Corners as fractions of the picture."""
        return self.xyxy / self._size_xyxy

    @property
    def xywhn(self) -> Float[Tensor, "n 4"]:
        """Centre, width and height as fractions of the picture."""
        return self.xywh / self._size_xyxy

    @property
    def conf(self) -> Float[Tensor, " n"]:
        """Confidence in [0, 1]."""
        return self.data[:, 4]

    @property
    def cls(self) -> Float[Tensor, " n"]:
        """Class index, as a float."""
        return self.data[:, 5]

    @property
    def _size_xyxy(self) -> Float[Tensor, " 4"]:
        height, width = self.orig_shape
        return torch.tensor([width, height, width, height], dtype=torch.float32)


@dataclass(frozen=True, eq=False)
class Results:
    """Everything found in one picture; ``len`` and iteration go by object, best first.

    Attributes:
        path: File of the picture, or a name for one from memory.
        orig_shape: (height, width) of the source picture, EXIF-upright.
        names: Class index to name.
        boxes: Boxes of the objects.
        orig_img: The picture as RGB ``[H, W, 3]`` uint8; None when it was not kept.
        speed: Milliseconds by phase.
        image_id: Id in COCO output; None takes the file name without suffix.

    Raises:
        ValueError: Shapes contradict each other, or a class has no name.
    """

    path: str
    orig_shape: tuple[int, int]
    names: dict[int, str]
    boxes: Boxes
    orig_img: NDArray[np.uint8] | None = field(default=None, repr=False)
    speed: dict[str, float] = field(default_factory=dict)
    image_id: int | str | None = None

    def __post_init__(self) -> None:
        if self.orig_img is not None and self.orig_img.shape != (*self.orig_shape, 3):
            raise ValueError(f"orig_img: expected shape {(*self.orig_shape, 3)}, found {self.orig_img.shape}")
        for name, rows in self._rows().items():
            if rows.orig_shape != self.orig_shape or len(rows) != len(self.boxes):
                expected = f"{len(self.boxes)} rows for a picture of {self.orig_shape}"
                raise ValueError(f"{name}: expected {expected}, found {len(rows)} for {rows.orig_shape}")
        if nameless := sorted(set(self._labels()) - set(self.names)):
            raise ValueError(f"names: expected one for every class found, none for {nameless}")

    def __len__(self) -> int:
        return len(self.boxes)

    def __getitem__(self, index: Index) -> Results:
        """Return the same picture with the chosen objects."""
        chosen: dict[str, Any] = {name: rows[index] for name, rows in self._rows().items()}
        return replace(self, **chosen)

    def __iter__(self) -> Iterator[Results]:
        return (self[i] for i in range(len(self)))

    def plot(self) -> NDArray[np.uint8]:
        """Return the picture with its objects drawn, RGB.

        Raises:
            ValueError: The picture was not kept.
        """
        if self.orig_img is None:
            raise ValueError(f"{self.path}: expected orig_img, found None; set it to the picture to draw on")
        labels = np.array(self._labels(), dtype=np.int64)
        return draw_boxes(self.orig_img, self.boxes.xyxy.numpy(), labels, self.names, self.boxes.conf.numpy())

    def save(self, path: str | Path) -> Path:
        """Write :meth:`plot` to a file whose suffix names the format; missing folders are made."""
        path = _with_parent(path)
        Image.fromarray(self.plot()).save(path)
        return path

    def save_txt(self, path: str | Path) -> Path:
        """Write YOLO rows ``class cx cy w h confidence`` in fractions of the picture; no objects, an empty file."""
        path = _with_parent(path)
        rows = torch.cat([self.boxes.xywhn, self.boxes.conf[:, None]], dim=1).tolist()
        lines = (f"{k} {' '.join(f'{v:.6f}' for v in row)}\n" for k, row in zip(self._labels(), rows, strict=True))
        path.write_text("".join(lines), encoding="utf-8")
        return path

    def summary(self) -> list[dict[str, Any]]:
        """Return one plain dict per object: name, class, confidence and box corners in source pixels."""
        rows = []
        for label, row in zip(self._labels(), self.boxes.data.numpy(), strict=True):
            box = dict(zip(("x1", "y1", "x2", "y2"), map(_short, row[:4]), strict=True))
            rows.append({"name": self.names[label], "class": label, "confidence": _short(row[4]), "box": box})
        return rows

    def to_json(self) -> str:
        """Return :meth:`summary` as JSON."""
        return json.dumps(self.summary(), ensure_ascii=False, indent=2)

    def to_supervision(self) -> Any:
        """Return ``supervision.Detections``.

        Raises:
            ImportError: The optional package is not installed.
        """
        try:
            supervision = importlib.import_module("supervision")
        except ImportError as error:
            raise ImportError(
                "to_supervision needs the package supervision: pip install supervision, or this package's extra `track`"
            ) from error
        labels = np.array(self._labels(), dtype=np.int64)
        return supervision.Detections(
            xyxy=self.boxes.xyxy.numpy(),
            confidence=self.boxes.conf.numpy(),
            class_id=labels,
            data={"class_name": np.array([self.names[k] for k in labels.tolist()], dtype=str)},
        )

    def _labels(self) -> list[int]:
        labels: list[int] = self.boxes.cls.long().tolist()
        return labels

    def _rows(self) -> dict[str, Rows]:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Rows)}


def to_coco(results: Iterable[Results], class_map: ClassMap) -> list[dict[str, Any]]:
    """Return COCO detection rows with the data set's own category and image ids.

    Args:
        results: Results of any number of pictures, read one after the other.
        class_map: Classes of the data set; its names must be those of the results.

    Raises:
        ValueError: The names differ.
    """
    rows: list[dict[str, Any]] = []
    names = dict(enumerate(class_map.names))
    for result in results:
        if result.names != names:
            raise ValueError(f"class_map: expected the names of the results, {result.names}, found {names}")
        image_id = Path(result.path).stem if result.image_id is None else result.image_id
        # In float64, as the evaluator takes them, so that a reference evaluator on the file gives the same numbers.
        data = result.boxes.data.double()
        xywh = torch.cat([data[:, :2], data[:, 2:4] - data[:, :2]], dim=1).tolist()
        for box, score, label in zip(xywh, data[:, 4].tolist(), result._labels(), strict=True):
            category_id = class_map.source_ids[label]
            rows.append({"image_id": image_id, "category_id": category_id, "bbox": box, "score": score})
    return rows


def _with_parent(path: str | Path) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _short(value: np.float32) -> float:
    """Return the shortest decimal that is this float32 again."""
    return float(str(value))
