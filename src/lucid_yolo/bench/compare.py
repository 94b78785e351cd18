"""Byte for byte: hashes of tensors, and the first element in which two of them differ."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from lucid_yolo.runtime.state import TrainState

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Difference:
    """The first element in which two tensors differ.

    Attributes:
        item: What differs, with the element's index.
        first: Value on the first side, with its bits.
        second: Value on the second side.
        num_elements: How many elements of the tensor differ.
    """

    item: str
    first: str
    second: str
    num_elements: int = 1

    def __str__(self) -> str:
        more = f", {self.num_elements} elements differ" if self.num_elements > 1 else ""
        return f"{self.item}: {self.first} against {self.second}{more}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def bits(tensor: Tensor) -> Tensor:
    """Return a tensor's bits as integers of the same shape."""
    return tensor.detach().contiguous().view(_INTEGERS[tensor.element_size()])


def has_same_bytes(first: Tensor, second: Tensor) -> bool:
    """Return whether dtype, shape and every bit agree; signed zeros and NaN are bits like any other."""
    return first.dtype == second.dtype and first.shape == second.shape and torch.equal(bits(first), bits(second))


def sha256_of(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 over names, dtypes, shapes and raw bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(bits(tensor).cpu().numpy().tobytes())
    return digest.hexdigest()


def describe_difference(item: str, first: Tensor, second: Tensor) -> Difference | None:
    """Return the first differing element in index order; None if there is none.

    Args:
        item: Name of the tensors.
        first: One side.
        second: The other, on the same device.
    """
    if has_same_bytes(first, second):
        return None
    if first.dtype != second.dtype or first.shape != second.shape:
        kinds = [f"{x.dtype} {tuple(x.shape)}" for x in (first, second)]
        return Difference(f"{item} (dtype and shape)", kinds[0], kinds[1])
    index, num_elements = _differing_positions(first, second)
    place = f"[{', '.join(map(str, index))}]" if index else ""
    return Difference(f"{item}{place}", _show(first, index), _show(second, index), num_elements)


def first_difference(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> Difference | None:
    """Return the first difference between named tensors, in the order of ``first``."""
    for name in [*first, *(name for name in second if name not in first)]:
        if name not in first or name not in second:
            sides = ["present" if name in side else "missing" for side in (first, second)]
            return Difference(name, sides[0], sides[1])
        if found := describe_difference(name, first[name], second[name]):
            return found
    return None


def state_difference(state: TrainState, first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> Difference | None:
    """Return the first difference between two states, with the parameter or statistic in place of a flat position.

    Args:
        state: Says how the flat buffers are laid out.
        first: Tensors by name, as :meth:`TrainState.tensors` returns them.
        second: The other side.
    """
    for name, tensor in first.items():
        if found := describe_difference(name, tensor, second[name]):
            index, _ = _differing_positions(tensor, second[name])
            place = place_in_state(state, name, index[0])
            return Difference(place, found.first, found.second, found.num_elements)
    return None


def place_in_state(state: TrainState, name: str, position: int) -> str:
    """Return in words what lies at a position of a tensor of the state."""
    if name in ("params", "momentum", "ema"):
        return f"{name}: {_element(state.layout.locate(position))}"
    if name == "committed_buffers":
        return f"{name}: {_element(state.buffer_layout.locate(position))}"
    if name != "exchange":
        return name
    if position < state.layout.length:
        return f"gradient: {_element(state.layout.locate(position))}"
    if position == len(state.exchange) - 1:
        return "validity flag"
    return f"statistics: {_element(state.buffer_layout.locate(position - state.layout.length))}"


def _differing_positions(first: Tensor, second: Tensor) -> tuple[tuple[int, ...], int]:
    """Return (index of the first differing element, number of them)."""
    differing = bits(first) != bits(second)
    flat = differing.flatten()
    position = int(flat.to(torch.uint8).argmax())
    index = torch.unravel_index(torch.tensor(position), differing.shape)
    return tuple(int(i) for i in index), int(flat.sum())


def _element(place: tuple[str, tuple[int, ...]]) -> str:
    name, index = place
    return f"{name}[{', '.join(map(str, index))}]" if name else "a gap between two tensors"


def _show(tensor: Tensor, index: tuple[int, ...]) -> str:
    value = tensor.detach()[index].cpu()
    width = 2 * tensor.element_size()
    pattern = int(bits(value)) & (16**width - 1)
    number = float(value) if tensor.is_floating_point() else int(value)
    return f"{number!r} (0x{pattern:0{width}x})"
