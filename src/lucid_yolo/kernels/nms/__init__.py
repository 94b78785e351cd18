"""Class-wise non-maximum suppression of ranked candidates.

The plain form has fixed shapes and does not wait for the device, at the price of some 7000 small launches; the kernel
is one. torchvision's loop is the fastest on a CPU; on a GPU its shapes depend on the data and it waits for each image.
All three make the same decisions.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from lucid_yolo.kernels.needs import missing_for_kernel
from lucid_yolo.kernels.nms.reference import NmsInputs, suppress_reference

NmsImplementation = Literal["reference", "library", "kernel", "auto"]


def suppress(inputs: NmsInputs, implementation: NmsImplementation = "auto") -> Tensor:
    """Return ``[B, D]`` rows of the survivors, best first; -1 where there are no more.

    Args:
        inputs: Ranked candidates and constants.
        implementation: ``auto`` takes the kernel where it can run, torchvision's loop on a CPU, else plain operations.

    Raises:
        ValueError: The kernel was asked for where it cannot run.
    """
    missing = missing_for_kernel(inputs.label.device)
    if implementation == "kernel" and missing:
        raise ValueError(f"suppression kernel: {missing}")
    if implementation == "library" or (implementation == "auto" and inputs.label.device.type == "cpu"):
        from lucid_yolo.kernels.nms.library import suppress_library

        return suppress_library(inputs)
    if implementation == "reference" or missing:
        return suppress_reference(inputs)
    from lucid_yolo.kernels.nms.kernel import suppress_kernel

    return suppress_kernel(inputs)
