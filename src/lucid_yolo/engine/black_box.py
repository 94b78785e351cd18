"""What is left behind by a run that stopped because its updates were not finite, and its replay."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn

from lucid_yolo.data.makers import make_batch
from lucid_yolo.data.plan import BatchPlan
from lucid_yolo.data.sources import PreparedSource
from lucid_yolo.engine.datamodule import detector_data
from lucid_yolo.engine.module import DetectorModule
from lucid_yolo.runtime.json_file import write_json
from lucid_yolo.runtime.step import TrainStep
from lucid_yolo.structures import Batch, ImageRecord


def write_black_box(
    path: Path, trainer: Trainer, module: DetectorModule, first_bad_update: int, num_bad_updates: int
) -> None:
    """Describe the batches of the first bad update and the first tensor in them that is not finite.

    Every update since then was skipped, so the state still is the one before it. The partial gradient is lost.

    Args:
        path: JSON file to write.
        trainer: The Trainer.
        module: The module in training.
        first_bad_update: Update index.
        num_bad_updates: Skipped updates in a row.
    """
    data = detector_data(trainer)
    planner, records = data.planner(), data.splits["train"].records
    first_batch = first_bad_update * module.accumulate
    plans = [planner.plan(first_batch + i) for i in range(module.accumulate)]
    assert module.train_step is not None
    # A list: ranks exchange in every micro-step, so all of them run every one.
    found = [find_nonfinite(module.train_step, replay_plan(plan, records).to(module.device)) for plan in plans]
    sources = sorted({i for plan in plans for sample in plan.samples for i in sample.source_indices})
    content = {
        "first_bad_update": first_bad_update,
        "bad_updates_in_a_row": num_bad_updates,
        "first_bad_tensor": next((name for name in found if name), None),
        "images": [records[i].path for i in sources],
        "plans": [plan.to_dict() for plan in plans],
    }
    write_json(path, content)


def read_plans(path: str | Path) -> list[BatchPlan]:
    """Return the plans in a black box, one per micro-step of the first bad update."""
    content: Mapping[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    return [BatchPlan.from_dict(plan) for plan in content["plans"]]


def replay_plan(plan: BatchPlan, records: tuple[ImageRecord, ...]) -> Batch:
    """Make the batch of a plan once more.

    Args:
        plan: From the run itself or from a black box.
        records: Images of the training split it was planned for.
    """
    return make_batch(plan, records, PreparedSource(records, plan.samples[0].output_size_px))


def find_nonfinite(step: TrainStep, batch: Batch) -> str | None:
    """Run a micro-step and name the first tensor that is not finite; the partial gradient is cleared.

    Args:
        step: The training step, in the state to examine.
        batch: On the step's device.

    Returns:
        A parameter, a module of the network (its output), a loss term or a gradient; None if all are finite.
    """
    state, found = step.state, list[str]()
    for name, tensor in state.network.named_parameters():
        if not _is_finite(tensor):
            return f"parameter {name}"
    handles = [
        module.register_forward_hook(_Recorder(name, found))
        for name, module in state.network.named_modules()
        if not list(module.children())
    ]
    losses = step.micro_step(batch)
    for handle in handles:
        handle.remove()
    found += [f"loss {name}" for name, value in zip(step.metric_names, losses, strict=False) if not _is_finite(value)][
        ::-1
    ]
    views = state.layout.views(state.grads)
    found += [f"gradient of {name}" for name, gradient in views.items() if not _is_finite(gradient)]
    state.grads.zero_()
    state.flag.zero_()
    state.buffers.copy_(state.committed_buffers)
    return found[0] if found else None


class _Recorder:
    """Forward hook that notes the modules whose output is not finite."""

    def __init__(self, name: str, found: list[str]) -> None:
        self._name, self._found = name, found

    def __call__(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor) and not _is_finite(output):
            self._found.append(f"output of {self._name}")


def _is_finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())
