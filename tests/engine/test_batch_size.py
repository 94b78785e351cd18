"""The batch size that fits, against memories whose need is known."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lucid_yolo.engine.batch_size import (
    MEMORY_SHARE,
    CudaMemory,
    auto_batch_size,
    choose_batch_size,
    round_down,
    step_bytes,
)
from lucid_yolo.engine.module import DetectorModule
from lucid_yolo.runtime.checkpoint_file import read_checkpoint
from lucid_yolo.structures import Batch
from tiny_run import SIZE_PX, assert_same_bytes, make_step, snapshot

MIB = 2**20


def needs(fixed: int, per_image: int, capacity: float = float("inf"), bend: int = 0) -> Callable[[int], int]:
    """A step that needs so many MiB, and ``bend`` more per image above 32; none can have more than ``capacity``."""

    def measure(num_images: int) -> int:
        needed = fixed + per_image * num_images + bend * max(num_images - 32, 0)
        if needed > capacity:
            raise torch.OutOfMemoryError
        return needed * MIB

    return measure


@pytest.mark.parametrize(
    ("measure", "free_mib", "limit", "expected"),
    [
        (needs(100, 10), 1000, 10_000, 72),  # 0.85 * 1000 = 100 + 75 * 10
        (needs(100, 10), 1000, 40, 40),
        (needs(100, 10), 1000, 45, 40),
        (needs(100, 10), 1000, 7, 4),
        (needs(100, 10), 1000, 1, 1),
        (needs(100, 0), 1000, 100, 96),  # the allocator's blocks hide the need of small pictures
        (needs(100, 10, bend=10), 1000, 10_000, 48),  # the line says 72, which needs 1220
        (needs(100, 10, capacity=500), 1000, 10_000, 32),  # the line says 72, but 72 and 48 are out of memory
        (needs(100, 100), 700, 100, 4),  # eight need 900
        (needs(100, 200), 700, 100, 2),
        (needs(100, 400), 700, 100, 1),
    ],
)
def test_the_largest_size_that_fits(measure: Any, free_mib: int, limit: int, expected: int) -> None:
    chosen, line = choose_batch_size(measure, free_mib * MIB, limit)
    assert chosen == expected
    assert line.startswith(f"batch size {expected}: ")
    assert measure(chosen) <= MEMORY_SHARE * free_mib * MIB


def test_no_image_fits() -> None:
    with pytest.raises(ValueError, match="not one image fits into 85 MiB"):
        choose_batch_size(needs(100, 10), 100 * MIB, 10)


@pytest.mark.parametrize(("number", "expected"), [(1, 1), (3, 2), (7, 4), (8, 8), (15, 8), (129, 128)])
def test_sizes_are_round(number: int, expected: int) -> None:
    assert round_down(number) == expected


class CountedMemory(CudaMemory):
    """Reads a device that is not there."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> int:
        self.calls.append("stop")
        return 7


def test_a_real_step_is_measured() -> None:
    memory, steps = CountedMemory(), []

    def build() -> Any:
        assert memory.calls == ["start"], "the state counts too"
        steps.append(make_step())
        return steps[0]

    assert step_bytes(build, memory, 2, 64) == 7
    assert memory.calls == ["start", "stop"]
    assert (steps[0].counts.eager, int(steps[0].state.update_index)) == (0, 2)


def test_the_probe_takes_batches_as_the_loader_makes_them() -> None:
    asked: list[tuple[int, int, int]] = []

    def blank(num_images: int, size_px: int, capacity: int) -> Batch:
        asked.append((num_images, size_px, capacity))
        return Batch.allocate(num_images, (size_px, size_px), capacity)

    step_bytes(make_step, CountedMemory(), 2, 256, blank)
    assert asked == [(2, SIZE_PX, 256)]


def test_a_cpu_is_not_measured(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert auto_batch_size(lambda: pytest.fail("built"), torch.device("cpu"), 10, 64) == 16
    assert "batch size 16: the device is cpu" in caplog.text


def test_a_probe_shares_nothing_with_the_run(fit: Any, tmp_path: Path) -> None:
    _, module = fit(tmp_path / "run", max_epochs=1, limit_val_batches=0)
    assert isinstance(module, DetectorModule)
    assert module.state is not None
    before, draw = snapshot(module.state), torch.get_rng_state()
    step_bytes(lambda: module._build_probe(frozenset()), CountedMemory(), 2, 64)
    assert_same_bytes(before, snapshot(module.state))
    assert torch.equal(torch.get_rng_state(), draw)


def test_auto_is_settled_before_the_schedule_and_a_resume_keeps_it(fit: Any, tmp_path: Path) -> None:
    trainer, _ = fit(tmp_path / "run", max_epochs=1, data={"batch_size": "auto"})
    last = tmp_path / "run/checkpoints/last.ckpt"
    run = read_checkpoint(last)["lucid_yolo"]["run"]
    assert (trainer.global_step, run["num_updates"], run["global_batch_size"]) == (1, 1, 16)

    fit(tmp_path / "four", max_epochs=1)
    last = tmp_path / "four/checkpoints/last.ckpt"
    module = {"image_size": 64, "resume_override": True}
    trainer, _ = fit(tmp_path / "four", last, max_epochs=2, data={"batch_size": "auto"}, module=module)
    assert trainer.datamodule.batch_size == 4
    assert trainer.global_step == 6
