"""The five model scales.

Source: arXiv:2602.14582 Fig. 1 (depth and width multiples), confirmed by the published parameter totals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Variant = Literal["n", "s", "m", "l", "x"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)
STRIDES = (8, 16, 32)


@dataclass(frozen=True)
class Scale:
    """Multipliers of one scale.

    Attributes:
        depth: Multiplies the repeats of a stage.
        width: Multiplies its channels.
        max_channels: Cap on the base channels before ``width``.
        has_deep_shallow_stages: Whether the two stride-4 and stride-8 stages use nested C3k units.
    """

    depth: float
    width: float
    max_channels: int
    has_deep_shallow_stages: bool

    def channels(self, base: int) -> int:
        """Return the channel count of a layer with ``base`` channels."""
        return int(min(base, self.max_channels) * self.width)

    @property
    def repeats(self) -> int:
        """Inner units per stage."""
        return max(1, round(2 * self.depth))


SCALES: dict[Variant, Scale] = {
    "n": Scale(0.50, 0.25, 1024, has_deep_shallow_stages=False),
    "s": Scale(0.50, 0.50, 1024, has_deep_shallow_stages=False),
    "m": Scale(0.50, 1.00, 512, has_deep_shallow_stages=True),
    "l": Scale(1.00, 1.00, 512, has_deep_shallow_stages=True),
    "x": Scale(1.00, 1.50, 512, has_deep_shallow_stages=True),
}
