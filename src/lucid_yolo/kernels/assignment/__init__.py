"""Choosing the points of every target.

The plain form writes some thirty tensors of branches x images x 64 x points; the kernel writes none of that size and
leaves padded targets at once, so its time does not grow with the capacity. Same bytes. Measured gain, plain
against kernel: ``docs/log.md``.
"""

from __future__ import annotations

from typing import Literal

from lucid_yolo.kernels.assignment.reference import AssignInputs, AssignOutputs, assign_points_reference
from lucid_yolo.kernels.needs import missing_for_kernel

Implementation = Literal["reference", "kernel", "auto"]


def assign_points(inputs: AssignInputs, implementation: Implementation = "auto") -> AssignOutputs:
    """Assign targets to points.

    Args:
        inputs: Boxes, probabilities, targets and constants.
        implementation: ``auto`` takes the kernel where it can run.

    Raises:
        ValueError: The kernel was asked for where it cannot run.
    """
    missing = missing_for_kernel(inputs.class_prob.device)
    if implementation == "kernel" and missing:
        raise ValueError(f"assignment kernel: {missing}")
    if implementation == "reference" or missing:
        return assign_points_reference(inputs)
    from lucid_yolo.kernels.assignment.kernel import assign_points_kernel

    return assign_points_kernel(inputs)
