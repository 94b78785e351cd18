"""Images drawn on the GPU: the kernel equals the plain form and the workers; recorded steps draw the same."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1] / "kernels"))
from drawing_cases import cases, make_case

from augment_cases import POLICIES, SIZE_PX, Pictures, make_planner, make_records
from lucid_yolo.data.dataset import open_split
from lucid_yolo.data.device_pixels import ResidentPixels, StagedPixels, StreamedPixels
from lucid_yolo.data.image import read_image
from lucid_yolo.data.makers import NumberMaker, PixelMaker
from lucid_yolo.data.plan import AugmentPolicy, TrainPlanner
from lucid_yolo.data.sources import PreparedSource
from lucid_yolo.data.synthetic import draw_shapes
from lucid_yolo.data.train_source import TrainSource
from lucid_yolo.graphs import ReplayRunner
from lucid_yolo.kernels.augment import PlannedBatch, draw_images
from lucid_yolo.kernels.augment.planned_batch import TrainBatch
from lucid_yolo.models.network import Network
from lucid_yolo.optim.schedule import RunLength, ScheduleConfig, build_schedule
from lucid_yolo.runtime.determinism import make_deterministic
from lucid_yolo.runtime.state import TrainState
from lucid_yolo.runtime.step import StepConfig, TrainStep
from lucid_yolo.tasks import DetectTask

DEVICE = torch.device("cuda")
CASES = {name: (batch, pixels) for name, batch, pixels in cases(is_small=False)}
RECORDS = make_records()


@pytest.mark.parametrize("name", CASES)
def test_kernel_equals_the_plain_form(name: str) -> None:
    batch, pixels = (x.to(DEVICE) for x in CASES[name])
    drawn = [draw_images(batch, pixels, form) for form in ("reference", "kernel", "kernel")]  # type: ignore[arg-type]
    assert drawn[1].is_contiguous(memory_format=torch.channels_last)
    assert all(torch.equal(drawn[0], other) for other in drawn[1:])


def test_a_recording_draws_from_the_plans_of_the_moment() -> None:
    batches = [make_case(seed, num_layers=4, has_masks=True)[0].to(DEVICE) for seed in range(4)]
    pixels = make_case(0)[1].to(DEVICE)
    runner = ReplayRunner(lambda key, *tensors: (draw_images(PlannedBatch.restore(key, tensors), pixels),), list)
    for batch in batches:
        assert torch.equal(runner(batch.constants, *batch.tensors)[0], draw_images(batch, pixels, "reference"))
    assert (runner.counts.recorded, runner.counts.replayed) == (1, 4)
    runner.release()


@pytest.mark.parametrize("name", POLICIES)
def test_the_device_draws_what_the_workers_would(name: str) -> None:
    policy, prepared = POLICIES[name], Pictures(RECORDS, undecodable=[3])
    kept = ResidentPixels(prepared, DEVICE)
    source, planner = TrainSource(NumberMaker(RECORDS, kept.positions, policy), kept), make_planner(RECORDS, policy)
    for index in (0, 1, planner.batches_per_epoch * 3 - 1):
        plan = planner.plan(index)
        expected, found = PixelMaker(RECORDS, prepared)(plan), source.make(plan).to(DEVICE)
        assert torch.equal(found.packed.cpu(), expected.packed)
        assert isinstance(found, PlannedBatch)
        assert source.resident is not None
        codes = (draw_images(found, source.resident) * 255).round().cpu()
        difference = (codes - expected.images.float()).abs()
        assert (difference > 1).float().mean() < 1e-3
        assert (difference > 0).float().mean() < 2e-2


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("drawn") / "set"
    draw_shapes(root, num_train=24, num_val=4, image_size_px=128, object_px=(16, 80), seed=3)
    return root


@pytest.mark.parametrize("kind", [StagedPixels, StreamedPixels])
def test_sources_sent_along_give_what_resident_ones_give(
    root: Path, kind: type[StagedPixels] | type[StreamedPixels]
) -> None:
    records, policy = open_split(root, "train").records, AugmentPolicy(mixup=0.5)
    prepared = PreparedSource(records, 128, is_cache_prepared=kind is StagedPixels)
    resident, sent = ResidentPixels(prepared, DEVICE), kind(prepared, DEVICE)
    planner = TrainPlanner(records, 128, policy, 4, 0, 20)
    try:
        for index in range(8):
            plan = planner.plan(index)
            first = NumberMaker(records, resident.positions, policy)(plan).to(DEVICE)
            second, wait = sent.attach(NumberMaker(records, sent.positions, policy)(plan).pin_memory())
            wait()
            second = second.to(DEVICE)
            assert resident.resident is not None
            assert second.pixels is not None
            assert torch.equal(draw_images(first, resident.resident), draw_images(second, second.pixels))
    finally:
        sent.close()
        prepared.close()


def make_step(pixels: Tensor | None) -> TrainStep:
    make_deterministic()
    torch.manual_seed(0)
    task = DetectTask(3, assignment="auto")
    state = TrainState(Network("n", task.stems).train().to(DEVICE))
    schedule = build_schedule(ScheduleConfig(), RunLength(20, 4))
    return TrainStep(state, task, schedule, StepConfig((SIZE_PX, SIZE_PX), "bf16"), None, pixels)


@pytest.mark.parametrize("name", ["default", "joined", "pasted others"])
def test_recorded_steps_that_draw_equal_eager_ones(name: str) -> None:
    policy = POLICIES[name]
    kept = ResidentPixels(Pictures(RECORDS), DEVICE)
    make, planner = NumberMaker(RECORDS, kept.positions, policy), make_planner(RECORDS, policy)
    batches: list[TrainBatch] = [make(planner.plan(index)).to(DEVICE) for index in range(planner.batches_per_epoch * 3)]
    eager, recorded = make_step(kept.resident), make_step(kept.resident)
    recorded.record()
    for batch in batches:
        assert torch.equal(eager.run(batch), recorded.run(batch))
        for tensor_name, tensor in eager.state.tensors().items():
            assert torch.equal(tensor, recorded.state.tensors()[tensor_name]), tensor_name
    assert recorded.counts.replayed == len(batches)
    recorded.release()


def test_device_memory_is_given_back(root: Path) -> None:
    records = open_split(root, "train").records
    prepared = PreparedSource(records, 128)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    source = ResidentPixels(prepared, DEVICE)
    assert torch.cuda.memory_allocated() - before >= len(records) * 128 * 100 * 3
    first = read_image(records[0].path)
    assert source.resident is not None
    assert np.array_equal(source.resident[: first.size].cpu().numpy(), first.reshape(-1))
    source.close()
    assert torch.cuda.memory_allocated() == before
