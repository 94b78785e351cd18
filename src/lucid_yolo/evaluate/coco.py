"""COCO average precision of boxes, equal to the reference evaluator."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.evaluate.matching import NUM_AREAS, BoxTable
from lucid_yolo.evaluate.precision_recall import precision_recall
from lucid_yolo.structures import ClassMap, ImageRecord

logger = logging.getLogger(__name__)

IOU_50, IOU_75 = 0, 5
AREA_ALL, AREA_SMALL, AREA_MEDIUM, AREA_LARGE = range(NUM_AREAS)


@dataclass(frozen=True)
class ImageDetections:
    """Detections of one image, in any order.

    Attributes:
        image_id: Id of the image, as in its :class:`~lucid_yolo.structures.ImageRecord`.
        boxes_xyxy_src: ``[n, 4]`` corners in source pixels; an inverted side counts as zero.
        score: ``[n]`` finite, higher is more certain.
        label: ``[n]`` contiguous class index.

    Raises:
        ValueError: An array has another shape or holds a number that is not finite.
    """

    image_id: int | str
    boxes_xyxy_src: NDArray[Any]
    score: NDArray[Any]
    label: NDArray[Any]

    def __post_init__(self) -> None:
        num = len(self.score)
        for name, shape in (("boxes_xyxy_src", (num, 4)), ("score", (num,)), ("label", (num,))):
            array = getattr(self, name)
            if array.shape != shape:
                raise ValueError(f"image {self.image_id!r}, {name}: expected shape {shape}, found {array.shape}")
            if array.dtype.kind not in "biu" and not np.isfinite(array).all():
                raise ValueError(f"image {self.image_id!r}, {name}: expected finite numbers, found NaN or infinity")


@dataclass(frozen=True)
class ClassMetrics:
    """Average precision of one class; NaN for a class without objects.

    Attributes:
        label: Contiguous class index.
        source_id: Category id as the data set writes it.
        name: Class name.
        ap: Mean over IoU 0.50:0.95.
        ap50: At IoU 0.50.
        num_objects: Ground truths, ignored regions left out.
        num_images: Images with at least one of them.
    """

    label: int
    source_id: int
    name: str
    ap: float
    ap50: float
    num_objects: int
    num_images: int


@dataclass(frozen=True)
class BoxMetrics:
    """The COCO numbers in [0, 1]; NaN where no object of the kind exists (``None`` in :meth:`to_dict`).

    Attributes:
        map: Mean AP over classes and IoU 0.50:0.95.
        map50: Mean AP at IoU 0.50.
        map75: Mean AP at IoU 0.75.
        map_small: Objects up to 32² source pixels of annotated area.
        map_medium: Objects of 32² to 96².
        map_large: Objects of 96² and more.
        ar_1: Mean recall with one detection per image and class.
        ar_10: With ten.
        ar_max: With ``max_detections``.
        ar_small: ``ar_max`` of small objects.
        ar_medium: ``ar_max`` of medium objects.
        ar_large: ``ar_max`` of large objects.
        per_class: One row per class of the class map, in its order.
        max_detections: Detections used per image and class.
        num_images: Images evaluated.
        num_objects: Ground truths, ignored regions left out.
        num_cut_objects: Ground truths beyond ``max_detections`` in one image: out of reach of any detector
            that returns so many detections.
    """

    map: float
    map50: float
    map75: float
    map_small: float
    map_medium: float
    map_large: float
    ar_1: float
    ar_10: float
    ar_max: float
    ar_small: float
    ar_medium: float
    ar_large: float
    per_class: tuple[ClassMetrics, ...]
    max_detections: int
    num_images: int
    num_objects: int
    num_cut_objects: int

    def scalars(self) -> dict[str, float]:
        """Return the headline numbers by name, for loggers."""
        return {name: getattr(self, name) for name in self.scalar_names()}

    @classmethod
    def scalar_names(cls) -> tuple[str, ...]:
        """Return the names of the headline numbers."""
        return tuple(f.name for f in fields(cls) if f.name.startswith(("map", "ar_")))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values that are valid JSON: ``None`` where a number is undefined."""
        state = asdict(self)
        state["per_class"] = [_without_nan(row) for row in state["per_class"]]
        return _without_nan(state)


def _without_nan(row: dict[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()}


def pair_by_image(
    records: Sequence[ImageRecord], detections: Sequence[ImageDetections], num_classes: int
) -> list[tuple[ImageRecord, ImageDetections]]:
    """Give every record its detections, ordered by image id so that results depend on no order.

    Args:
        records: Ground truth, every image id once.
        detections: At most one entry per image; an image without an entry has no detections.
        num_classes: Labels must lie below it.

    Raises:
        ValueError: An image id repeats or is unknown, or a label is out of range.
    """
    by_id = {d.image_id: d for d in detections}
    known = {r.image_id for r in records}
    if len(by_id) != len(detections) or len(known) != len(records):
        raise ValueError("expected every image id once in records and once in detections, found repeated ids")
    if unknown := [i for i in by_id if i not in known]:
        raise ValueError(f"detections: expected image ids of the records, found {len(unknown)} others: {unknown[:5]}")
    ordered = sorted(records, key=lambda r: (isinstance(r.image_id, str), r.image_id))
    pairs = [(record, by_id.get(record.image_id) or _no_detections(record.image_id)) for record in ordered]
    _check_labels("records", {r.image_id: r.labels for r, _ in pairs}, num_classes)
    _check_labels("detections", {d.image_id: d.label for _, d in pairs}, num_classes)
    return pairs


def _check_labels(name: str, labels_of_images: Mapping[int | str, NDArray[Any]], num_classes: int) -> None:
    def are_known(labels: NDArray[Any]) -> bool:
        return not len(labels) or bool(labels.min() >= 0 and labels.max() < num_classes)

    if are_known(np.concatenate([np.zeros(0, dtype=np.int64), *labels_of_images.values()])):
        return
    image_id, wrong = next(item for item in labels_of_images.items() if not are_known(item[1]))
    raise ValueError(
        f"{name}, image {image_id!r}: expected labels in 0..{num_classes - 1}, found {wrong.min()}..{wrong.max()}"
    )


def _no_detections(image_id: int | str) -> ImageDetections:
    return ImageDetections(image_id, np.zeros((0, 4)), np.zeros(0), np.zeros(0, dtype=np.int64))


def evaluate_boxes(
    records: Sequence[ImageRecord],
    detections: Sequence[ImageDetections],
    class_map: ClassMap,
    max_detections: int = 300,
) -> BoxMetrics:
    """Return COCO average precision and recall of one head's detections.

    Args:
        records: Ground truth of every evaluated image, in any order; ignored rows are crowds.
        detections: Detections, in any order of images; images may be left out.
        class_map: The classes; its order is the order of the per-class table.
        max_detections: Best detections used per image and class, at least 1.

    Returns:
        The metrics, NaN where undefined.

    Raises:
        ValueError: Ids repeat or are unknown, labels are out of range, or ``max_detections`` is below 1.

    Source:
        The COCO detection evaluation; oracle pycocotools.
    """
    if max_detections < 1:
        raise ValueError(f"max_detections: expected at least 1, found {max_detections}")
    truths, is_crowd, found, score = box_tables(records, detections, len(class_map))
    caps = sorted({min(1, max_detections), min(10, max_detections), max_detections})
    tables = precision_recall(truths, is_crowd, found, score, len(class_map), caps)
    ap, recall = tables.precision, tables.recall
    ar = recall[..., -1]
    per_class = _class_table(class_map, truths.take(~is_crowd), ap)
    return BoxMetrics(
        map=mean_defined(ap[..., AREA_ALL]),
        map50=mean_defined(ap[:, IOU_50, :, AREA_ALL]),
        map75=mean_defined(ap[:, IOU_75, :, AREA_ALL]),
        map_small=mean_defined(ap[..., AREA_SMALL]),
        map_medium=mean_defined(ap[..., AREA_MEDIUM]),
        map_large=mean_defined(ap[..., AREA_LARGE]),
        ar_1=mean_defined(recall[:, :, AREA_ALL, 0]),
        ar_10=mean_defined(recall[:, :, AREA_ALL, caps.index(min(10, max_detections))]),
        ar_max=mean_defined(ar[..., AREA_ALL]),
        ar_small=mean_defined(ar[..., AREA_SMALL]),
        ar_medium=mean_defined(ar[..., AREA_MEDIUM]),
        ar_large=mean_defined(ar[..., AREA_LARGE]),
        per_class=per_class,
        max_detections=max_detections,
        num_images=len(records),
        num_objects=sum(c.num_objects for c in per_class),
        num_cut_objects=_count_cut_objects(records, max_detections),
    )


def box_tables(
    records: Sequence[ImageRecord], detections: Sequence[ImageDetections], num_classes: int
) -> tuple[BoxTable, NDArray[np.bool_], BoxTable, NDArray[np.float64]]:
    """Return ground truth, which of its rows are crowds, detections and their scores; images are ranked by their ids.

    Args:
        records: Ground truth, every image id once.
        detections: At most one entry per image.
        num_classes: Labels must lie below it.

    Raises:
        ValueError: An image id repeats or is unknown, or a label is out of range.
    """
    pairs = pair_by_image(records, detections, num_classes)
    return *_truth_table([p[0] for p in pairs]), *_found_table([p[1] for p in pairs])


def _truth_table(records: Sequence[ImageRecord]) -> tuple[BoxTable, NDArray[np.bool_]]:
    """Return the ground truth of a split and which rows are crowds."""
    x1, y1, width, height = _xywh([r.boxes_xyxy_src for r in records])
    image, label = _image_ranks([len(r.labels) for r in records]), _join([r.labels for r in records], np.int64)
    area, is_crowd = _join([r.area_src for r in records], np.float64), _join([r.is_ignored for r in records], np.bool_)
    return BoxTable(image, label, x1, y1, width, height, area), is_crowd


def _found_table(detections: Sequence[ImageDetections]) -> tuple[BoxTable, NDArray[np.float64]]:
    """Return the detections of a split and their scores."""
    x1, y1, width, height = _xywh([d.boxes_xyxy_src for d in detections])
    image, label = _image_ranks([len(d.score) for d in detections]), _join([d.label for d in detections], np.int64)
    score = _join([d.score for d in detections], np.float64)
    return BoxTable(image, label, x1, y1, width, height, width * height), score


def _join(arrays: Sequence[NDArray[Any]], dtype: type[np.generic]) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype), *arrays], dtype=dtype, casting="unsafe")


def _image_ranks(counts: Sequence[int]) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(counts)), counts)


def _xywh(boxes_xyxy: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
    """Return ``[4, n]`` left, top, width, height; an inverted side is 0."""
    xywh = np.concatenate([np.zeros((0, 4)), *boxes_xyxy], dtype=np.float64).T.copy()
    np.maximum(xywh[2:] - xywh[:2], 0.0, out=xywh[2:])
    return xywh


def _class_table(class_map: ClassMap, objects: BoxTable, ap: NDArray[np.float64]) -> tuple[ClassMetrics, ...]:
    """Return one row per class from the ground truth without crowds and the precision table."""
    num_objects = np.bincount(objects.label, minlength=len(class_map))
    labels_of_images = np.unique(objects.image * len(class_map) + objects.label) % max(len(class_map), 1)
    num_images = np.bincount(labels_of_images, minlength=len(class_map))
    return tuple(
        ClassMetrics(
            label=label,
            source_id=class_map.source_ids[label],
            name=class_map.names[label],
            ap=mean_defined(ap[label, ..., AREA_ALL]),
            ap50=mean_defined(ap[label, IOU_50, :, AREA_ALL]),
            num_objects=int(num_objects[label]),
            num_images=int(num_images[label]),
        )
        for label in range(len(class_map))
    )


def mean_defined(values: NDArray[np.float64]) -> float:
    """Return the mean of what is defined (the evaluator writes -1 where nothing is), NaN when nothing is."""
    defined = values[values > -1]
    return float(defined.mean()) if len(defined) else math.nan


def _count_cut_objects(records: Sequence[ImageRecord], max_detections: int) -> int:
    surplus = [max(0, len(r.labels) - int(np.count_nonzero(r.is_ignored)) - max_detections) for r in records]
    if total := sum(surplus):
        logger.warning(
            "%d objects in %d images lie beyond max_detections=%d and cannot all be found; raise max_detections",
            total,
            sum(s > 0 for s in surplus),
            max_detections,
        )
    return total
