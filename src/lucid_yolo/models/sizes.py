"""Parameter and operation counts, by the paper's conventions.

Deployed figures are of the fused one-branch network. One multiply-add counts as two operations. The paper counts
convolutions only; newer tables add the two matrix products of attention, so both are given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from lucid_yolo.models.blocks import Attention
from lucid_yolo.models.network import Network, count_parameters, fuse, on_meta


@dataclass(frozen=True)
class NetworkSize:
    """Counts of one network.

    Attributes:
        train_parameters: Parameters in training, both branches.
        deploy_parameters: Parameters of the fused one-branch network.
        conv_gflops: Convolution operations of the deployed network, 10^9.
        total_gflops: The same with the matrix products of attention.
    """

    train_parameters: int
    deploy_parameters: int
    conv_gflops: float
    total_gflops: float

    def to_dict(self) -> dict[str, int | float]:
        """Return plain numbers."""
        return asdict(self)


def measure_size(build: Callable[[], Network], image_size_px: int = 640) -> NetworkSize:
    """Count parameters and operations without allocating the network.

    Args:
        build: Makes the network.
        image_size_px: Side of the square input.
    """
    network = on_meta(build)
    deployed = fuse(network)
    conv, attention = _count_flops(deployed, image_size_px, ("one_to_one",))
    return NetworkSize(count_parameters(network), count_parameters(deployed), conv / 1e9, (conv + attention) / 1e9)


def _count_flops(network: Network, image_size_px: int, branches: Sequence[str]) -> tuple[int, int]:
    conv = attention = 0

    def count_conv(module: nn.Module, _: object, output: Tensor) -> None:
        nonlocal conv
        assert isinstance(module, nn.Conv2d)
        positions = output.numel() // module.out_channels
        conv += 2 * positions * module.weight.numel()

    def count_attention(module: nn.Module, _: object, output: Tensor) -> None:
        nonlocal attention
        assert isinstance(module, Attention)
        positions = output.shape[2] * output.shape[3]
        attention += 2 * positions * positions * module.num_heads * (module.key_dim + module.head_dim)

    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(count_conv)
        elif isinstance(module, Attention):
            module.register_forward_hook(count_attention)
    with torch.no_grad():
        network(torch.zeros(1, 3, image_size_px, image_size_px, device="meta"), branches)
    return conv, attention
