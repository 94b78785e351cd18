"""One split in numbers: class balance, object sizes and shapes, image sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lucid_yolo.data.dataset import DataSplit
from lucid_yolo.geometry.letterbox import letterbox

QUANTILES = (0.0, 0.05, 0.5, 0.95, 1.0)

# Limits of the COCO evaluation between small, medium and large, on the square root of the area in source pixels.
_SMALL_SRC, _LARGE_SRC = 32.0, 96.0
_NAME_WIDTH = 24


@dataclass(frozen=True)
class SplitSummary:
    """Numbers of one split. Quantiles are minimum, 5 %, median, 95 %, maximum; empty without objects or images.

    Attributes:
        split: Its name.
        source_format: Format that was read.
        num_images: Images in use.
        num_labelled: Images with an object.
        num_ignored: Ignore regions.
        class_counts: Objects per class, in the order of the class map.
        objects_per_image: Quantiles.
        side_px: Quantiles of the square root of the box area, in pixels of the network input.
        aspect: Quantiles of width over height.
        size_shares: Share of small, medium and large objects as the COCO evaluation counts them.
        width_src: Quantiles of image widths.
        height_src: Quantiles of image heights.
        image_size_px: Network input that ``side_px`` refers to.
    """

    split: str
    source_format: str
    num_images: int
    num_labelled: int
    num_ignored: int
    class_counts: dict[str, int]
    objects_per_image: tuple[float, ...]
    side_px: tuple[float, ...]
    aspect: tuple[float, ...]
    size_shares: dict[str, float]
    width_src: tuple[float, ...]
    height_src: tuple[float, ...]
    image_size_px: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}

    def to_table(self) -> str:
        """Return a short text."""
        total = sum(self.class_counts.values())
        lines = [
            f"== {self.split} ({self.source_format}): {self.num_images} images, {self.num_labelled} with objects, "
            f"{total} objects, {self.num_ignored} ignore regions",
            f"  {'':<{_NAME_WIDTH}}{'min':>9}{'5 %':>9}{'median':>9}{'95 %':>9}{'max':>9}",
            _row("objects per image", self.objects_per_image),
            _row(f"object side at {self.image_size_px} px", self.side_px),
            _row("object width / height", self.aspect),
            _row("image width", self.width_src),
            _row("image height", self.height_src),
        ]
        lines.append("  " + ", ".join(f"{name} {100 * share:.1f} %" for name, share in self.size_shares.items()))
        for name, count in self.class_counts.items():
            lines.append(f"  class {name:<{_NAME_WIDTH - 6}}{count:>9}{100 * count / max(total, 1):>8.2f} %")
        return "\n".join(line for line in lines if line.strip())


def summarize(name: str, split: DataSplit, image_size_px: int) -> SplitSummary:
    """Count one split.

    Args:
        name: Of the split.
        split: The split.
        image_size_px: Side of the network input.
    """
    sides, aspects, areas, labels = [np.empty(0)], [np.empty(0)], [np.empty(0)], [np.empty(0, np.int64)]
    for record in split.records:
        is_object = ~record.is_ignored
        width, height = (record.boxes_xyxy_src[is_object, 2:] - record.boxes_xyxy_src[is_object, :2]).T
        scale_x, scale_y = letterbox(record.height_src, record.width_src, image_size_px).scale_xy
        sides.append(np.sqrt(width * scale_x * height * scale_y))
        aspects.append(width / height)
        areas.append(record.area_src[is_object])
        labels.append(record.labels[is_object])
    counts = np.bincount(np.concatenate(labels), minlength=len(split.class_map)).tolist()
    return SplitSummary(
        split=name,
        source_format=split.source_format,
        num_images=len(split.records),
        num_labelled=split.account.num_labelled_images,
        num_ignored=sum(int(record.is_ignored.sum()) for record in split.records),
        class_counts=_name_counts(split, counts),
        objects_per_image=_quantiles([int((~record.is_ignored).sum()) for record in split.records]),
        side_px=_quantiles(np.concatenate(sides)),
        aspect=_quantiles(np.concatenate(aspects)),
        size_shares=_size_shares(np.sqrt(np.concatenate(areas))),
        width_src=_quantiles([record.width_src for record in split.records]),
        height_src=_quantiles([record.height_src for record in split.records]),
        image_size_px=image_size_px,
    )


def _name_counts(split: DataSplit, counts: list[int]) -> dict[str, int]:
    """Return counts by name; a name that two classes share is followed by its source id."""
    names, ids = split.class_map.names, split.class_map.source_ids
    unique = [n if names.count(n) == 1 else f"{n} ({i})" for n, i in zip(names, ids, strict=True)]
    return dict(zip(unique, counts, strict=True))


def _quantiles(values: Any) -> tuple[float, ...]:
    array = np.asarray(values, np.float64)
    return tuple(round(float(q), 4) for q in np.quantile(array, QUANTILES)) if array.size else ()


def _size_shares(side_src: np.ndarray) -> dict[str, float]:
    if not side_src.size:
        return {}
    small, large = float((side_src < _SMALL_SRC).mean()), float((side_src >= _LARGE_SRC).mean())
    shares = {"small": small, "medium": 1 - small - large, "large": large}
    return {name: round(share, 6) for name, share in shares.items()}


def _row(title: str, values: tuple[float, ...]) -> str:
    return f"  {title:<{_NAME_WIDTH}}" + "".join(f"{value:>9.4g}" for value in values) if values else ""
