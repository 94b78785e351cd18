"""How training images are varied: the numbers a user may choose."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class AugmentPolicy:
    """How training images are varied.

    Attributes:
        mosaic: Probability of joining four images.
        close_mosaic: Number of last epochs in which images are not joined: no mosaic, mix-up or cut-mix.
        degrees: Largest rotation to either side, in degrees, [0, 180].
        translate: Largest shift to either side, as a fraction of the image size, [0, 1].
        scale: Largest relative change of size to either side, [0, 1).
        shear: Largest shear to either side, per axis, in degrees, [0, 45).
        perspective: Largest relative change of depth from the centre to an edge, per axis, [0, 0.25].
        fliplr: Probability of a left-right flip.
        flipud: Probability of an upside-down flip.
        hsv_h: Largest hue shift to either side, as a fraction of the colour circle, [0, 1].
        hsv_s: Largest relative change of saturation to either side, [0, 1].
        hsv_v: Largest relative change of value to either side, [0, 1].
        bgr: Probability of swapping red and blue.
        mixup: Probability of blending with a second sample; both keep their labels.
        cutmix: Probability of trying to paste a rectangle of a second sample where no object is.
    """

    mosaic: float = 1.0
    close_mosaic: int = 10
    degrees: float = 0.0
    translate: float = 0.1
    scale: float = 0.5
    shear: float = 0.0
    perspective: float = 0.0
    fliplr: float = 0.5
    flipud: float = 0.0
    hsv_h: float = 0.015
    hsv_s: float = 0.7
    hsv_v: float = 0.4
    bgr: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0

    def __post_init__(self) -> None:
        if self.close_mosaic < 0:
            raise ValueError(f"close_mosaic: expected a number of epochs >= 0, found {self.close_mosaic}")
        for name in ("mosaic", "translate", "fliplr", "flipud", "hsv_h", "hsv_s", "hsv_v", "bgr", "mixup", "cutmix"):
            self._check(name, getattr(self, name) <= 1, "[0, 1]")
        self._check("degrees", self.degrees <= 180, "[0, 180]")
        self._check("scale", self.scale < 1, "[0, 1)")
        self._check("shear", self.shear < 45, "[0, 45)")
        self._check("perspective", self.perspective <= 0.25, "[0, 0.25]")

    def _check(self, name: str, is_low_enough: bool, interval: str) -> None:
        value = getattr(self, name)
        if not (value >= 0 and is_low_enough):
            raise ValueError(f"{name}: expected a number in {interval}, found {value}; 0 turns it off")

    @classmethod
    def none(cls) -> AugmentPolicy:
        """Return the policy that changes nothing: every image is letterboxed."""
        zeros: dict[str, Any] = dict.fromkeys((field.name for field in fields(cls)), 0.0)
        return cls(**{**zeros, "close_mosaic": 0})
