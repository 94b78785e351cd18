"""A contact sheet of exactly what the network gets: one training batch as planned, one letterboxed batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lucid_yolo.data.augment.apply import apply_plan
from lucid_yolo.data.collate import BatchWriter
from lucid_yolo.data.dataset import DataSplit
from lucid_yolo.data.plan import SamplePlan, TrainPlanner, letterbox_plan
from lucid_yolo.data.policy import AugmentPolicy
from lucid_yolo.data.sources import PreparedSource
from lucid_yolo.structures import ImageRecord, target_capacity
from lucid_yolo.viz import draw_training_batch

BATCH_SIZE = 16

_NUM_EPOCHS = 100
_GROUND = 255


def draw_sheet(splits: Mapping[str, DataSplit], image_size_px: int, seed: int = 0) -> np.ndarray:
    """Return one picture: the first training batch of a run above the first evaluation batch.

    Args:
        splits: ``train`` is augmented by the default policy; ``val``, else ``test``, is letterboxed. Either may lack.
        image_size_px: Side of the network input.
        seed: Seed of the run.

    Returns:
        ``[H, W, 3]`` RGB uint8.

    Raises:
        ValueError: No split has an image.
    """
    parts = []
    train = splits.get("train")
    if train is not None and train.records:
        planner = TrainPlanner(train.records, image_size_px, AugmentPolicy(), BATCH_SIZE, seed, _NUM_EPOCHS)
        plan = planner.plan(0)
        parts.append(_draw(train, plan.samples, image_size_px, plan.capacity))
    evaluated = next((splits[name] for name in ("val", "test") if name in splits and splits[name].records), None)
    if evaluated is not None:
        shown = evaluated.records[:BATCH_SIZE]
        plans = [letterbox_plan(index, record, image_size_px) for index, record in enumerate(shown)]
        parts.append(_draw(evaluated, plans, image_size_px, _capacity(shown)))
    if not parts:
        raise ValueError("sheet: expected at least one split with images, found none")
    return _stack(parts)


def _draw(split: DataSplit, plans: Sequence[SamplePlan], image_size_px: int, capacity: int) -> np.ndarray:
    prepared = PreparedSource(split.records, image_size_px)
    writer = BatchWriter(len(plans), image_size_px, capacity)
    for slot, plan in enumerate(plans):
        writer.write(slot, apply_plan(plan, split.records, prepared))
    return draw_training_batch(writer.batch, split.class_map.names)


def _capacity(records: Sequence[ImageRecord]) -> int:
    return target_capacity(max(len(record.labels) for record in records))


def _stack(parts: Sequence[np.ndarray]) -> np.ndarray:
    width = max(part.shape[1] for part in parts)
    rows = [np.pad(p, ((0, 0), (0, width - p.shape[1]), (0, 0)), constant_values=_GROUND) for p in parts]
    return np.concatenate(rows)
