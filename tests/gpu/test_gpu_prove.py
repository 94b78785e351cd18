"""Proofs against real recordings: equal where nothing is wrong, and faults located inside a recorded step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer

from lucid_yolo.bench.device_work import device_work
from lucid_yolo.bench.fault import plant_fault
from lucid_yolo.bench.locate import Trace
from lucid_yolo.bench.pair import measure_pair
from lucid_yolo.bench.prove import Proof, prove
from lucid_yolo.bench.step import StepBench, measure_step
from lucid_yolo.data.plan import AugmentPolicy
from lucid_yolo.data.synthetic import draw_shapes
from lucid_yolo.engine.arms import Arms, build_arms
from lucid_yolo.engine.datamodule import DetectorDataModule
from lucid_yolo.engine.module import DetectorModule
from lucid_yolo.runtime.precision import PrecisionName
from lucid_yolo.runtime.step import TrainStep

BuildArms = Callable[..., Arms]
PLACE = "neck.out3.split.act"


@pytest.fixture(scope="module")
def drawn_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("drawn") / "set"
    draw_shapes(root, num_train=24, num_val=4, image_size_px=128, object_px=(16, 80), seed=3)
    return root


@pytest.fixture
def arms(drawn_root: Path) -> Iterator[BuildArms]:
    built: list[Arms] = []

    def build(before: Any = None, **module: Any) -> Arms:
        trainer = Trainer(accelerator="gpu", devices=1, max_epochs=4, logger=False, enable_checkpointing=False)
        data = DetectorDataModule(str(drawn_root), batch_size=4, num_workers=2, augment=AugmentPolicy(close_mosaic=1))
        built.append(build_arms(trainer, DetectorModule(image_size=128, **module), data, None, before))
        return built[-1]

    yield build
    for one in built:
        one.close()


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_recorded_steps_on_a_runs_own_data_are_proved_equal(
    arms: BuildArms, precision: PrecisionName, accumulate: int
) -> None:
    built = arms(precision=precision, accumulate=accumulate)
    assert built.accelerated.options == {"capture_step", "fused_assignment"}
    assert built.accelerated.step.counts.recorded >= 1
    proof = prove(built, 20)
    assert proof.is_equal, proof.to_markdown({})
    assert proof.plain_sha256 == proof.accelerated_sha256
    counts = proof.accelerated_counts
    assert (counts.replayed, counts.eager, proof.plain_counts.eager) == (20, 0, 20)
    assert proof.num_updates == 20 // accumulate


def located(proof: Proof) -> tuple[str, str]:
    assert proof.failure is not None
    assert proof.failure.location is not None
    return proof.failure.location.stage, proof.failure.location.name


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_one_bit_in_a_recorded_module_is_located(arms: BuildArms, precision: PrecisionName) -> None:
    built = arms(partial(plant_fault, place=PLACE), precision=precision)
    assert built.accelerated.is_recorded
    proof = prove(built, 20)
    assert located(proof) == ("forward", f"{PLACE} (SiLU)")
    assert proof.accelerated_counts.eager == 0


def test_one_bit_in_a_recorded_update_is_located(arms: BuildArms) -> None:
    built = arms(partial(plant_fault, place="update"))
    stage, name = located(prove(built, 3))
    assert (stage, name) == ("update", "params: backbone.stem.0.conv.weight[0, 0, 0, 0]")


def spoil_gradient(step: TrainStep) -> None:
    def spoil(gradient: torch.Tensor) -> torch.Tensor:
        return gradient * (1 + 2**-10)

    step.state.network.backbone.stem[0].conv.weight.register_hook(spoil)


def test_a_recorded_gradient_is_located(arms: BuildArms) -> None:
    stage, name = located(prove(arms(spoil_gradient), 3))
    assert stage == "backward"
    assert name.startswith("gradient: backbone.stem.0.conv.weight[")


def test_a_stale_recording_is_told_from_a_wrong_one(arms: BuildArms) -> None:
    built = arms()
    runner = built.accelerated.step._runners["step"]
    for recording in runner._recordings.values():  # from now on the copy of the targets goes nowhere
        images, packed = recording.inputs
        object.__setattr__(recording, "inputs", (images, packed.clone()))
    proof = prove(built, 3)
    assert located(proof)[0] == "nowhere"
    assert "it is stale" in str(proof.failure.location)


def test_what_a_trace_keeps_of_a_recording_is_what_eager_hooks_see(arms: BuildArms) -> None:
    built = arms()
    batch = next(iter(built.data.train_dataloader())).to("cuda")
    for kept in ("outputs", "gradients"):
        seen = []
        for arm in (built.plain, built.accelerated):
            runner = arm.step.make_runner("micro_step", arm.is_recorded)
            with Trace(arm.step.state.network, kept) as trace:
                runner(arm.step.key(batch), batch.images, batch.packed)
            seen.append([(name, tensor.cpu()) for name, tensor in trace.tensors])
            arm.step.state.grads.zero_()
            arm.step.state.buffers.copy_(arm.step.state.committed_buffers)
            runner.release()
        assert len(seen[0]) == len(seen[1]) > 100
        for (name, a), (other, b) in zip(*seen, strict=True):
            assert name == other
            assert torch.equal(a, b), name


def test_the_recorded_column(drawn_root: Path) -> None:
    bench = StepBench(image_size_px=128, num_classes=5, num_steps=5, data_root=str(drawn_root), num_workers=2)
    timing = measure_step(bench, 4, has_floor=True)
    assert timing.is_equal
    assert timing.recorded_ms is not None
    assert timing.recorded_ms < timing.compute_ms
    assert timing.floor_ratio is not None
    assert timing.verdict in ("loader-bound", "launch-bound", "compute-bound")


def test_device_work_counts_kernels_and_their_time() -> None:
    x = torch.zeros(1 << 24, device="cuda")
    work = device_work(lambda: [x.add_(1) for _ in range(10)], x.device)
    if work is None:
        pytest.skip("the profiler of this machine sees no device")
    assert work.num_operations == 10
    assert 0.05 < work.busy_ms < 10


@pytest.mark.slow
def test_plain_and_accelerated_fits_are_equal(drawn_root: Path) -> None:
    flags = ["--config=detect", f"--data.data_root={drawn_root}", "--data.batch_size=4", "--model.image_size=128"]
    flags += ["--trainer.max_epochs=2", "--data.num_workers=2"]
    result = measure_pair(
        [*flags, "--model.speed.accelerate=none"], [*flags, "--model.speed.accelerate=auto"], num_pairs=1
    )
    assert result.is_equal, result.to_markdown({})
    assert "12 replayed" in result.runs[1].ran
    assert all(run.peak_mib for run in result.runs)
