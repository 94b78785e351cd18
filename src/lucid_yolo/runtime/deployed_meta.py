"""What an exported file says of itself, as the text entries that every format can hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lucid_yolo.geometry.letterbox import FILL_VALUE
from lucid_yolo.runtime.checkpoint_file import ModelMeta
from lucid_yolo.runtime.version import package_version
from lucid_yolo.structures import ClassMap

INPUT_NAME, OUTPUT_NAME = "images", "detections"
# Where the entries are kept in formats that have no plain list of texts.
RT_INFO_SECTION = "lucid_yolo"
TORCHSCRIPT_ENTRY = "lucid_yolo.json"
EXECUTORCH_METHOD = "lucid_yolo"
LITERT_ENTRY = "lucid_yolo.json"
INPUT = {"name": INPUT_NAME, "dtype": "float32", "layout": "NCHW", "channels": "RGB", "range": [0, 1]}
OUTPUT = {"name": OUTPUT_NAME, "dtype": "float32", "columns": ["x1", "y1", "x2", "y2", "score", "class"]}
LETTERBOX = {
    "scale": "the picture's long side becomes the side of a square input; it just fits into another one",
    "rounding": "the short side is rounded to the nearest pixel, halves to even, at least 1",
    "placement": "centred; left and top fill = floor(fill / 2)",
    "interpolation": "pixel area when the picture shrinks, bilinear when it grows",
    "fill_value": FILL_VALUE,
}
LICENCE = "software: Apache-2.0 (lucid-yolo); weights: as their owner says"


@dataclass(frozen=True)
class DeployedMeta:
    """What an exported network is and how it is fed.

    Attributes:
        model: Task, scale, classes; its image size is the side that pictures are letterboxed to.
        size_px: (height, width) of the input; with a dynamic size the one it was exported at.
        has_dynamic_size: Other multiples of 32 are accepted too.
        max_detections: Rows per picture.
        is_half: The layers before the last compute in float16.
    """

    model: ModelMeta
    size_px: tuple[int, int]
    has_dynamic_size: bool = False
    max_detections: int = 300
    is_half: bool = False

    @property
    def precision(self) -> str:
        """As users type it."""
        return "fp16" if self.is_half else "fp32"

    def to_plain(self) -> dict[str, Any]:
        """Return plain values, as a program reads them from JSON."""
        return {
            "lucid_yolo_version": package_version(),
            "licence": LICENCE,
            "task": self.model.task,
            "variant": self.model.variant,
            "precision": self.precision,
            **self.model.class_map.to_dict(),
            "image_size": list(self.size_px),
            "has_dynamic_size": self.has_dynamic_size,
            "max_detections": self.max_detections,
            "input": INPUT,
            "output": OUTPUT,
            "letterbox": LETTERBOX,
        }

    def to_strings(self) -> dict[str, str]:
        """Return one text per entry; all but texts are JSON."""
        plain = self.to_plain().items()
        return {name: x if isinstance(x, str) else json.dumps(x, ensure_ascii=False) for name, x in plain}

    @classmethod
    def from_strings(cls, entries: Mapping[str, str], path: object) -> DeployedMeta:
        """Invert :meth:`to_strings`.

        Args:
            entries: The entries found in a file; others are ignored.
            path: The file, for the message.

        Raises:
            ValueError: An entry is missing or unreadable.
        """
        try:
            class_map = ClassMap.from_dict({key: json.loads(entries[key]) for key in ("names", "source_ids")})
            height, width = (int(side) for side in json.loads(entries["image_size"]))
            variant = entries["variant"]
            model = ModelMeta(entries["task"], variant, class_map, max(height, width))  # type: ignore[arg-type]
            is_dynamic, rows = (json.loads(entries[key]) for key in ("has_dynamic_size", "max_detections"))
            return cls(model, (height, width), bool(is_dynamic), int(rows), entries["precision"] == "fp16")
        except (KeyError, ValueError) as error:
            raise ValueError(
                f"{path}: expected the metadata that lucid-export writes, found none or a part of it ({error!r})"
            ) from error

    def at_size(self, height: int, width: int) -> DeployedMeta:
        """Return the same with another input size."""
        return replace(self, size_px=(height, width), model=replace(self.model, image_size_px=max(height, width)))
