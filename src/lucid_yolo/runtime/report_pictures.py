"""The images on which a detector did worst and best, drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lucid_yolo.data.sources import PreparedSource
from lucid_yolo.evaluate.confusion import NO_OBJECT, ImageMatch
from lucid_yolo.viz.draw import draw_boxes, side_by_side
from lucid_yolo.viz.report import Picture

NUM_PICTURES = 4
SIDE_PX = 480


def worst_and_best(matches: Sequence[ImageMatch], num: int = NUM_PICTURES) -> tuple[list[ImageMatch], list[ImageMatch]]:
    """Return the images with the lowest and the highest F1, no image in both.

    Of equal ones those with more mistakes are worse, and those with more objects better. Images without objects and
    detections are neither.

    Args:
        matches: All images.
        num: Of each, at most.
    """
    telling = [m for m in matches if len(m.label) or (~m.record.is_ignored).any()]
    by_f1 = sorted(telling, key=lambda m: (m.f1, -_num_mistakes(m), int(m.is_right.sum()), m.record.path))
    worst = [m for m in by_f1[:num] if m.f1 < 1.0]
    best = [m for m in by_f1[::-1][:num] if m.f1 > 0.0 and all(m is not w for w in worst)]
    return worst, best


def draw_matches(matches: Sequence[ImageMatch], names: Sequence[str]) -> tuple[Picture, ...]:
    """Draw each image twice, side by side: its objects, and its detections; what is wrong is said at the box.

    Args:
        matches: Images.
        names: Class names.
    """
    source = PreparedSource([m.record for m in matches], SIDE_PX)
    return tuple(_draw(match, source(i), names) for i, match in enumerate(matches))


def _draw(match: ImageMatch, image: np.ndarray, names: Sequence[str]) -> Picture:
    record = match.record
    ratio = np.array([image.shape[1] / record.width_src, image.shape[0] / record.height_src] * 2)
    is_object, is_right = ~record.is_ignored, match.is_right
    missed = ["missed" if m else "" for m in match.is_missed[is_object]]
    wrong = [_fault(m, r) for m, r in zip(match.matched.tolist(), is_right.tolist(), strict=True)]
    truth = draw_boxes(image, record.boxes_xyxy_src[is_object] * ratio, record.labels[is_object], names, remarks=missed)
    found = draw_boxes(image, match.boxes_xyxy_src * ratio, match.label, names, match.score, remarks=wrong)
    counts = f"{int(is_right.sum())} right, {match.num_wrong} wrong, {int(match.is_missed.sum())} missed"
    return Picture(side_by_side(truth, found), f"{record.image_id}: F1 {match.f1:.2f} ({counts})")


def _fault(matched: int, is_right: bool) -> str:
    if is_right:
        return ""
    return "other class" if matched >= 0 else "no object" if matched == NO_OBJECT else "ignored"


def _num_mistakes(match: ImageMatch) -> int:
    return match.num_wrong + int(match.is_missed.sum())
