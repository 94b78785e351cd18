"""The gate: an exported file must find what the eager network finds, detection by detection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from lucid_yolo.decode.one_to_one import MAX_DETECTIONS
from lucid_yolo.geometry.boxes import pairwise_iou
from lucid_yolo.geometry.points import make_anchor_points
from lucid_yolo.models.head import DEPLOYED
from lucid_yolo.models.network import Network
from lucid_yolo.models.scales import STRIDES
from lucid_yolo.runtime.detector import ImageDetector
from lucid_yolo.structures import Detections
from lucid_yolo.tasks.task import Task

MIN_SCORE = 0.25
NUM_BEST = 10
SAME_CORNERS_PX = 0.01


@dataclass(frozen=True)
class Tolerance:
    """How far a detection may be from eager's.

    Attributes:
        iou: Least overlap.
        score: Greatest difference of the scores.
    """

    iou: float
    score: float


FP32 = Tolerance(0.99, 1e-3)
FP16 = Tolerance(0.98, 5e-3)


@dataclass(frozen=True)
class Picture:
    """One test picture on its canvas.

    Attributes:
        name: File, or what it is.
        canvas: RGB as the network gets it.
    """

    name: str
    canvas: UInt8[Tensor, "3 H W"]


@dataclass(frozen=True, eq=False)
class Found:
    """The detections of one picture, on the CPU."""

    boxes_xyxy_px: Float[Tensor, "D 4"]
    score: Float[Tensor, " D"]
    label: Int[Tensor, " D"]

    def head(self, count: int) -> Found:
        """Return the best ones."""
        return Found(self.boxes_xyxy_px[:count], self.score[:count], self.label[:count])

    def count_above(self, score: float) -> int:
        """Return how many have a higher score."""
        return int((self.score > score).sum())


@dataclass(frozen=True)
class Comparison:
    """One picture, eager against exported.

    Attributes:
        name: The picture.
        size_px: (height, width) of its canvas.
        num_compared: Detections that had to be found on the other side, of the side that has more of them.
        num_missing: Those without a counterpart within the tolerance.
        worst_iou: Least overlap with the counterpart.
        worst_score: Greatest difference of scores.
        is_same_order: Counterparts stand at the same ranks.
    """

    name: str
    size_px: tuple[int, int]
    num_compared: int
    num_missing: int
    worst_iou: float
    worst_score: float
    is_same_order: bool

    @property
    def badness(self) -> tuple[float, ...]:
        """Sorts the worst picture last."""
        return float(self.num_missing), max(1 - self.worst_iou, self.worst_score)


@dataclass(frozen=True)
class GateResult:
    """All pictures.

    Attributes:
        tolerance: What was allowed.
        min_score: Detections above it were compared.
        only_best: Nothing was above it, so the best ones of each picture were compared.
        rows: One per picture.
    """

    tolerance: Tolerance
    min_score: float
    only_best: bool
    rows: tuple[Comparison, ...]

    @property
    def is_passed(self) -> bool:
        """True when something was compared and every detection has its counterpart."""
        return self.num_compared > 0 and not any(row.num_missing for row in self.rows)

    @property
    def num_compared(self) -> int:
        """Detections compared, of all pictures."""
        return sum(row.num_compared for row in self.rows)

    @property
    def worst(self) -> Comparison:
        """The picture that differs most."""
        return max(self.rows, key=lambda row: row.badness)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"is_passed": self.is_passed, "num_compared": self.num_compared, **asdict(self)}


class EagerReference:
    """The network as trained, not fused, in float32 on the CPU, at any picture size.

    Args:
        network: The network.
        task: Decodes its output.
        max_detections: Keep the best of each picture.
    """

    def __init__(self, network: Network, task: Task, max_detections: int = MAX_DETECTIONS) -> None:
        self._network, self._task, self._max_detections = network.cpu().float().eval(), task, max_detections

    @torch.inference_mode()
    def detect(self, images: UInt8[Tensor, "B 3 H W"]) -> dict[str, Detections]:
        """Return the ranked detections of the deployed branch."""
        points = make_anchor_points((images.shape[2], images.shape[3]), STRIDES)
        prediction = self._network(images.float().mul(1 / 255), (DEPLOYED,))
        found = self._task.decode(prediction, points, DEPLOYED)
        return {DEPLOYED: Detections(*(getattr(found, f.name)[:, : self._max_detections] for f in fields(found)))}


def run_gate(
    reference: EagerReference, exported: ImageDetector, pictures: Sequence[Picture], tolerance: Tolerance
) -> tuple[GateResult, dict[str, tuple[Found, Found]]]:
    """Compare on every picture; the exported file gets batches of one and of two.

    Args:
        reference: What is right.
        exported: What is tested.
        pictures: At least one.
        tolerance: How far a detection may be off.

    Returns:
        The result, and the detections of both sides by picture.

    Raises:
        ValueError: The exported file gives numbers that are not finite.
    """
    found: dict[str, tuple[Found, Found]] = {}
    for chunk in _chunks(pictures):
        images = torch.stack([picture.canvas for picture in chunk])
        sides = [_rows(detector.detect(images)[DEPLOYED]) for detector in (reference, exported)]
        found |= {picture.name: (eager, other) for picture, eager, other in zip(chunk, *sides, strict=True)}
    only_best = not any(side.count_above(MIN_SCORE) for pair in found.values() for side in pair)
    sizes = {picture.name: (picture.canvas.shape[1], picture.canvas.shape[2]) for picture in pictures}
    rows = tuple(
        replace(compare(*pair, tolerance, only_best=only_best), name=name, size_px=sizes[name])
        for name, pair in found.items()
    )
    return GateResult(tolerance, MIN_SCORE, only_best, rows), found


def _chunks(pictures: Sequence[Picture]) -> Iterator[list[Picture]]:
    """Give the first picture alone, then pairs of one size."""
    pending: list[Picture] = []
    for number, picture in enumerate(pictures):
        if pending and pending[0].canvas.shape != picture.canvas.shape:
            yield pending
            pending = []
        pending.append(picture)
        if number == 0 or len(pending) == 2:
            yield pending
            pending = []
    if pending:
        yield pending


def _rows(found: Detections) -> list[Found]:
    boxes, score, label = found.boxes_xyxy_px.cpu(), found.score.cpu(), found.label.cpu()
    if not (torch.isfinite(boxes).all() and torch.isfinite(score).all()):
        raise ValueError("gate: expected finite detections, found NaN or infinity")
    return [Found(*row) for row in zip(boxes, score, label, strict=True)]


def compare(eager: Found, exported: Found, tolerance: Tolerance, *, only_best: bool = False) -> Comparison:
    """Find for every detection of either side its counterpart on the other.

    A counterpart has the same class, and overlap and score within the tolerance; no row is used twice. It may itself
    lie just below the score from which detections count. A detection within the tolerance of the other side's last row
    may have been cut off there, so it is not missed.

    Args:
        eager: What is right.
        exported: What is tested.
        tolerance: How far a detection may be off.
        only_best: Compare the best few whatever their score.
    """
    matches = []
    for first, second in ((eager, exported), (exported, eager)):
        count = min(NUM_BEST, first.count_above(0.0)) if only_best else first.count_above(MIN_SCORE)
        matches.append(_match(first.head(count), second, tolerance))
    columns = [np.concatenate(parts) for parts in zip(*matches, strict=True)]
    is_missing, iou, difference, is_moved = columns
    return Comparison(
        name="",
        size_px=(0, 0),
        num_compared=max(len(rows[0]) for rows in matches),
        num_missing=int(is_missing.sum()),
        worst_iou=float(iou.min(initial=1)),
        worst_score=float(difference.max(initial=0)),
        is_same_order=not is_moved.any(),
    )


def _match(first: Found, second: Found, tolerance: Tolerance) -> tuple[np.ndarray, ...]:
    """Return (is missing, IoU, score difference, stands at another rank) for every detection of the first side."""
    iou = pairwise_iou(first.boxes_xyxy_px, second.boxes_xyxy_px).numpy()
    corners = (first.boxes_xyxy_px[:, None] - second.boxes_xyxy_px).abs().amax(-1).numpy()
    is_empty = (first.boxes_xyxy_px[:, 2:] <= first.boxes_xyxy_px[:, :2]).any(1).numpy()
    # A box without area overlaps nothing, not even itself.
    iou = np.where(is_empty[:, None] & (corners <= SAME_CORNERS_PX), 1.0, iou)
    difference = (first.score[:, None] - second.score).abs().numpy()
    is_same_class = (first.label[:, None] == second.label).numpy()
    is_good = is_same_class & (iou > tolerance.iou) & (difference < tolerance.score)
    is_free, is_missing, index = np.ones(iou.shape[1], bool), np.zeros(len(iou), bool), np.zeros(len(iou), np.int64)
    for rank in range(len(iou)):
        good = np.flatnonzero(is_good[rank] & is_free)
        if len(good):
            index[rank] = good[np.abs(good - rank).argmin()]
            is_free[index[rank]] = False
        else:  # the likeliest counterpart, to say how far off it is
            is_missing[rank] = first.score[rank] - second.score[-1] >= tolerance.score
            index[rank] = (iou[rank] * is_same_class[rank] - difference[rank]).argmax()
    ranks = np.arange(len(iou))
    return is_missing, iou[ranks, index] * is_same_class[ranks, index], difference[ranks, index], ranks != index
