"""Detection: axis-aligned boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import ClassVar

from lucid_yolo.assign.task_aligned import AssignConfig, assign
from lucid_yolo.decode.nms import decode_one_to_many
from lucid_yolo.decode.one_to_one import decode_one_to_one
from lucid_yolo.kernels.assignment import Implementation
from lucid_yolo.kernels.nms import NmsImplementation
from lucid_yolo.losses.detection import DETECTION_TERMS, detection_loss_sums
from lucid_yolo.models.head import BRANCHES, StemSpec, detection_stems
from lucid_yolo.structures import AnchorPoints, Detections, LossTerms, Prediction, Targets
from lucid_yolo.tasks.task import Task


@dataclass(frozen=True)
class LossGains:
    """Weights of the loss terms.

    Attributes:
        box: Complete-IoU term.
        l1: Distance term.
        cls: Classification term.

    Source: arXiv:2606.03748 Table S3.
    """

    box: float = 7.5
    l1: float = 6.0
    cls: float = 0.5


@dataclass(frozen=True)
class DetectTask(Task):
    """Boxes and classes.

    Attributes:
        num_classes: Number of classes ``K``.
        loss: Weights of the loss terms.
        assign: Constants of the assignment.
        assignment: Plain operations or the kernel; same bytes.
        suppression: How the one-to-many branch is suppressed; same bytes.
    """

    name: ClassVar[str] = "detect"
    num_classes: int
    loss: LossGains = field(default_factory=LossGains)
    assign: AssignConfig = field(default_factory=AssignConfig)
    assignment: Implementation = "reference"
    suppression: NmsImplementation = "auto"

    def stems(self, in_channels: Sequence[int]) -> tuple[StemSpec, ...]:
        """Return the box and class stems."""
        return detection_stems(in_channels, self.num_classes)

    def gains(self) -> dict[str, float]:
        """Return the weight of every loss term."""
        gains = asdict(self.loss)
        return {name: gains[name] for name in DETECTION_TERMS}

    def criterion(self, prediction: Prediction, targets: Targets, points: AnchorPoints) -> LossTerms:
        """Assign both branches, then sum the loss terms."""
        assignment = assign(prediction, targets, points, self.assign, self.assignment)
        return detection_loss_sums(prediction, assignment, targets, points, len(BRANCHES))

    def decode(self, prediction: Prediction, points: AnchorPoints, branch: str) -> Detections:
        """Rank the one-to-one branch, or suppress the one-to-many branch."""
        if branch == "one_to_one":
            return decode_one_to_one(prediction, points)
        return decode_one_to_many(prediction, points, suppression=self.suppression)
