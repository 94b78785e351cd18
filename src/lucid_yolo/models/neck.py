"""Neck: a top-down and a bottom-up pass over three maps, with one attention unit at the coarsest.

Source: arXiv:2602.14582; arXiv:2606.03748 Sec. 4.2 (the attention unit).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from lucid_yolo.models.blocks import C3k2, ConvNormAct
from lucid_yolo.models.scales import Scale


class Neck(nn.Module):
    """Fuses the backbone maps.

    Args:
        scale: Widths and repeats.
        in_channels: Channels of the backbone maps, finest first.

    Attributes:
        out_channels: Channels of the three returned maps.
    """

    def __init__(self, scale: Scale, in_channels: tuple[int, int, int]) -> None:
        super().__init__()
        p3, p4, p5 = in_channels
        c256, c512, c1024 = (scale.channels(base) for base in (256, 512, 1024))
        repeats = scale.repeats
        self.top4 = C3k2(p5 + p4, c512, "c3k", repeats)
        self.out3 = C3k2(c512 + p3, c256, "c3k", repeats)
        self.down3 = ConvNormAct(c256, c256, 3, 2)
        self.out4 = C3k2(c256 + c512, c512, "c3k", repeats)
        self.down4 = ConvNormAct(c512, c512, 3, 2)
        self.out5 = C3k2(c512 + p5, c1024, "attention", 1)
        self.out_channels = (c256, c512, c1024)

    def forward(
        self, maps: tuple[Float[Tensor, "B _ _ _"], Float[Tensor, "B _ _ _"], Float[Tensor, "B _ _ _"]]
    ) -> tuple[Float[Tensor, "B _ _ _"], Float[Tensor, "B _ _ _"], Float[Tensor, "B _ _ _"]]:
        """Return the fused maps at strides 8, 16 and 32."""
        p3, p4, p5 = maps
        t4 = self.top4(torch.cat((_double(p5), p4), 1))
        n3 = self.out3(torch.cat((_double(t4), p3), 1))
        n4 = self.out4(torch.cat((self.down3(n3), t4), 1))
        n5 = self.out5(torch.cat((self.down4(n4), p5), 1))
        return n3, n4, n5


def _double(x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H2 W2"]:
    return F.interpolate(x, scale_factor=2.0, mode="nearest")
