"""Normalisation kernels on the GPU: close to float64, the same bytes every time, also in a recorded step."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
import torch
import triton
from triton import knobs

sys.path.insert(0, str(Path(__file__).parents[1] / "kernels"))
from norm_act_cases import LARGE_SHAPES, NAMES, SMALL_SHAPES, errors, fixed_error, run

from lucid_yolo.bench.step import synthetic_batch
from lucid_yolo.kernels.assignment import kernel as assignment_kernel
from lucid_yolo.kernels.norm_act import kernel as norm_kernel
from lucid_yolo.kernels.norm_act.kernel import norm_act_fixed_kernel, norm_act_kernel
from lucid_yolo.kernels.norm_act.reference import norm_act_fixed_reference, norm_act_reference
from lucid_yolo.models.network import Network, use_norm_kernel
from lucid_yolo.optim.schedule import RunLength, ScheduleConfig, build_schedule
from lucid_yolo.runtime.determinism import make_deterministic
from lucid_yolo.runtime.state import TrainState
from lucid_yolo.runtime.step import StepConfig, TrainStep
from lucid_yolo.tasks import DetectTask

DEVICE = torch.device("cuda")


@pytest.mark.parametrize("has_act", [True, False])
@pytest.mark.parametrize("shape", [*SMALL_SHAPES, *LARGE_SHAPES], ids=str)
def test_kernels_agree_with_float64(shape: tuple[int, ...], has_act: bool) -> None:
    found = errors(norm_act_kernel, shape, has_act, torch.float32, "cuda")
    plain = errors(norm_act_reference, shape, has_act, torch.float32, "cuda")
    assert {name: error for name, error in found.items() if error > max(3e-5, 3 * plain[name])} == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [*SMALL_SHAPES, *LARGE_SHAPES], ids=str)
def test_the_kernel_for_fixed_statistics_is_no_worse_than_the_plain_form(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    for has_act in (True, False):
        found, plain = (
            fixed_error(form, shape, has_act, dtype, "cuda")
            for form in (norm_act_fixed_kernel, norm_act_fixed_reference)
        )
        assert found <= 1.5 * plain + 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_no_worse_than_the_plain_form(dtype: torch.dtype) -> None:
    for shape in LARGE_SHAPES[:3]:
        found, plain = (errors(form, shape, True, dtype, "cuda") for form in (norm_act_kernel, norm_act_reference))
        assert {name: (found[name], plain[name]) for name in NAMES if found[name] > 1.5 * plain[name] + 1e-5} == {}


def test_the_same_bytes_every_time() -> None:
    runs = [run(norm_act_kernel, LARGE_SHAPES[0], True, torch.bfloat16, "cuda", torch.bfloat16) for _ in range(4)]
    assert all(torch.equal(a, b) for other in runs[1:] for a, b in zip(runs[0], other, strict=True))


def make_step(is_fused: bool) -> TrainStep:
    make_deterministic()
    torch.manual_seed(0)
    task = DetectTask(5, assignment="auto")
    network = Network("n", task.stems).train().to(DEVICE).to(memory_format=torch.channels_last)
    if is_fused:
        use_norm_kernel(network)
    schedule = build_schedule(ScheduleConfig(), RunLength(50, 2))
    return TrainStep(TrainState(network), task, schedule, StepConfig((128, 128), "bf16"))


def test_recorded_steps_equal_eager_ones_and_stay_close_to_plain_ones() -> None:
    eager, recorded, plain = make_step(True), make_step(True), make_step(False)
    recorded.record()
    for seed in range(10):
        batch = synthetic_batch(4, 128, 64, 5, seed).to(DEVICE)
        losses = [step.run(batch) for step in (eager, recorded, plain)]
        assert torch.equal(losses[0], losses[1])
        torch.testing.assert_close(losses[0][0], losses[2][0], rtol=0.05, atol=0)
    for name, tensor in eager.state.tensors().items():
        assert torch.equal(tensor, recorded.state.tensors()[name]), name
    assert recorded.counts.replayed == 10
    recorded.release()


def test_a_recording_compiles_and_loads_its_kernels_before_it_runs_any(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled_ahead: list[bool] = []
    loaded_by: list[str] = []
    for hook, keep in (
        ("jit_post_compile_hook", lambda **details: compiled_ahead.append(details["is_manual_warmup"])),
        ("kernel_load_end_hook", lambda *_: loaded_by.append(threading.current_thread().name)),
    ):
        monkeypatch.setattr(knobs.runtime, hook, keep)
    for module in (norm_kernel, assignment_kernel):
        for function in vars(module).values():
            if isinstance(function, triton.JITFunction):
                function.device_caches.clear()
    step = make_step(True)
    step.record()
    step.run(synthetic_batch(4, 128, 64, 5, 0).to(DEVICE))
    assert len(compiled_ahead) > 6
    assert all(compiled_ahead)
    assert len(loaded_by) >= len(compiled_ahead)
    assert all(name.startswith("compile-kernel") for name in loaded_by)
    step.release()
