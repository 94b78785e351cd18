"""Which class is taken for which, and what is found, missed and made up in every image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.evaluate.coco import ImageDetections, pair_by_image
from lucid_yolo.evaluate.overlap import box_iou
from lucid_yolo.structures import ClassMap, ImageRecord

CONFIDENCE, IOU_THRESHOLD = 0.25, 0.45
NO_OBJECT, ON_IGNORED = -1, -2


@dataclass(frozen=True)
class ImageMatch:
    """Detections of one image beside its objects, matched whatever their classes.

    Attributes:
        record: The image and its objects.
        boxes_xyxy_src: ``[n, 4]`` corners of the detections above the confidence, best first.
        score: ``[n]``.
        label: ``[n]`` contiguous class index.
        matched: ``[n]`` row of the object in the record; :data:`NO_OBJECT`, or :data:`ON_IGNORED` for what lies on an
            ignored region and counts for nothing.
    """

    record: ImageRecord
    boxes_xyxy_src: NDArray[Any]
    score: NDArray[Any]
    label: NDArray[Any]
    matched: NDArray[np.int64]

    @property
    def is_right(self) -> NDArray[np.bool_]:
        """``[n]`` True for a detection that lies on an object of its class."""
        is_matched = self.matched >= 0
        right: NDArray[np.bool_] = is_matched.copy()
        right[is_matched] = self.record.labels[self.matched[is_matched]] == self.label[is_matched]
        return right

    @property
    def is_missed(self) -> NDArray[np.bool_]:
        """True for the objects of the record on which no detection lies; ignored regions are none."""
        missed: NDArray[np.bool_] = ~self.record.is_ignored
        missed[self.matched[self.matched >= 0]] = False
        return missed

    @property
    def num_wrong(self) -> int:
        """Detections without an object, or with another class than it has."""
        return int((self.matched != ON_IGNORED).sum() - self.is_right.sum())

    @property
    def f1(self) -> float:
        """F1 of this image; 1 when there is nothing and nothing was found."""
        counted = int((self.matched != ON_IGNORED).sum() + (~self.record.is_ignored).sum())
        return 2 * float(self.is_right.sum()) / counted if counted else 1.0


def match_images(
    records: Sequence[ImageRecord],
    detections: Sequence[ImageDetections],
    class_map: ClassMap,
    confidence: float = CONFIDENCE,
    iou_threshold: float = IOU_THRESHOLD,
) -> list[ImageMatch]:
    """Match detections and objects one to one, the pair with the highest IoU first, whatever their classes.

    Args:
        records: Ground truth of every image.
        detections: Detections, in any order of images.
        class_map: The classes.
        confidence: Least score of a detection that counts.
        iou_threshold: Least IoU of a match.

    Returns:
        One entry per image, ordered by image id.

    Raises:
        ValueError: Ids repeat or are unknown, or labels are out of range.
    """
    pairs = pair_by_image(records, detections, len(class_map))
    return [_match(record, found, confidence, iou_threshold) for record, found in pairs]


def confusion_matrix(matches: Sequence[ImageMatch], num_classes: int) -> NDArray[np.int64]:
    """Return ``[K + 1, K + 1]`` counts: row the true class, column the detected one, the last of each is background.

    The last column holds missed objects, the last row detections without an object; their corner is 0.

    Args:
        matches: Of :func:`match_images`.
        num_classes: ``K``.
    """
    counts = np.zeros((num_classes + 1, num_classes + 1), dtype=np.int64)
    for match in matches:
        truths, is_matched = match.record.labels, match.matched >= 0
        np.add.at(counts, (truths[match.matched[is_matched]], match.label[is_matched]), 1)
        np.add.at(counts[:, num_classes], truths[match.is_missed], 1)
        np.add.at(counts[num_classes], match.label[match.matched == NO_OBJECT], 1)
    return counts


def most_confused(counts: NDArray[np.int64], num_pairs: int = 20) -> list[tuple[int, int, int]]:
    """Return (true class, detected class, how often) of the most frequent mistakes between two classes.

    Args:
        counts: Of :func:`confusion_matrix`.
        num_pairs: Longest result.
    """
    between = counts[:-1, :-1].copy()
    np.fill_diagonal(between, 0)
    order = np.argsort(-between, axis=None, kind="stable")[:num_pairs]
    rows, columns = (index.tolist() for index in np.unravel_index(order, between.shape))
    return [(i, j, int(between[i, j])) for i, j in zip(rows, columns, strict=True) if between[i, j]]


def _match(record: ImageRecord, found: ImageDetections, confidence: float, iou_threshold: float) -> ImageMatch:
    order = np.argsort(-found.score, kind="stable")
    order = order[found.score[order] >= confidence]
    boxes = found.boxes_xyxy_src[order].astype(np.float64)
    iou = box_iou(boxes, record.boxes_xyxy_src.astype(np.float64), record.is_ignored)
    matched = np.full(len(order), NO_OBJECT, dtype=np.int64)
    matched[(iou[:, record.is_ignored] >= iou_threshold).any(axis=1)] = ON_IGNORED
    rows, columns = np.nonzero((iou >= iou_threshold) & ~record.is_ignored)
    is_taken = np.zeros(len(record.labels), dtype=bool)
    is_used = np.zeros(len(order), dtype=bool)
    # Equal IoUs: the more certain detection, then the earlier object.
    for pair in np.argsort(-iou[rows, columns], kind="stable"):
        row, column = rows[pair], columns[pair]
        if not (is_used[row] or is_taken[column]):
            is_used[row] = is_taken[column] = True
            matched[row] = column
    return ImageMatch(record, boxes, found.score[order], found.label[order], matched)
