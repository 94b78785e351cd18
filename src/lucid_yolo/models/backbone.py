"""Backbone: image to three feature maps at strides 8, 16, 32. Source: arXiv:2602.14582."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from lucid_yolo.models.blocks import C2PSA, SPPF, C3k2, ConvNormAct, UnitKind
from lucid_yolo.models.scales import Scale


class Backbone(nn.Module):
    """Five stride-2 stages; the last ends in pooling and attention.

    Attributes:
        out_channels: Channels of the three returned maps.
    """

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        c64, c128, c256, c512, c1024 = (scale.channels(base) for base in (64, 128, 256, 512, 1024))
        shallow: UnitKind = "c3k" if scale.has_deep_shallow_stages else "bottleneck"
        repeats = scale.repeats
        self.stem = nn.Sequential(
            ConvNormAct(3, c64, 3, 2),
            ConvNormAct(c64, c128, 3, 2),
            C3k2(c128, c256, shallow, repeats, expansion=0.25),
        )
        self.stage3 = nn.Sequential(ConvNormAct(c256, c256, 3, 2), C3k2(c256, c512, shallow, repeats, expansion=0.25))
        self.stage4 = nn.Sequential(ConvNormAct(c512, c512, 3, 2), C3k2(c512, c512, "c3k", repeats))
        self.stage5 = nn.Sequential(
            ConvNormAct(c512, c1024, 3, 2),
            C3k2(c1024, c1024, "c3k", repeats),
            SPPF(c1024),
            C2PSA(c1024, repeats),
        )
        self.out_channels = (c512, c512, c1024)

    def forward(
        self, images: Float[Tensor, "B 3 H W"]
    ) -> tuple[Float[Tensor, "B _ _ _"], Float[Tensor, "B _ _ _"], Float[Tensor, "B _ _ _"]]:
        """Return the maps at strides 8, 16 and 32."""
        p3 = self.stage3(self.stem(images))
        p4 = self.stage4(p3)
        return p3, p4, self.stage5(p4)
