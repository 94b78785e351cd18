"""Starting from trained weights: which tensors are taken over when the classes differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from lucid_yolo.models.head import OutputConv
from lucid_yolo.models.network import Network
from lucid_yolo.runtime.checkpoint_file import ModelMeta
from lucid_yolo.runtime.detector import read_network

CLASS_STEM = ".stems.class."
MAX_NAMES = 8


@dataclass(frozen=True)
class Weights:
    """Trained weights without the run that they come from.

    Attributes:
        meta: What the network is.
        tensors: Averaged parameters and batch-norm statistics by their name in the network.
    """

    meta: ModelMeta
    tensors: dict[str, Tensor]


@dataclass(frozen=True)
class Transfer:
    """What became of a network's initial values.

    Attributes:
        sources: Row of the weights' class for each of the network's; None for a class that begins anew.
        fresh: Names of tensors that begin anew, in whole or in some rows.
        line: One line for the user.
    """

    sources: tuple[int | None, ...]
    fresh: frozenset[str]
    line: str


def read_start_weights(path: str | Path) -> Weights:
    """Read the averaged weights of a checkpoint or of an exported ``.safetensors`` file.

    Raises:
        FileNotFoundError: No such file.
        ValueError: It was not written by this package.
    """
    network, meta = read_network(path)
    return Weights(meta, network.state_dict())


def match_classes(names: Sequence[str], known: Sequence[str]) -> tuple[int | None, ...]:
    """Return for each name the position of the same name in ``known``, exactly or else up to case; None if absent.

    Args:
        names: Classes of the data set.
        known: Classes of the weights.
    """
    exact = {name: index for index, name in reversed(list(enumerate(known)))}
    folded = {name.casefold(): index for index, name in reversed(list(enumerate(known)))}
    return tuple(exact.get(name, folded.get(name.casefold())) for name in names)


@torch.no_grad()
def transfer_weights(network: Network, meta: ModelMeta, weights: Weights, source: str) -> Transfer:
    """Copy trained weights into a freshly initialised network.

    The last layers of the class stems keep their initial values, but for rows of classes that both know. At scale n
    the hidden width of the class stems follows the number of classes; where it differs they begin anew as well.

    Args:
        network: Changed in place.
        meta: What it is.
        weights: Where the values come from.
        source: Their name, for messages.

    Raises:
        ValueError: The weights are of another task or scale, or of another structure.
    """
    for kind in ("task", "variant"):
        found, expected = getattr(weights.meta, kind), getattr(meta, kind)
        if found != expected:
            raise ValueError(f"weights {source}: its {kind} is {found}, the configuration asks for {expected}")
    own, trained = network.state_dict(), weights.tensors
    if unknown := sorted(trained.keys() ^ own.keys()):
        raise ValueError(f"weights {source}: tensors missing or unknown: {', '.join(unknown[:MAX_NAMES])}")
    outputs = _class_outputs(network)
    sources = match_classes(meta.class_map.names, weights.meta.class_map.names)
    if any(own[name].shape[1:] != trained[name].shape[1:] for name in outputs):
        sources = (None,) * len(sources)  # rows of a layer over other hidden channels mean nothing
    fresh = set()
    for name, value in own.items():
        if name in outputs:
            _copy_rows(value, trained[name], sources)
            fresh |= {name} if None in sources else set()
        elif trained[name].shape == value.shape:
            value.copy_(trained[name])
        elif CLASS_STEM in name:
            fresh.add(name)
        else:
            shapes = tuple(value.shape), tuple(trained[name].shape)
            raise ValueError(f"weights {source}: expected shape {shapes[0]} of {name}, found {shapes[1]}")
    line = _describe(meta, weights.meta, sources, bool(fresh - outputs))
    return Transfer(sources, frozenset(fresh), f"weights {source}: {line}")


def _class_outputs(network: Network) -> frozenset[str]:
    """Return the names of weights and biases that have one row per class."""
    return frozenset(
        f"{owner}.{name}"
        for owner, module in network.named_modules()
        if isinstance(module, OutputConv) and CLASS_STEM in owner
        for name, _ in module.named_parameters()
    )


def _copy_rows(target: Tensor, source: Tensor, sources: Sequence[int | None]) -> None:
    for row, start in enumerate(sources):
        if start is not None:
            target[row].copy_(source[start])


def _describe(meta: ModelMeta, trained: ModelMeta, sources: Sequence[int | None], has_fresh_stems: bool) -> str:
    names, known = meta.class_map.names, trained.class_map.names
    taken = [
        name if name == known[start] else f"{name} from {known[start]}"
        for name, start in zip(names, sources, strict=True)
        if start is not None
    ]
    anew = [name for name, start in zip(names, sources, strict=True) if start is None]
    parts = [f"{meta.task}, scale {meta.variant}, trained at {trained.image_size_px} px on {len(known)} classes"]
    parts.append(f"{len(taken)} of {len(names)} classes taken over{_listed(taken)}")
    if anew:
        parts.append(f"{len(anew)} begin anew{_listed(anew)}")
    if has_fresh_stems:
        parts.append("the class stems begin anew too, their width follows the number of classes")
    return "; ".join([*parts, "everything else is copied"])


def _listed(names: Sequence[str]) -> str:
    rest = ", ..." if len(names) > MAX_NAMES else ""
    return f" ({', '.join(names[:MAX_NAMES])}{rest})" if names else ""
