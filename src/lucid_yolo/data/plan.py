"""The plan of a training batch: which source pixels go where, as numbers only.

A plan is a pure function of the seed, the epoch and the sample, so any worker, rank, device or receipt can make or
apply it. Coordinates are continuous: pixel ``i`` covers ``[i, i + 1]``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import compress
from typing import Any

import numpy as np

from lucid_yolo.data.draws import (
    AFFINE,
    COLOR,
    CUT,
    CUT_STREAM,
    FLIP,
    MIX,
    MIX_STREAM,
    MOSAIC,
    PASTE,
    PASTE_STREAM,
    mix_share,
    object_draws,
)
from lucid_yolo.data.draws import sample_draws as sample_draws
from lucid_yolo.data.outlined import OutlinedObjects
from lucid_yolo.data.policy import AugmentPolicy as AugmentPolicy
from lucid_yolo.data.sampling import EpochOrder, Sampling, epoch_order, sampling_weights
from lucid_yolo.data.transforms import Affine as Affine
from lucid_yolo.data.transforms import canvas_to_output, cut_region, hsv_gains
from lucid_yolo.geometry.letterbox import letterbox
from lucid_yolo.structures import ImageRecord, target_capacity

Draws = list[list[float]]

IDENTITY_MATRIX: Affine = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
IDENTITY_GAINS = (0.0, 1.0, 1.0)


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
    """One training image: sources joined, warped, objects pasted, a region pasted, blended, coloured, in this order.

    Attributes:
        sample_index: Position in the split of the image the sample stands for.
        placements: One source image, or four for a mosaic.
        canvas_size_px: Side of the square canvas.
        output_size_px: Side of the square result.
        matrix: First two rows of the canvas-to-output map, row by row, flips included.
        perspective: First two entries of the map's third row, whose last is 1; zero for an affine map.
        is_flipped: The map mirrors left and right.
        is_flipped_ud: The map mirrors top and bottom.
        hsv_gains: Hue shift as a fraction of the circle, saturation factor, value factor.
        is_bgr: Red and blue are swapped after the gains.
        paste: Objects pasted once more where they cover little of others.
        cut: Region of a second sample, pasted where it covers no object.
        mix: Second sample blended with this one.
    """

    sample_index: int
    placements: tuple[Placement, ...]
    canvas_size_px: int
    output_size_px: int
    matrix: Affine = IDENTITY_MATRIX
    perspective: tuple[float, float] = (0.0, 0.0)
    is_flipped: bool = False
    is_flipped_ud: bool = False
    hsv_gains: tuple[float, float, float] = IDENTITY_GAINS
    is_bgr: bool = False
    paste: CopyPaste | None = None
    cut: CutMix | None = None
    mix: MixUp | None = None

    @property
    def source_indices(self) -> tuple[int, ...]:
        """Positions in the split of every image that the sample is made of, partners included."""
        own = tuple(placement.source_index for placement in self.placements)
        partners = [part.partner for part in (self.paste, self.cut, self.mix) if part is not None]
        return sum((partner.source_indices for partner in partners if partner is not None), own)

    def to_dict(self) -> dict[str, Any]:
        """Return numbers and lists, ready for JSON."""
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        placements = [[p.source_index, list(p.offset_xy_px), list(p.clip_xyxy_px)] for p in self.placements]
        lists = {name: list(state[name]) for name in ("matrix", "perspective", "hsv_gains")}
        paste = self.paste and {
            "partner": self.paste.partner and self.paste.partner.to_dict(),
            "objects": [list(pair) for pair in self.paste.objects],
        }
        cut = self.cut and [self.cut.partner.to_dict(), list(self.cut.region_xyxy_px)]
        mix = self.mix and [self.mix.partner.to_dict(), self.mix.share]
        return {**state, **lists, "placements": placements, "paste": paste, "cut": cut, "mix": mix}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> SamplePlan:
        """Invert :meth:`to_dict`."""
        placements = tuple(Placement(i, tuple(offset), tuple(clip)) for i, offset, clip in state["placements"])
        tuples = {name: tuple(state[name]) for name in ("matrix", "perspective", "hsv_gains")}
        paste = state["paste"] and CopyPaste(
            state["paste"]["partner"] and cls.from_dict(state["paste"]["partner"]),
            tuple((placement, row) for placement, row in state["paste"]["objects"]),
        )
        cut = state["cut"] and CutMix(cls.from_dict(state["cut"][0]), tuple(state["cut"][1]))
        mix = state["mix"] and MixUp(cls.from_dict(state["mix"][0]), state["mix"][1])
        return cls(**{**state, **tuples, "placements": placements, "paste": paste, "cut": cut, "mix": mix})


@dataclass(frozen=True, slots=True)
class CopyPaste:
    """Objects with outlines, pasted where each covers less than 0.3 of every box there.

    Attributes:
        partner: The sample they come from, without colour changes and partners of its own; None for the sample itself,
            mirrored left and right.
        objects: (placement, row): position among the partner's placements, and in the record of its source.
    """

    partner: SamplePlan | None
    objects: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class CutMix:
    """A rectangle of another sample; it is pasted only when it touches no box of the sample it goes to.

    Attributes:
        partner: The other sample, without colour changes and partners of its own.
        region_xyxy_px: Rectangle of the output, the same in both samples; may be empty.
    """

    partner: SamplePlan
    region_xyxy_px: tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class MixUp:
    """A second sample seen through the first; the labels of both count in full.

    Attributes:
        partner: The other sample, without colour changes and partners of its own.
        share: Weight of the first sample's pixels, (0, 1).
    """

    partner: SamplePlan
    share: float


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
        num_epochs: Epochs of the run; the last ``policy.close_mosaic`` of them join no images.
        world_size: Number of ranks.
        rank: This rank, [0, world_size).
        sampling: Which images an epoch shows: ``"uniform"`` every image once, ``"balanced"`` every class equally
            often, ``"repeat_factor"`` images of rare classes more often. An epoch's length is always the same.
        repeat_threshold: With ``"repeat_factor"``, fraction of images below which a class counts as rare, (0, 1].

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
        sampling: Sampling = "uniform",
        repeat_threshold: float = 0.001,
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
        self._weights = sampling_weights(records, sampling, repeat_threshold)
        outlined = OutlinedObjects(records if policy.copy_paste else ())
        self._outlined = outlined if len(outlined) else None
        self._last_order: tuple[int, EpochOrder] | None = None

    @property
    def num_samples(self) -> int:
        """Images in the training split, and samples in an epoch."""
        return len(self._num_rows)

    @property
    def batches_per_epoch(self) -> int:
        """Batches every rank gets in one epoch."""
        return -(-self.num_samples // (self.batch_size * self.world_size))

    def is_mosaic_open(self, epoch: int) -> bool:
        """True when samples of ``epoch`` may join several images."""
        return epoch < self.num_epochs - self.policy.close_mosaic

    def plan(self, batch_index: int) -> BatchPlan:
        """Plan this rank's part of a global batch.

        Args:
            batch_index: Batches before this one since the start of the run.
        """
        epoch, index = divmod(batch_index, self.batches_per_epoch)
        start, local_start = index * self.batch_size * self.world_size, self.rank * self.batch_size
        drafts = [self._draft(epoch, start + row) for row in range(self.batch_size * self.world_size)]
        capacity = target_capacity(max(self._count_rows(draft) for draft in drafts))
        samples = tuple(self._sample(draft) for draft in drafts[local_start : local_start + self.batch_size])
        return BatchPlan(batch_index, epoch, samples, capacity)

    def _count_rows(self, draft: _Draft) -> int:
        return int(self._num_rows[list(draft.all_sources)].sum()) + len(draft.objects)

    def _order(self, epoch: int) -> EpochOrder:
        if self._last_order is None or self._last_order[0] != epoch:
            self._last_order = (epoch, epoch_order(self.seed, epoch, self.num_samples, self._weights))
        return self._last_order[1]

    def _draft(self, epoch: int, row: int) -> _Draft:
        order, policy = self._order(epoch), self.policy
        wraps, position = divmod(row, self.num_samples)
        sample_index = int(order.order[position])
        key = (self.seed, epoch, sample_index, int(wraps * order.num_uses[position] + order.earlier_uses[position]))
        draws = sample_draws(*key)
        if not self.is_mosaic_open(epoch):
            return _Draft((sample_index,), draws)
        cut = mix = None
        if draws[CUT][0] < policy.cutmix:
            cut = self._joined(order.pool, self._pick(order.pool, draws[CUT][1]), sample_draws(*key, CUT_STREAM))
        if draws[MIX][0] < policy.mixup:
            mix = self._joined(order.pool, self._pick(order.pool, draws[MIX][1]), sample_draws(*key, MIX_STREAM))
        own = self._joined(order.pool, sample_index, draws)
        draft = _Draft(own.sources, draws, cut, mix, mix_share(*key) if mix else 1.0)
        return draft if self._outlined is None else self._pasted(draft, order.pool, key)

    def _pasted(self, draft: _Draft, pool: np.ndarray, key: tuple[int, int, int, int]) -> _Draft:
        assert self._outlined is not None
        partner = None
        if self.policy.copy_paste_mode == "mixup":
            partner = self._joined(pool, self._pick(pool, draft.draws[PASTE][0]), sample_draws(*key, PASTE_STREAM))
        objects = self._outlined.of(draft.sources if partner is None else partner.sources)
        is_picked = object_draws(*key, len(objects)) < self.policy.copy_paste
        return replace(draft, paste=partner, objects=tuple(compress(objects, is_picked)))

    def _joined(self, pool: np.ndarray, sample_index: int, draws: Draws) -> _Draft:
        if draws[MOSAIC][0] >= self.policy.mosaic:
            return _Draft((sample_index,), draws)
        return _Draft((sample_index, *(self._pick(pool, draw) for draw in draws[MOSAIC][3:6])), draws)

    @staticmethod
    def _pick(pool: np.ndarray, draw: float) -> int:
        return int(pool[int(draw * len(pool))])

    def _sample(self, draft: _Draft) -> SamplePlan:
        plan, size, draws = self._uncolored(draft), self.image_size_px, draft.draws
        paste = None
        if draft.objects:
            paste = CopyPaste(None if draft.paste is None else self._uncolored(draft.paste), draft.objects)
        cut = None if draft.cut is None else CutMix(self._uncolored(draft.cut), cut_region(draws[CUT], size))
        mix = None if draft.mix is None else MixUp(self._uncolored(draft.mix), draft.share)
        gains, is_bgr = hsv_gains(self.policy, draws[COLOR]), draws[COLOR][3] < self.policy.bgr
        return replace(plan, hsv_gains=gains, is_bgr=is_bgr, paste=paste, cut=cut, mix=mix)

    def _uncolored(self, draft: _Draft) -> SamplePlan:
        size, policy, draws = self.image_size_px, self.policy, draft.draws
        canvas_size = size if len(draft.sources) == 1 else 2 * size
        flips = (draws[FLIP][0] < policy.fliplr, draws[FLIP][1] < policy.flipud)
        matrix, perspective = canvas_to_output(policy, draws[AFFINE], canvas_size, size, flips)
        return SamplePlan(
            sample_index=draft.sources[0],
            placements=self._placements(draft.sources, draws[MOSAIC]),
            canvas_size_px=canvas_size,
            output_size_px=size,
            matrix=matrix,
            perspective=perspective,
            is_flipped=flips[0],
            is_flipped_ud=flips[1],
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


@dataclass(frozen=True, slots=True)
class _Draft:
    """What every rank has to know of a sample: its random numbers and its source images."""

    sources: tuple[int, ...]
    draws: Draws
    cut: _Draft | None = None
    mix: _Draft | None = None
    share: float = 1.0
    paste: _Draft | None = None
    objects: tuple[tuple[int, int], ...] = ()

    @property
    def all_sources(self) -> tuple[int, ...]:
        return sum((part.sources for part in (self.cut, self.mix) if part is not None), self.sources)


def _extent(record: ImageRecord, image_size_px: int) -> tuple[int, int, int, int]:
    box = letterbox(record.height_src, record.width_src, image_size_px)
    return box.left_px, box.top_px, box.width_px, box.height_px


def _centered(source_index: int, extent_xywh_px: Sequence[int]) -> Placement:
    left, top, width, height = extent_xywh_px
    return Placement(source_index, (left, top), (left, top, left + width, top + height))
