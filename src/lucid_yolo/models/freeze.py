"""What a freeze names: the first layers of the backbone by number, or parts by the beginning of their names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from torch import nn

from lucid_yolo.models.blocks import BatchNorm2d
from lucid_yolo.models.network import Network

CONTAINERS = frozenset({"branches", "stems"})
"""Parts of a name that users may leave out: ``head.one_to_many`` is ``head.branches.one_to_many``."""


def frozen_parameters(network: Network, freeze: int | str | Sequence[str]) -> frozenset[str]:
    """Return the names of the parameters that ``freeze`` means.

    Args:
        network: The network.
        freeze: So many of the backbone's layers, counted from the image (11 are all of it), or one or more beginnings
            of names: ``backbone``, ``backbone.stage3``, ``neck``, ``head.one_to_many``.

    Raises:
        ValueError: A number out of range, a name that fits nothing, or nothing would be left to train.
    """
    if isinstance(freeze, int):
        freeze = _layer_names(network, freeze)
    prefixes = [freeze] if isinstance(freeze, str) else freeze
    parameters = [name for name, _ in network.named_parameters()]
    frozen: set[str] = set()
    for prefix in prefixes:
        found = {name for name in parameters if _begins(name, prefix) or _begins(_short(name), prefix)}
        if not found:
            raise ValueError(f"freeze: found no part {prefix!r}; parts are {', '.join(_part_names(parameters))}")
        frozen |= found
    if len(frozen) == len(parameters):
        raise ValueError("freeze: expected something left to train, found every parameter frozen")
    return frozenset(frozen)


def freeze_parameters(network: Network, frozen: Iterable[str]) -> None:
    """Give the named parameters no gradient, all others one; layers with only frozen ones keep their statistics.

    Args:
        network: Changed in place.
        frozen: Names of parameters.
    """
    names = set(frozen)
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name not in names)
    for module in network.modules():
        if isinstance(module, BatchNorm2d):
            module.is_frozen = not any(p.requires_grad for p in module.parameters())


def kept_statistics(network: Network) -> frozenset[str]:
    """Return the names of the buffers that frozen layers own."""
    return frozenset(
        f"{owner}.{name}"
        for owner, module in network.named_modules()
        if isinstance(module, BatchNorm2d) and module.is_frozen
        for name, _ in module.named_buffers()
    )


def backbone_layers(network: Network) -> list[str]:
    """Return the names of the backbone's layers in the order in which an image passes them."""
    return [
        f"backbone.{stage}.{index}"
        for stage, layers in network.backbone.named_children()
        if isinstance(layers, nn.Sequential)
        for index in range(len(layers))
    ]


def _layer_names(network: Network, count: int) -> list[str]:
    layers = backbone_layers(network)
    if not 0 <= count <= len(layers):
        raise ValueError(
            f"freeze: expected 0 to {len(layers)} layers of the backbone, found {count}; name parts to freeze others"
        )
    return layers[:count]


def _begins(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def _short(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in CONTAINERS)


def _part_names(parameters: Sequence[str]) -> list[str]:
    """Return the parts of the first two levels, as users may write them."""
    parts = [list(accumulate(_short(name).split(".")[:2], lambda a, b: f"{a}.{b}")) for name in parameters]
    return sorted({part for levels in parts for part in levels})
