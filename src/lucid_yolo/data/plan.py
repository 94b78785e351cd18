"""The plan of a training batch: which source pixels go where, as numbers only.

A plan is a pure function of the seed, the epoch and the sample, so any worker, rank, device or receipt can make or
apply it. Coordinates are continuous: pixel ``i`` covers ``[i, i + 1]``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from lucid_yolo.geometry.letterbox import letterbox
from lucid_yolo.structures import ImageRecord, target_capacity

Affine = tuple[float, float, float, float, float, float]

IDENTITY_MATRIX: Affine = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
IDENTITY_GAINS = (0.0, 1.0, 1.0)

# Rows of a sample's random numbers, eight uniforms each; a new transform takes the next row and moves no other.
MOSAIC, AFFINE, FLIP, COLOR = range(4)
NUM_TRANSFORMS, DRAWS_PER_TRANSFORM = 4, 8
# Last counter word of the generator: what the stream is for.
SAMPLE_STREAM, ORDER_STREAM = range(2)


@dataclass(frozen=True)
class AugmentPolicy:
    """How training images are varied.

    Attributes:
        mosaic: Probability of joining four images.
        close_mosaic: Number of last epochs without mosaic.
        degrees: Largest rotation to either side, in degrees, [0, 180].
        translate: Largest shift to either side, as a fraction of the image size, [0, 1].
        scale: Largest relative change of size to either side, [0, 1).
        shear: Largest shear to either side, per axis, in degrees, [0, 45).
        fliplr: Probability of a left-right flip.
        hsv_h: Largest hue shift to either side, as a fraction of the colour circle, [0, 1].
        hsv_s: Largest relative change of saturation to either side, [0, 1].
        hsv_v: Largest relative change of value to either side, [0, 1].
    """

    mosaic: float = 1.0
    close_mosaic: int = 10
    degrees: float = 0.0
    translate: float = 0.1
    scale: float = 0.5
    shear: float = 0.0
    fliplr: float = 0.5
    hsv_h: float = 0.015
    hsv_s: float = 0.7
    hsv_v: float = 0.4

    def __post_init__(self) -> None:
        if self.close_mosaic < 0:
            raise ValueError(f"close_mosaic: expected a number of epochs >= 0, found {self.close_mosaic}")
        for name in ("mosaic", "translate", "fliplr", "hsv_h", "hsv_s", "hsv_v"):
            self._check(name, getattr(self, name) <= 1, "[0, 1]")
        self._check("degrees", self.degrees <= 180, "[0, 180]")
        self._check("scale", self.scale < 1, "[0, 1)")
        self._check("shear", self.shear < 45, "[0, 45)")

    def _check(self, name: str, is_low_enough: bool, interval: str) -> None:
        value = getattr(self, name)
        if not (value >= 0 and is_low_enough):
            raise ValueError(f"{name}: expected a number in {interval}, found {value}; 0 turns it off")

    @classmethod
    def none(cls) -> AugmentPolicy:
        """Return the policy that changes nothing: every image is letterboxed."""
        zeros: dict[str, Any] = dict.fromkeys((field.name for field in fields(cls)), 0.0)
        return cls(**{**zeros, "close_mosaic": 0})


@dataclass(frozen=True, slots=True)
class Placement:
    """One prepared source image on the canvas.

    Attributes:
        source_index: Position of the source in the split.
        offset_xy_px: Canvas position of the source's top left pixel; may be negative.
        clip_xyxy_px: Canvas rectangle the source fills; placements of a sample never overlap.
    """

    source_index: int
    offset_xy_px: tuple[int, int]
    clip_xyxy_px: tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class SamplePlan:
    """One training image.

    Attributes:
        sample_index: Position in the split of the image the sample stands for.
        placements: One source image, or four for a mosaic.
        canvas_size_px: Side of the square canvas.
        output_size_px: Side of the square result.
        matrix: First two rows of the canvas-to-output affine map, row by row, flip included.
        is_flipped: The map mirrors left and right.
        hsv_gains: Hue shift as a fraction of the circle, saturation factor, value factor.
    """

    sample_index: int
    placements: tuple[Placement, ...]
    canvas_size_px: int
    output_size_px: int
    matrix: Affine = IDENTITY_MATRIX
    is_flipped: bool = False
    hsv_gains: tuple[float, float, float] = IDENTITY_GAINS

    def to_dict(self) -> dict[str, Any]:
        """Return numbers and lists, ready for JSON."""
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        placements = [[p.source_index, list(p.offset_xy_px), list(p.clip_xyxy_px)] for p in self.placements]
        return {**state, "placements": placements, "matrix": list(self.matrix), "hsv_gains": list(self.hsv_gains)}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> SamplePlan:
        """Invert :meth:`to_dict`."""
        placements = tuple(Placement(i, tuple(offset), tuple(clip)) for i, offset, clip in state["placements"])
        matrix, gains = tuple(state["matrix"]), tuple(state["hsv_gains"])
        return cls(**{**state, "placements": placements, "matrix": matrix, "hsv_gains": gains})


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The samples of one rank's batch.

    Attributes:
        batch_index: Batches before this one since the start of the run.
        epoch: Epoch the batch belongs to.
        samples: One plan per image.
        capacity: Padded target count, the same on every rank.
    """

    batch_index: int
    epoch: int
    samples: tuple[SamplePlan, ...]
    capacity: int

    def to_dict(self) -> dict[str, Any]:
        """Return numbers and lists, ready for JSON."""
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**state, "samples": [sample.to_dict() for sample in self.samples]}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> BatchPlan:
        """Invert :meth:`to_dict`."""
        return cls(**{**state, "samples": tuple(SamplePlan.from_dict(sample) for sample in state["samples"])})


def letterbox_plan(sample_index: int, record: ImageRecord, image_size_px: int) -> SamplePlan:
    """Return the plan that letterboxes one image and changes nothing else."""
    placement = _centered(sample_index, _extent(record, image_size_px))
    return SamplePlan(sample_index, (placement,), image_size_px, image_size_px)


class TrainPlanner:
    """Plans every batch of a training run; small enough to be copied to every worker.

    Args:
        records: Images of the training split, at least one.
        image_size_px: Side of the square network input.
        policy: How images are varied.
        batch_size: Images per rank and batch.
        seed: Seed of the run, [0, 2^64).
        num_epochs: Epochs of the run; the last ``policy.close_mosaic`` of them have no mosaic.
        world_size: Number of ranks.
        rank: This rank, [0, world_size).

    Raises:
        ValueError: An argument is out of range.
    """

    def __init__(
        self,
        records: Sequence[ImageRecord],
        image_size_px: int,
        policy: AugmentPolicy,
        batch_size: int,
        seed: int,
        num_epochs: int,
        *,
        world_size: int = 1,
        rank: int = 0,
    ) -> None:
        if not records:
            raise ValueError("records: expected at least one training image, found none")
        for name, value in (("image_size_px", image_size_px), ("batch_size", batch_size), ("num_epochs", num_epochs)):
            if value < 1:
                raise ValueError(f"{name}: expected at least 1, found {value}")
        if not 0 <= rank < world_size:
            raise ValueError(f"rank: expected 0 <= rank < world_size, found rank {rank} of {world_size}")
        if not 0 <= seed < 2**64:
            raise ValueError(f"seed: expected an integer in [0, 2^64), found {seed}")
        self.image_size_px, self.policy, self.seed, self.num_epochs = image_size_px, policy, seed, num_epochs
        self.batch_size, self.world_size, self.rank = batch_size, world_size, rank
        self._extents_px = np.array([_extent(record, image_size_px) for record in records])
        self._num_rows = np.array([record.num_label_rows for record in records])
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0, np.int64))

    @property
    def num_samples(self) -> int:
        """Images in the training split."""
        return len(self._num_rows)

    @property
    def batches_per_epoch(self) -> int:
        """Batches every rank gets in one epoch."""
        return -(-self.num_samples // (self.batch_size * self.world_size))

    def is_mosaic_open(self, epoch: int) -> bool:
        """True when samples of ``epoch`` may be mosaics."""
        return epoch < self.num_epochs - self.policy.close_mosaic

    def plan(self, batch_index: int) -> BatchPlan:
        """Plan this rank's part of a global batch.

        Args:
            batch_index: Batches before this one since the start of the run.
        """
        epoch, index = divmod(batch_index, self.batches_per_epoch)
        order, global_size = self._epoch_order(epoch), self.batch_size * self.world_size
        samples, capacity_rows, local_start = [], 0, self.rank * self.batch_size
        for row in range(global_size):
            visit, position = divmod(index * global_size + row, self.num_samples)
            draws = sample_draws(self.seed, epoch, int(order[position]), visit)
            sources = self._sources(int(order[position]), epoch, draws[MOSAIC])
            capacity_rows = max(capacity_rows, int(self._num_rows[list(sources)].sum()))
            if local_start <= row < local_start + self.batch_size:
                samples.append(self._sample(sources, draws))
        return BatchPlan(batch_index, epoch, tuple(samples), target_capacity(capacity_rows))

    def _epoch_order(self, epoch: int) -> np.ndarray:
        if self._order[0] != epoch:
            keys = _generator(self.seed, epoch, 0, 0, ORDER_STREAM).random_raw(self.num_samples)
            self._order = (epoch, np.argsort(keys, kind="stable"))
        return self._order[1]

    def _sources(self, sample_index: int, epoch: int, draws: list[float]) -> tuple[int, ...]:
        if not self.is_mosaic_open(epoch) or draws[0] >= self.policy.mosaic:
            return (sample_index,)
        return (sample_index, *(int(draw * self.num_samples) for draw in draws[3:6]))

    def _sample(self, sources: tuple[int, ...], draws: list[list[float]]) -> SamplePlan:
        size, policy = self.image_size_px, self.policy
        canvas_size = size if len(sources) == 1 else 2 * size
        is_flipped = draws[FLIP][0] < policy.fliplr
        return SamplePlan(
            sample_index=sources[0],
            placements=self._placements(sources, draws[MOSAIC]),
            canvas_size_px=canvas_size,
            output_size_px=size,
            matrix=_affine(policy, draws[AFFINE], canvas_size, size, is_flipped),
            is_flipped=is_flipped,
            hsv_gains=_hsv_gains(policy, draws[COLOR]),
        )

    def _placements(self, sources: tuple[int, ...], draws: list[float]) -> tuple[Placement, ...]:
        extents = self._extents_px[list(sources)].tolist()
        if len(sources) == 1:
            return (_centered(sources[0], extents[0]),)
        center_x, center_y = (int(self.image_size_px * (0.5 + draw)) for draw in draws[1:3])
        limit = 2 * self.image_size_px
        placements = []
        for quadrant, (source, (_, _, width, height)) in enumerate(zip(sources, extents, strict=True)):
            x = center_x if quadrant % 2 else center_x - width
            y = center_y if quadrant >= 2 else center_y - height
            clip = (max(x, 0), max(y, 0), min(x + width, limit), min(y + height, limit))
            placements.append(Placement(source, (x, y), clip))
        return tuple(placements)


def sample_draws(seed: int, epoch: int, sample_index: int, visit: int = 0) -> list[list[float]]:
    """Return the uniforms in [0, 1) of one sample, a row of eight per transform.

    Args:
        seed: Seed of the run.
        epoch: Epoch, at least 0.
        sample_index: Position in the split.
        visit: Earlier uses of the sample in the same epoch; above 0 only where the last batch wraps.
    """
    raw = _generator(seed, epoch, sample_index, visit, SAMPLE_STREAM).random_raw(NUM_TRANSFORMS * DRAWS_PER_TRANSFORM)
    rows: list[list[float]] = ((raw >> np.uint64(11)) * 2.0**-53).reshape(NUM_TRANSFORMS, -1).tolist()
    return rows


def _generator(seed: int, epoch: int, sample_index: int, visit: int, stream: int) -> np.random.Philox:
    key, counter = np.array([seed, epoch], np.uint64), np.array([0, visit, sample_index, stream], np.uint64)
    return np.random.Philox(key=key, counter=counter)


def _extent(record: ImageRecord, image_size_px: int) -> tuple[int, int, int, int]:
    box = letterbox(record.height_src, record.width_src, image_size_px)
    return box.left_px, box.top_px, box.width_px, box.height_px


def _centered(source_index: int, extent_xywh_px: Sequence[int]) -> Placement:
    left, top, width, height = extent_xywh_px
    return Placement(source_index, (left, top), (left, top, left + width, top + height))


def _affine(policy: AugmentPolicy, draws: list[float], canvas_size: int, size: int, is_flipped: bool) -> Affine:
    """Scale, shear and rotate about the canvas centre, move it to the output centre, shift, then flip."""
    scale_draw, angle_draw, shear_x_draw, shear_y_draw, shift_x_draw, shift_y_draw = (2 * u - 1 for u in draws[:6])
    scale, angle = 1 + policy.scale * scale_draw, math.radians(policy.degrees * angle_draw)
    shear_x, shear_y = (math.tan(math.radians(policy.shear * draw)) for draw in (shear_x_draw, shear_y_draw))
    cos, sin = scale * math.cos(angle), scale * math.sin(angle)
    xx, xy, yx, yy = cos - sin * shear_y, cos * shear_x - sin, sin + cos * shear_y, sin * shear_x + cos
    center = canvas_size / 2
    shift_x = size * (0.5 + policy.translate * shift_x_draw) - (xx + xy) * center
    shift_y = size * (0.5 + policy.translate * shift_y_draw) - (yx + yy) * center
    if is_flipped:
        xx, xy, shift_x = -xx, -xy, size - shift_x
    return xx, xy, shift_x, yx, yy, shift_y


def _hsv_gains(policy: AugmentPolicy, draws: list[float]) -> tuple[float, float, float]:
    hue, saturation, value = (2 * u - 1 for u in draws[:3])
    return policy.hsv_h * hue, 1 + policy.hsv_s * saturation, 1 + policy.hsv_v * value
