"""Batches that the device draws: the same pixels and targets as those made in the workers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from augment_cases import BATCH_SIZE, POLICIES, SIZE_PX, Pictures, has_fused_multiply_add, make_planner, make_records
from lucid_yolo.data.device_pixels import DevicePixels, ResidentPixels, StagedPixels, StreamedPixels
from lucid_yolo.data.loader import TrainLoader, _one_ahead
from lucid_yolo.data.makers import NumberMaker, PixelMaker, UncoloredMaker
from lucid_yolo.data.plan import BatchPlan
from lucid_yolo.data.policy import AugmentPolicy
from lucid_yolo.data.sources import PreparedSource
from lucid_yolo.data.train_source import TrainSource, open_train_source
from lucid_yolo.kernels.augment import PlannedBatch, draw_images
from lucid_yolo.structures import Batch

CPU = torch.device("cpu")
RECORDS = make_records()
KINDS: dict[str, Callable[[PreparedSource, torch.device], DevicePixels]] = {
    "resident": ResidentPixels,
    "staged": StagedPixels,
    "streamed": StreamedPixels,
}


def plans(policy: AugmentPolicy) -> list[BatchPlan]:
    planner = make_planner(RECORDS, policy)
    return [planner.plan(index) for index in (0, 1, planner.batches_per_epoch * 3 - 1)]


def drawn_codes(batch: PlannedBatch, source: TrainSource) -> np.ndarray:
    pixels = batch.pixels if batch.pixels is not None else source.resident
    assert pixels is not None
    images = draw_images(batch, pixels)
    assert images.is_contiguous(memory_format=torch.channels_last)
    return (images * 255).round().byte().numpy()


def assert_same_codes(found: np.ndarray, expected: np.ndarray) -> None:
    difference = np.abs(found.astype(int) - expected)
    if has_fused_multiply_add():
        assert difference.max() == 0
    assert (difference > 1).mean() < 1e-4
    assert (difference > 0).mean() < 1e-2


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_device_draws_what_the_workers_would(name: str, kind: str) -> None:
    policy, prepared = POLICIES[name], Pictures(RECORDS, undecodable=[3])
    kept = KINDS[kind](prepared, CPU)
    source = TrainSource(NumberMaker(RECORDS, kept.positions, policy), kept)
    for plan in plans(policy):
        expected, found = PixelMaker(RECORDS, prepared)(plan), source.make(plan)
        assert isinstance(found, PlannedBatch)
        assert torch.equal(found.packed, expected.packed)
        found = source.attach(found)[0] if source.attach is not None else found
        assert_same_codes(drawn_codes(found, source), expected.images.numpy())
        if name != "nothing":  # the test would pass on grey images too
            assert expected.images.float().std() > 20


@pytest.mark.parametrize("name", POLICIES)
def test_the_device_changes_the_colours_as_the_workers_would(name: str) -> None:
    prepared = Pictures(RECORDS)
    source = open_train_source(RECORDS, prepared, POLICIES[name], CPU, device_hsv=True)
    assert isinstance(source.make, UncoloredMaker)
    for plan in plans(POLICIES[name]):
        expected, found = PixelMaker(RECORDS, prepared)(plan), source.make(plan)
        assert torch.equal(found.packed, expected.packed)
        assert_same_codes(drawn_codes(found, source), expected.images.numpy())


def test_every_policy_uses_what_it_is_named_after() -> None:
    joined = [sample for plan in plans(POLICIES["joined"]) for sample in plan.samples]
    assert any(sample.mix for sample in joined)
    assert any(sample.cut for sample in joined)
    pasted = [sample.paste for plan in plans(POLICIES["pasted mirror"]) for sample in plan.samples]
    assert any(paste and paste.partner is None for paste in pasted)
    partners = [sample.paste for plan in plans(POLICIES["pasted others"]) for sample in plan.samples]
    assert any(paste and paste.partner for paste in partners)
    masks = [
        NumberMaker(RECORDS, ResidentPixels(Pictures(RECORDS), CPU).positions, POLICIES["pasted mirror"])(plan).masks
        for plan in plans(POLICIES["pasted mirror"])
    ]
    assert any(mask is not None and mask.any() for mask in masks)


def test_a_moved_source_changes_the_picture() -> None:
    prepared = Pictures(RECORDS)
    source = open_train_source(RECORDS, prepared, POLICIES["default"], CPU, "gpu")
    batch = source.make(plans(POLICIES["default"])[0])
    assert isinstance(batch, PlannedBatch)
    before = drawn_codes(batch, source)
    batch.plan_field("placements")[:, :, :, 1] += 1
    assert not np.array_equal(drawn_codes(batch, source), before)


def test_blanks_are_grey() -> None:
    for hsv in (False, True):
        source = open_train_source(RECORDS, Pictures(RECORDS), POLICIES["joined"], CPU, "cpu" if hsv else "gpu", hsv)
        blank = source.blank(2, SIZE_PX, 64)
        assert isinstance(blank, PlannedBatch)
        assert blank.sample_index.tolist() == [-1, -1]
        assert blank.targets.is_padded.all()
        if not hsv:
            assert (drawn_codes(blank, source) == 114).all()


def test_batches_of_a_run_have_the_shapes_of_its_blanks() -> None:
    for name, policy in POLICIES.items():
        source = open_train_source(RECORDS, Pictures(RECORDS), policy, CPU, "gpu")
        for plan in plans(policy):
            batch, blank = source.make(plan), source.blank(BATCH_SIZE, SIZE_PX, plan.capacity)
            assert batch.constants == blank.constants, name
            assert [x.shape for x in batch.tensors] == [x.shape for x in blank.tensors], name


def test_a_batch_survives_its_parts() -> None:
    source = open_train_source(RECORDS, Pictures(RECORDS), POLICIES["pasted mirror"], CPU, "gpu")
    batch = source.make(plans(POLICIES["pasted mirror"])[0])
    again = type(batch).restore(batch.constants, batch.tensors)
    assert all(a is b for a, b in zip(again.tensors, batch.tensors, strict=True))
    assert again.to("cpu").constants == batch.constants
    with pytest.raises(KeyError, match="no field 'nonsense'"):
        batch.plan_field("nonsense")  # type: ignore[union-attr]
    pixels = PixelMaker(RECORDS, Pictures(RECORDS))(plans(POLICIES["nothing"])[0])
    assert isinstance(Batch.restore(pixels.constants, pixels.tensors), Batch)


def test_a_batch_of_another_size_gets_buffers_of_its_own() -> None:
    pixels = StreamedPixels(Pictures(RECORDS), CPU)
    source = TrainSource(NumberMaker(RECORDS, pixels.positions, POLICIES["default"]), pixels)
    sizes = []
    for batch_size in (1, BATCH_SIZE):
        blank = source.blank(batch_size, SIZE_PX, 64)
        assert isinstance(blank, PlannedBatch)
        assert blank.pixels is not None
        sizes.append(len(blank.pixels))
    assert sizes[1] == BATCH_SIZE * sizes[0]
    for plan in plans(POLICIES["default"]):
        assert source.attach is not None
        attached, _ = source.attach(source.make(plan))
        assert_same_codes(drawn_codes(attached, source), PixelMaker(RECORDS, Pictures(RECORDS))(plan).images.numpy())


class Recorder:
    """Stands for sources beside a device: notes in which order batches are sent, waited for and used."""

    def __init__(self) -> None:
        self.order: list[str] = []

    def attach(self, batch: PlannedBatch) -> tuple[PlannedBatch, Callable[[], None]]:
        self.order.append(f"send {batch.capacity}")
        return batch, lambda: self.order.append(f"wait {batch.capacity}")


def test_a_batch_is_sent_while_the_one_before_is_used() -> None:
    recorder = Recorder()
    batches = [PlannedBatch.allocate(1, 32, capacity) for capacity in (64, 128, 192)]
    for batch in _one_ahead(iter(batches), recorder.attach):
        recorder.order.append(f"use {batch.capacity}")
    first = ["send 64", "send 128", "wait 64", "use 64"]
    assert recorder.order == [*first, "send 192", "wait 128", "use 128", "wait 192", "use 192"]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_loader_hands_out_the_same_wherever_its_sources_lie(num_workers: int, tmp_path: Path) -> None:
    records, policy = [], POLICIES["joined"]
    for index, record in enumerate(RECORDS):
        path = tmp_path / f"{index}.png"
        cv2.imwrite(str(path), Pictures(RECORDS)(index)[:, :, ::-1])
        height, width = Pictures(RECORDS).size_px(index)
        records.append(replace(record, path=str(path), height_src=height, width_src=width))
    (tmp_path / "3.png").write_bytes(b"no picture")
    digests = []
    for kind, make_pixels in KINDS.items():
        prepared = PreparedSource(records, SIZE_PX, is_cache_prepared=kind == "staged")
        pixels = make_pixels(prepared, CPU)
        source = TrainSource(NumberMaker(records, pixels.positions, policy), pixels)
        planner = make_planner(records, policy)
        loader = TrainLoader(planner, source.make, num_workers=num_workers, attach=source.attach, epoch_prefetch=True)
        parts = [drawn_codes(b, source).tobytes() + b.packed.numpy().tobytes() for _ in range(3) for b in loader]
        next(iter(loader), None)  # given up in the middle of an epoch
        digests.append([hashlib.sha256(part).hexdigest() for part in parts])
        loader.close()
        source.close()
        prepared.close()
    assert len(digests[0]) == 3 * planner.batches_per_epoch
    assert digests[0] == digests[1] == digests[2]
