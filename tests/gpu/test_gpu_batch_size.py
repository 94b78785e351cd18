"""The batch size found on a GPU: it fits, it is the same again, and finding it leaves no trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer, seed_everything

from lucid_yolo.data.synthetic import draw_shapes
from lucid_yolo.engine.batch_size import MEMORY_SHARE, CudaMemory, auto_batch_size, choose_batch_size, step_bytes
from lucid_yolo.engine.datamodule import DetectorDataModule
from lucid_yolo.engine.module import DetectorModule
from lucid_yolo.engine.recording import RecordingOwner
from lucid_yolo.runtime.speed import Speed
from lucid_yolo.runtime.step import StepConfig, TrainStep
from tiny_run import SIZE_PX, make_network, make_step

DEVICE = torch.device("cuda", 0)


def build(is_recorded: bool) -> TrainStep:
    step = make_step(network=make_network().to(DEVICE), config=StepConfig((SIZE_PX, SIZE_PX), "bf16"))
    if is_recorded:
        step.record()
    return step


@pytest.mark.parametrize("is_recorded", [False, True], ids=["eager", "recorded"])
def test_the_line_holds_where_it_was_not_measured(is_recorded: bool) -> None:
    memory = CudaMemory(DEVICE)
    seen: dict[int, int] = {}

    def measure(num_images: int) -> int:
        seen[num_images] = step_bytes(lambda: build(is_recorded), memory, num_images, 64)
        return seen[num_images]

    pretended = 2 * measure(256)
    seen.clear()
    chosen, line = choose_batch_size(measure, pretended, 100_000)
    assert 128 <= chosen < 1024, line
    assert seen[chosen] <= MEMORY_SHARE * pretended
    assert list(seen)[:2] == [4, 8]
    assert choose_batch_size(measure, pretended, 100_000)[0] == chosen, "the same free memory, the same size"


def test_finding_it_leaves_no_trace() -> None:
    memory = CudaMemory(DEVICE)
    torch.cuda.manual_seed(3)
    draws, free = torch.cuda.get_rng_state(DEVICE), []
    for _ in range(3):
        assert auto_batch_size(lambda: build(True), DEVICE, 24, 64) == 24
        assert torch.equal(torch.cuda.get_rng_state(DEVICE), draws)
        free.append(memory.free_bytes())
    assert free[0] - free[-1] < 32 * 2**20, "libraries and their workspaces stay from the first time on, nothing else"


def test_a_fit_with_auto_equals_one_with_the_number(tmp_path: Path) -> None:
    root = tmp_path / "set"
    draw_shapes(root, num_train=20, num_val=4, image_size_px=64, object_px=(12, 40), seed=3)
    states: list[dict[str, torch.Tensor]] = []
    for batch_size in ("auto", 16):
        flags: dict[str, Any] = {"num_sanity_val_steps": 0, "logger": False, "enable_checkpointing": False}
        flags |= {"enable_progress_bar": False, "enable_model_summary": False, "log_every_n_steps": 1}
        trainer = Trainer(accelerator="gpu", devices=1, max_epochs=2, callbacks=[RecordingOwner()], **flags)
        seed_everything(0, verbose=False)
        module = DetectorModule(image_size=64, speed=Speed(accelerate="auto"))
        data = DetectorDataModule(str(root), batch_size=batch_size, num_workers=2)
        trainer.fit(module, datamodule=data)
        assert data.batch_size == 16, "20 pictures, a multiple of 8"
        assert module.state is not None
        states.append({name: tensor.cpu() for name, tensor in module.state.tensors().items()})
    assert [name for name in states[0] if not torch.equal(states[0][name], states[1][name])] == []
