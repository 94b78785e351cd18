"""Many tensors in one buffer, each reachable as a view with its own shape and memory format."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

ALIGNMENT = 32


@dataclass(frozen=True)
class FlatLayout:
    """Where each named tensor lies in a flat buffer.

    4-D tensors are stored channels-last. Every tensor starts at a multiple of 32 elements; gaps hold zeros.

    Attributes:
        shapes: Shape of each tensor, in flat order.
        offsets: Start of each tensor.
        length: Elements of the buffer.
    """

    shapes: dict[str, torch.Size]
    offsets: dict[str, int]
    length: int

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> FlatLayout:
        """Lay out ``tensors`` in their order."""
        offsets, end = {}, 0
        for name, tensor in tensors.items():
            offsets[name] = end
            end += math.ceil(tensor.numel() / ALIGNMENT) * ALIGNMENT
        return cls({name: tensor.shape for name, tensor in tensors.items()}, offsets, end)

    def views(self, flat: Float[Tensor, " n"]) -> dict[str, Tensor]:
        """Return every tensor as a view into ``flat``."""
        return {name: self.view(name, flat) for name in self.shapes}

    def view(self, name: str, flat: Float[Tensor, " n"]) -> Tensor:
        """Return one tensor as a view into ``flat``."""
        start, shape = self.offsets[name], self.shapes[name]
        part = flat[start : start + shape.numel()]
        if len(shape) != 4:
            return part.view(shape)
        out, channels, height, width = shape
        return part.view(out, height, width, channels).permute(0, 3, 1, 2)

    def locate(self, position: int) -> tuple[str, tuple[int, ...]]:
        """Return (tensor, index of the element in it) for a position of the buffer; an empty name for a gap.

        Args:
            position: Element of the buffer, [0, length).
        """
        name = next(name for name, start in reversed(self.offsets.items()) if start <= position)
        shape, inside = self.shapes[name], position - self.offsets[name]
        if inside >= shape.numel():
            return "", ()
        if len(shape) == 4:
            out, channels, height, width = shape
            o, y, x, c = _unravel(inside, (out, height, width, channels))
            return name, (o, c, y, x)
        return name, _unravel(inside, shape)

    def pack(self, tensors: Mapping[str, Tensor], flat: Float[Tensor, " n"]) -> None:
        """Copy named tensors into ``flat``.

        Raises:
            ValueError: Names or shapes differ from the layout.
        """
        if tensors.keys() != self.shapes.keys():
            differing = sorted(tensors.keys() ^ self.shapes.keys())
            raise ValueError(f"state: tensors missing or unknown: {', '.join(differing[:8])}")
        for name, view in self.views(flat).items():
            if tensors[name].shape != view.shape:
                raise ValueError(
                    f"state {name!r}: expected shape {tuple(view.shape)}, found {tuple(tensors[name].shape)}"
                )
            view.copy_(tensors[name])

    def unpack(self, flat: Float[Tensor, " n"]) -> dict[str, Tensor]:
        """Return a copy of every tensor."""
        return {name: view.detach().clone() for name, view in self.views(flat).items()}


def _unravel(position: int, shape: Sequence[int]) -> tuple[int, ...]:
    index = []
    for side in reversed(shape):
        position, rest = divmod(position, side)
        index.append(rest)
    return tuple(reversed(index))
