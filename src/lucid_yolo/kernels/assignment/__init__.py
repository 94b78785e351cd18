"""Choosing the points of every target.

The plain form writes some thirty tensors of branches x images x 64 x points; the kernel writes none of that size and
leaves padded targets at once, so its time does not grow with the capacity. Same bytes. Measured gain, plain
against kernel: ``docs/log.md``.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

import torch

from lucid_yolo.kernels.assignment.reference import AssignInputs, AssignOutputs, assign_points_reference

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


def missing_for_kernel(device: torch.device) -> str:
    """Return what the kernel lacks on ``device``; empty if it can run."""
    if device.type != "cuda":
        return f"it needs a CUDA device, found {device}"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return f"it needs compute capability 8.0, found {torch.cuda.get_device_capability(device)}"
    return "" if find_spec("triton") else "it needs the package triton"
