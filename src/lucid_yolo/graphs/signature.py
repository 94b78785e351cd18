"""What two calls must share to use one recording."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Signature:
    """Key of a recording.

    Attributes:
        key: What the caller adds: modes, capacities, precision.
        shapes: Shape of each input.
        strides: Stride of each input.
        dtypes: Dtype of each input.
        devices: Device of each input.
    """

    key: Hashable
    shapes: tuple[torch.Size, ...]
    strides: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    devices: tuple[torch.device, ...]


def signature_of(key: Hashable, inputs: Sequence[Tensor]) -> Signature:
    """Return the signature of a call.

    Args:
        key: Part of the signature that the tensors do not show.
        inputs: Input tensors.
    """
    return Signature(
        key,
        tuple(x.shape for x in inputs),
        tuple(x.stride() for x in inputs),
        tuple(x.dtype for x in inputs),
        tuple(x.device for x in inputs),
    )
