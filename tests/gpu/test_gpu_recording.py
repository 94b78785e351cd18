"""The recorded step equals the eager step byte for byte, and faults that would break this are caught."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from torch import nn

from lucid_yolo.bench.step import synthetic_batch
from lucid_yolo.graphs import EagerRunner, RecordingError, ReplayRunner
from lucid_yolo.kernels.assignment import Implementation
from lucid_yolo.models.freeze import frozen_parameters
from lucid_yolo.models.network import Network, use_norm_kernel
from lucid_yolo.optim.schedule import RunLength, ScheduleConfig, build_schedule
from lucid_yolo.runtime.checkpoint_file import ModelMeta
from lucid_yolo.runtime.detector import Detector
from lucid_yolo.runtime.determinism import make_deterministic
from lucid_yolo.runtime.precision import ResolvedPrecision
from lucid_yolo.runtime.state import TrainState
from lucid_yolo.runtime.step import StepConfig, TrainStep
from lucid_yolo.structures import Batch, ClassMap
from lucid_yolo.tasks import DetectTask

DEVICE = torch.device("cuda")
SIZE, NUM_CLASSES, BATCH = 128, 5, 4


def make_step(
    precision: ResolvedPrecision = "bf16",
    accumulate: int = 1,
    assignment: Implementation = "reference",
    has_norm_kernel: bool = False,
) -> TrainStep:
    make_deterministic()
    torch.manual_seed(0)
    task = DetectTask(NUM_CLASSES, assignment=assignment)
    network = Network("n", task.stems).train().to(DEVICE)
    if has_norm_kernel:
        use_norm_kernel(network)
    schedule = build_schedule(ScheduleConfig(), RunLength(25, 2, accumulate))
    return TrainStep(TrainState(network), task, schedule, StepConfig((SIZE, SIZE), precision, accumulate))


def make_batch(seed: int) -> Batch:
    """Target counts and capacities change from step to step; every seventh batch is empty."""
    batch = synthetic_batch(BATCH, SIZE, 256 if seed % 5 == 3 else 64, NUM_CLASSES, seed)
    if seed % 7 == 6:
        batch.field("is_padded").fill_(True)
        batch.field("boxes_xyxy_px").zero_()
        batch.field("labels").zero_()
    else:
        batch.field("is_padded")[:, 3 + seed % 11 :] = True
    return batch.to(DEVICE)


def bytes_of(step: TrainStep) -> dict[str, torch.Tensor]:
    return {name: tensor.cpu().clone() for name, tensor in step.state.tensors().items()}


def differing(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> list[str]:
    return [k for k in first if first[k].numpy().tobytes() != second[k].numpy().tobytes()]


@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_fifty_recorded_steps_equal_eager_ones(precision: ResolvedPrecision, accumulate: int) -> None:
    eager, recorded = make_step(precision, accumulate), make_step(precision, accumulate, "kernel")
    recorded.record()
    for seed in range(50):
        if precision == "fp16" and seed == 20:
            for step in (eager, recorded):
                step.state.loss_scale.fill_(1e38)
        batch = make_batch(seed)
        expected, found = eager.run(batch), recorded.run(batch)
        assert expected.cpu().numpy().tobytes() == found.cpu().numpy().tobytes(), seed
        assert differing(bytes_of(eager), bytes_of(recorded)) == [], seed
    counts = recorded.counts
    assert (counts.recorded, counts.replayed, counts.eager) == (2, 50, 0)
    assert eager.counts.eager == 50
    assert (int(eager.state.num_skipped) > 0) == (precision == "fp16")


def test_a_step_that_is_not_finite_is_skipped_in_a_replay_too() -> None:
    step = make_step("fp32")
    step.record()
    step.run(make_batch(0))
    before = bytes_of(step)
    step.schedule.fill_(float("nan"))
    step.state.loss_scale.fill_(1.0)
    with torch.no_grad():
        bad = make_batch(1)
        bad.field("boxes_xyxy_px").fill_(float("nan"))
    step.run(bad)
    after = bytes_of(step)
    for name in ("params", "momentum", "committed_buffers"):
        assert before[name].numpy().tobytes() == after[name].numpy().tobytes(), name


def test_preparing_leaves_no_trace() -> None:
    step = make_step()
    step.run(make_batch(0))
    before, random = bytes_of(step), torch.cuda.get_rng_state()
    step.record()
    step.prepare(make_batch(1))
    assert differing(before, bytes_of(step)) == []
    assert torch.equal(random, torch.cuda.get_rng_state())
    assert (step.counts.recorded, step.counts.replayed) == (1, 0)


def test_parts_frozen_and_thawed_on_the_way_equal_eager_ones() -> None:
    eager, recorded = make_step(), make_step()
    recorded.record()
    for seed in range(9):
        if seed in (3, 6):
            for step in (eager, recorded):
                step.freeze(frozen_parameters(step.state.network, ["backbone"]) if seed == 3 else ())
            before = bytes_of(recorded)["params"]
        batch = synthetic_batch(BATCH, SIZE, 64, NUM_CLASSES, seed).to(DEVICE)
        assert torch.equal(eager.run(batch), recorded.run(batch)), seed
        assert differing(bytes_of(eager), bytes_of(recorded)) == [], seed
        if seed in (5, 8):
            views = [recorded.state.layout.unpack(params) for params in (before, bytes_of(recorded)["params"])]
            still = {name.partition(".")[0] for name in views[0] if torch.equal(views[0][name], views[1][name])}
            assert ("backbone" in still) == (seed == 5)
    assert (recorded.counts.recorded, recorded.counts.replayed) == (3, 9)


def test_ten_recordings_leave_memory_flat() -> None:
    step = make_step()
    reserved = []
    for _ in range(10):
        step.record()
        step.run(make_batch(0))
        torch.cuda.synchronize()
        reserved.append(torch.cuda.memory_reserved())
    assert reserved[-1] <= reserved[1]


class Peeking(nn.Module):
    """Looks at a value on the host."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if float(x.sum()) > -1e30 else x * 2


def test_a_layer_that_cannot_be_recorded_is_named_and_nothing_changes() -> None:
    step = make_step()
    step.run(make_batch(0))
    before = bytes_of(step)
    step.state.network.neck.out3.split.act = Peeking()
    step.record()
    with pytest.raises(RecordingError, match=r"neck\.out3\.split\.act \(Peeking\)"):
        step.run(make_batch(1))
    assert differing(before, bytes_of(step)) == []
    step.release()
    step.run(make_batch(1))
    assert step.counts.eager == 1


def test_a_recording_cannot_be_pickled() -> None:
    step = make_step()
    step.record()
    with pytest.raises(TypeError, match="one owner"):
        pickle.dumps(next(iter(step._runners.values())))


def test_the_schedule_is_read_at_every_replay() -> None:
    """Control for a stale learning rate: values written into the table count, and a run that ignores them differs."""
    eager, recorded, stale = make_step(), make_step(), make_step()
    recorded.record()
    stale.record()
    for seed in range(6):
        if seed == 3:
            for step in (eager, recorded):
                step.schedule[:, 0].mul_(0.5)
        for step in (eager, recorded, stale):
            step.run(make_batch(0))
    assert differing(bytes_of(eager), bytes_of(recorded)) == []
    assert "params" in differing(bytes_of(eager), bytes_of(stale))


def test_a_stale_target_row_is_caught() -> None:
    eager, recorded = make_step(), make_step()
    recorded.record()
    recorded.prepare(make_batch(0))
    recording = next(iter(recorded._runners["step"]._recordings.values()))
    for seed in (0, 1):
        eager.run(make_batch(seed))
        recorded.run(make_batch(seed))
        if seed == 0:  # from now on the copy of the targets goes nowhere
            images, packed = recording.inputs
            object.__setattr__(recording, "inputs", (images, packed.clone()))
    assert "params" in differing(bytes_of(eager), bytes_of(recorded))


def test_a_replay_turned_eager_is_caught() -> None:
    step = make_step()
    step.record()
    step.run(make_batch(0))
    step._runners["step"] = EagerRunner(step._step)
    step.run(make_batch(0))
    assert (step.counts.replayed, step.counts.eager) == (0, 1)


def noise_runner(runner: type[Any], **flags: Any) -> Any:
    return runner(lambda _key, x: (x + torch.rand_like(x),), **flags)


def test_randomness_moves_on_between_replays_as_it_does_eagerly() -> None:
    x = torch.zeros(1000, device=DEVICE)
    torch.cuda.manual_seed(7)
    expected = [noise_runner(EagerRunner)(None, x)[0] for _ in range(4)]
    torch.cuda.manual_seed(7)
    replay = noise_runner(ReplayRunner, state=list)
    found = [replay(None, x)[0] for _ in range(4)]
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert not torch.equal(found[0], found[1])


def test_a_frozen_generator_is_caught() -> None:
    generator = torch.Generator(DEVICE).manual_seed(7)
    x = torch.zeros(1000, device=DEVICE)
    replay = ReplayRunner(
        lambda _key, x: (x + torch.rand(x.shape, device=x.device, generator=generator),),
        list,
        generators=[generator],
    )
    assert not torch.equal(replay(None, x)[0], replay(None, x)[0])


def test_recorded_evaluation_follows_the_averaged_weights() -> None:
    step = make_step()
    meta = ModelMeta("detect", "n", ClassMap.from_names("abcde"), SIZE)
    plain = Detector(step.state.averaged_network, step.task, meta, "bf16")
    recorded = Detector(step.state.averaged_network, step.task, meta, "bf16")
    recorded.record()
    for seed in range(3):
        batch = make_batch(seed)
        step.run(batch)
        expected, found = plain.predict(batch.images), recorded.predict(batch.images)
        assert torch.equal(expected.box_ltrb_cell, found.box_ltrb_cell)
        assert torch.equal(expected.class_logit, found.class_logit)
    assert (recorded._runner.counts.recorded, recorded._runner.counts.replayed) == (1, 3)


@pytest.mark.parametrize("has_norm_kernel", [False, True], ids=["plain", "norm kernel"])
def test_recorded_decoding_equals_eager_decoding(has_norm_kernel: bool) -> None:
    step = make_step(has_norm_kernel=has_norm_kernel)
    meta = ModelMeta("detect", "n", ClassMap.from_names("abcde"), SIZE)
    plain = Detector(step.state.averaged_network, step.task, meta, "bf16")
    slow = Detector(step.state.averaged_network, DetectTask(NUM_CLASSES, suppression="reference"), meta, "bf16")
    recorded = Detector(step.state.averaged_network, step.task, meta, "bf16")
    recorded.record()
    for seed in range(3):
        batch = make_batch(seed)
        step.run(batch)
        expected, by_reference, found = (d.detect(batch.images) for d in (plain, slow, recorded))
        assert list(found) == list(expected) == ["one_to_many", "one_to_one"]
        for branch in expected:
            for name in ("boxes_xyxy_px", "score", "label", "point_index"):
                value = getattr(expected[branch], name)
                assert torch.equal(value, getattr(found[branch], name)), (branch, name)
                assert torch.equal(value, getattr(by_reference[branch], name)), (branch, name)
    assert (recorded._runner.counts.recorded, recorded._runner.counts.replayed) == (1, 3)
    recorded.predict(batch.images)
    assert recorded._runner.counts.recorded == 2
