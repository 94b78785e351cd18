"""What was found in one picture, and the forms in which others take it."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from lucid_yolo.predict.boxes import Boxes, Index, Rows
from lucid_yolo.runtime.json_file import to_json
from lucid_yolo.structures import ClassMap
from lucid_yolo.viz.draw import draw_boxes

CORNERS = ("x1", "y1", "x2", "y2")


@dataclass(frozen=True, eq=False)
class Results:
    """Everything found in one picture; ``len`` and iteration go by object, best first.

    Attributes:
        path: File of the picture or video, or a name for one from memory.
        orig_shape: (height, width) of the source picture, EXIF-upright.
        names: Class index to name.
        boxes: Boxes of the objects.
        orig_img: The picture as RGB ``[H, W, 3]`` uint8; None when it was not kept.
        speed: Milliseconds by phase.
        image_id: Id in COCO output; None takes the file name without suffix.
        source_ids: Category ids of the training data, by class index; None when they are not known.
        frame_index: Number of the frame in its video, from 0; None for a picture.
        timestamp_s: Time of the frame in its video, seconds; None for a picture.

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
    source_ids: tuple[int, ...] | None = field(default=None, repr=False)
    frame_index: int | None = None
    timestamp_s: float | None = None

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

    @property
    def masks(self) -> None:
        """None: detection finds boxes only."""
        return None

    @property
    def keypoints(self) -> None:
        """None: detection finds boxes only."""
        return None

    @property
    def obb(self) -> None:
        """None: detection finds upright boxes only."""
        return None

    def to(self, device: str | torch.device) -> Results:
        """Return the same result with its tensors on ``device``."""
        return self._with_rows({name: rows.to(device) for name, rows in self._rows().items()})

    def cpu(self) -> Results:
        """Return the same result with its tensors on the CPU."""
        return self.to("cpu")

    def numpy(self) -> Results:
        """Return the same result with arrays instead of tensors."""
        return self._with_rows({name: rows.numpy() for name, rows in self._rows().items()})

    def plot(self, *, conf: bool = True, labels: bool = True, line_width: int | None = None) -> NDArray[np.uint8]:
        """Return the picture with its objects drawn, RGB; objects with ids are coloured by id.

        Args:
            conf: Write confidences.
            labels: Write class names, and ids where objects were tracked.
            line_width: Of the boxes, pixels; None suits the size of the picture.

        Raises:
            ValueError: The picture was not kept.
        """
        if self.orig_img is None:
            raise ValueError(f"{self.path}: expected orig_img, found None; set it to the picture to draw on")
        found = self.boxes.numpy()
        return draw_boxes(
            self.orig_img,
            found.xyxy,
            found.cls.astype(np.int64),
            self.names,
            found.conf if conf else None,
            ids=None if found.id is None else found.id.astype(np.int64),
            has_names=labels,
            line_width=line_width,
        )

    def show(self) -> None:
        """Show :meth:`plot` in the notebook this runs in, else in the machine's picture viewer."""
        picture = Image.fromarray(self.plot())
        shell = getattr(importlib.import_module("builtins"), "get_ipython", lambda: None)()
        if shell is not None and "IPKernelApp" in shell.config:
            importlib.import_module("IPython.display").display(picture)
        else:
            picture.show(title=self.path)

    def save(self, path: str | Path) -> Path:
        """Write :meth:`plot` to a file whose suffix names the format; missing folders are made."""
        path = _with_parent(path)
        Image.fromarray(self.plot()).save(path)
        return path

    def save_txt(self, path: str | Path, *, save_conf: bool = True) -> Path:
        """Write YOLO rows ``class cx cy w h [confidence] [id]`` in fractions; no objects, an empty file.

        Args:
            path: File to write; missing folders are made.
            save_conf: Write the confidence; without it the file is a label file for training.
        """
        path = _with_parent(path)
        found, lines = self.boxes.numpy(), []
        for number, (label, row) in enumerate(zip(self._labels(), found.xywhn.tolist(), strict=True)):
            values = [*row, float(found.conf[number])] if save_conf else row
            track = "" if found.id is None else f" {int(found.id[number])}"
            lines.append(f"{label} {' '.join(f'{v:.6f}' for v in values)}{track}\n")
        path.write_text("".join(lines), encoding="utf-8")
        return path

    def save_crop(self, folder: str | Path, stem: str | None = None) -> list[Path]:
        """Write each object's part of the picture to ``folder/<class>/<stem>_<n>.png``; return the files.

        Objects less than a pixel wide or high are left out; ``n`` counts the objects from 1.

        Args:
            folder: Where the folders of the classes are made.
            stem: Name of the files; None takes the picture's.

        Raises:
            ValueError: The picture was not kept.
        """
        if self.orig_img is None:
            raise ValueError(f"{self.path}: expected orig_img, found None; set it to the picture to cut from")
        paths = []
        rows = zip(self._labels(), self.boxes.numpy().xyxy.astype(np.float64), strict=True)
        for number, (label, box) in enumerate(rows, 1):
            (x1, y1), (x2, y2) = np.floor(box[:2]).astype(int), np.ceil(box[2:]).astype(int)
            if (box[2:] - box[:2]).min() < 1:
                continue
            name = f"{stem or Path(self.path).stem or 'image'}_{number}.png"
            paths.append(_with_parent(Path(folder) / _file_name(self.names[label]) / name))
            Image.fromarray(np.ascontiguousarray(self.orig_img[y1:y2, x1:x2])).save(paths[-1])
        return paths

    def summary(self) -> list[dict[str, Any]]:
        """Return one plain dict per object: name, class, confidence, corners in source pixels, id of a track."""
        rows = []
        for label, row in zip(self._labels(), self.boxes.array, strict=True):
            box = dict(zip(CORNERS, map(_short, row[:4]), strict=True))
            entry = {"name": self.names[label], "class": label, "confidence": _short(row[4]), "box": box}
            rows.append(entry | ({"track_id": int(row[6])} if self.boxes.is_track else {}))
        return rows

    def to_json(self) -> str:
        """Return :meth:`summary` as JSON."""
        return to_json(self.summary())

    def to_df(self) -> Any:
        """Return a ``pandas.DataFrame``: :meth:`summary` with a column per corner.

        Raises:
            ImportError: pandas is not installed.
        """
        pandas = _import("pandas", "to_df", "pip install pandas")
        columns = ["name", "class", "confidence", *CORNERS, *(["track_id"] if self.boxes.is_track else [])]
        return pandas.DataFrame([row | row.pop("box") for row in self.summary()], columns=columns)

    def to_supervision(self) -> Any:
        """Return ``supervision.Detections``.

        Raises:
            ImportError: The optional package is not installed.
        """
        supervision = _import("supervision", "to_supervision", "this package's extra `track`")
        found, labels = self.boxes.numpy(), np.array(self._labels(), dtype=np.int64)
        return supervision.Detections(
            xyxy=found.xyxy,
            confidence=found.conf,
            class_id=labels,
            tracker_id=None if found.id is None else found.id.astype(np.int64),
            data={"class_name": np.array([self.names[k] for k in labels.tolist()], dtype=str)},
        )

    def to_coco(self, class_map: ClassMap | None = None) -> list[dict[str, Any]]:
        """Return COCO detection rows with the training data's category ids; see :func:`to_coco`.

        Args:
            class_map: Classes of the data set; None takes the ids that came with the model.

        Raises:
            ValueError: The names differ, or no ids are known.
        """
        if class_map is None and self.source_ids is None:
            raise ValueError("class_map: expected the classes of the data set, for this result does not know its ids")
        if class_map is None:
            class_map = ClassMap(tuple(self.names.values()), self.source_ids or ())
        return to_coco([self], class_map)

    def _repr_png_(self) -> bytes | None:
        """Return the drawn picture for a notebook; None when the picture was not kept."""
        return None if self.orig_img is None else Image.fromarray(self.plot())._repr_png_()

    def _labels(self) -> list[int]:
        labels: list[int] = self.boxes.array[:, 5].astype(np.int64).tolist()
        return labels

    def _rows(self) -> dict[str, Rows]:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Rows)}

    def _with_rows(self, rows: dict[str, Any]) -> Results:
        return replace(self, **rows)


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
        data = result.boxes.array.astype(np.float64)
        xywh = np.concatenate([data[:, :2], data[:, 2:4] - data[:, :2]], axis=1).tolist()
        for box, score, label in zip(xywh, data[:, 4].tolist(), result._labels(), strict=True):
            category_id = class_map.source_ids[label]
            rows.append({"image_id": image_id, "category_id": category_id, "bbox": box, "score": score})
    return rows


def _import(package: str, caller: str, remedy: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(f"{caller} needs the package {package}: install it with {remedy}") from error


def _with_parent(path: str | Path) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _file_name(text: str) -> str:
    """Return a class name as the name of a folder on any system."""
    return re.sub(r'[\x00-\x1f<>:"/\\|?*]', "_", text).strip(" .") or "_"


def _short(value: np.float32) -> float:
    """Return the shortest decimal that is this float32 again."""
    return float(str(value))
