"""How training images are varied: the numbers a user may choose."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

PasteMode = Literal["flip", "mixup"]

_FRACTIONS = (
    "mosaic",
    "translate",
    "fliplr",
    "flipud",
    "hsv_h",
    "hsv_s",
    "hsv_v",
    "bgr",
    "mixup",
    "cutmix",
    "copy_paste",
)


@dataclass(frozen=True)
class AugmentPolicy:
    """How training images are varied.

    Attributes:
        mosaic: Probability of joining four images.
        close_mosaic: Number of last epochs in which images are not joined: no mosaic, mix-up, cut-mix or copy-paste.
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
        copy_paste: Probability, for each object with an outline by itself, of trying to paste it once more; it is
            pasted where it covers less than 0.3 of the box of every object there. Objects with only a box stay as
            they are.
        copy_paste_mode: Where the objects come from: ``"flip"``, the sample mirrored left and right, or ``"mixup"``, a
            second sample.
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
    copy_paste: float = 0.0
    copy_paste_mode: PasteMode = "flip"

    def __post_init__(self) -> None:
        if self.close_mosaic < 0:
            raise ValueError(f"close_mosaic: expected a number of epochs >= 0, found {self.close_mosaic}")
        if self.copy_paste_mode not in get_args(PasteMode):
            modes = ", ".join(get_args(PasteMode))
            raise ValueError(f"copy_paste_mode: expected one of {modes}, found {self.copy_paste_mode!r}")
        for name in _FRACTIONS:
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
        zeros: dict[str, Any] = {field.name: 0.0 for field in fields(cls) if field.name != "copy_paste_mode"}
        return cls(**{**zeros, "close_mosaic": 0})
