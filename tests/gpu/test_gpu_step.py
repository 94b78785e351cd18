"""The training step on a GPU: no synchronisation, the same bytes twice."""

from __future__ import annotations

import pytest
import torch

from lucid_yolo.bench.step import synthetic_batch
from lucid_yolo.models.network import Network
from lucid_yolo.optim.schedule import RunLength, ScheduleConfig, build_schedule
from lucid_yolo.runtime.determinism import make_deterministic
from lucid_yolo.runtime.precision import ResolvedPrecision
from lucid_yolo.runtime.state import TrainState
from lucid_yolo.runtime.step import StepConfig, TrainStep
from lucid_yolo.tasks import DetectTask

DEVICE = torch.device("cuda")
pytestmark = pytest.mark.filterwarnings("ignore:Synchronization debug mode")


def make_step(precision: ResolvedPrecision) -> TrainStep:
    make_deterministic()
    torch.manual_seed(0)
    task = DetectTask(5)
    network = Network("n", task.stems).train().to(DEVICE)
    schedule = build_schedule(ScheduleConfig(), RunLength(50, 2))
    return TrainStep(TrainState(network), task, schedule, StepConfig((128, 128), precision))


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_step_never_waits_for_the_device(precision: ResolvedPrecision) -> None:
    step = make_step(precision)
    batch = synthetic_batch(4, 128, 64, 5).to(DEVICE)
    step.run(batch)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step.run(batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_sync_debug_mode_catches_a_planted_item() -> None:
    value = torch.ones(1, device=DEVICE)
    torch.cuda.set_sync_debug_mode("error")
    try:
        with pytest.raises(RuntimeError, match="synchroniz"):
            value.item()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_two_runs_give_the_same_bytes(precision: ResolvedPrecision) -> None:
    states = []
    for _ in range(2):
        step = make_step(precision)
        for seed in range(5):
            step.run(synthetic_batch(4, 128, 64, 5, seed).to(DEVICE))
        states.append({name: tensor.cpu() for name, tensor in step.state.tensors().items()})
    differing = [name for name in states[0] if not torch.equal(states[0][name], states[1][name])]
    assert differing == []
    assert int(states[0]["num_skipped"]) == 0


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_capacity_changes_no_byte(precision: ResolvedPrecision) -> None:
    states = []
    for capacity in (64, 256):
        step = make_step(precision)
        for seed in range(3):
            step.run(synthetic_batch(4, 128, capacity, 5, seed).to(DEVICE))
        states.append({name: tensor.cpu() for name, tensor in step.state.tensors().items()})
    assert [name for name in states[0] if not torch.equal(states[0][name], states[1][name])] == []


def test_fp16_overflow_skips_the_update_and_halves_the_scale() -> None:
    step = make_step("fp16")
    batch = synthetic_batch(4, 128, 64, 5).to(DEVICE)
    step.run(batch)
    before = {name: tensor.clone() for name, tensor in step.state.tensors().items()}
    step.state.loss_scale.fill_(1e38)
    step.run(batch)
    after = step.state.tensors()
    for name in ("params", "momentum", "ema", "committed_buffers"):
        assert torch.equal(before[name], after[name]), name
    assert int(after["num_skipped"]) == int(before["num_skipped"]) + 1
    assert float(after["loss_scale"]) == pytest.approx(5e37)
