"""What a task is: stems, criterion, decoders. Everything else is shared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from lucid_yolo.models.head import StemSpec
from lucid_yolo.structures import BOX_FIELDS, AnchorPoints, Detections, LossTerms, Prediction, TargetField, Targets


class Task(ABC):
    """One page per task derives from this.

    Attributes:
        name: As users type it.
        headline: Metric that chooses the best checkpoint.
        target_fields: Arrays a batch carries.
    """

    name: ClassVar[str]
    headline: ClassVar[str] = "val/map"
    target_fields: ClassVar[tuple[TargetField, ...]] = BOX_FIELDS

    @abstractmethod
    def stems(self, in_channels: Sequence[int]) -> tuple[StemSpec, ...]:
        """Return the head's stems for neck maps of the given widths."""

    @abstractmethod
    def gains(self) -> dict[str, float]:
        """Return the weight of every loss term, in the order of the criterion's columns."""

    @abstractmethod
    def criterion(self, prediction: Prediction, targets: Targets, points: AnchorPoints) -> LossTerms:
        """Return sums and normalisers of a prediction with both branches stacked."""

    @abstractmethod
    def decode(self, prediction: Prediction, points: AnchorPoints, branch: str) -> Detections:
        """Return the detections of one branch's prediction."""
