"""Where a run's images come from, and the line that says what limits its speed."""

from __future__ import annotations

import logging
import re
import time
from itertools import count, pairwise
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback

from lucid_yolo.data.loader import EvalLoader, ResidentEvalLoader, TrainLoader
from lucid_yolo.engine import datamodule, verdict
from lucid_yolo.engine.datamodule import DetectorDataModule
from lucid_yolo.engine.verdict import SpeedVerdict, StepTimes, judge, step_times


class Slow(Callback):
    """Holds a run up between two steps, as a slow loader does, or inside a step."""

    def __init__(self, between_s: float, inside_s: float) -> None:
        self.between_s, self.inside_s = between_s, inside_s

    def on_train_batch_end(self, *_: Any) -> None:
        time.sleep(self.between_s)

    def on_train_batch_start(self, *_: Any) -> None:
        time.sleep(self.inside_s)


@pytest.mark.parametrize("option", [{"augment_device": "gpu"}, {"device_hsv": True}], ids=str)
def test_what_needs_a_gpu_is_refused_without_one(fit: Any, tmp_path: Any, option: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"data\.{next(iter(option))}.*cannot be honoured: it needs a CUDA device"):
        fit(tmp_path, data=option)


PLACES: dict[str, dict[str, Any]] = {
    "workers": {},
    "colours on the device": {"device_hsv": True},
    "resident": {"augment_device": "gpu"},
    "staged": {"augment_device": "gpu", "cache_prepared_train_images": True},
    "streamed": {"augment_device": "gpu"},
}


@pytest.mark.parametrize(
    "places", [("workers", "colours on the device"), ("resident", "staged", "streamed")], ids="-".join
)
def test_a_fit_is_the_same_wherever_its_images_are_made(
    fit: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, places: tuple[str, ...]
) -> None:
    """Complete fits with the plain form of drawing, which stands for the device's."""
    monkeypatch.setattr(datamodule, "missing_for_kernel", lambda _device: "")
    results = []
    for place in places:
        monkeypatch.setattr(datamodule, "fits", lambda *_, is_resident=place == "resident": is_resident)
        _, module = fit(tmp_path / place, data=PLACES[place])
        metrics = (tmp_path / place / "metrics.csv").read_text().splitlines()
        results.append(({name: tensor.clone() for name, tensor in module.state.tensors().items()}, metrics))
    (expected, expected_metrics), *others = results
    assert len(expected_metrics) > 12
    for found, metrics in others:
        assert [name for name in expected if not torch.equal(expected[name], found[name])] == []
        assert metrics == expected_metrics


@pytest.mark.parametrize(
    ("options", "limit", "kind"),
    [
        ({"augment_device": "gpu"}, 1.0, ResidentEvalLoader),
        ({"augment_device": "gpu"}, 1, EvalLoader),
        ({"augment_device": "gpu"}, 0.5, EvalLoader),
        ({}, 1.0, EvalLoader),
    ],
    ids=str,
)
def test_validation_images_stay_on_a_device_that_draws_and_validates_all(
    fit: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], limit: float, kind: type
) -> None:
    monkeypatch.setattr(datamodule, "missing_for_kernel", lambda _device: "")
    trainer, _ = fit(tmp_path, data=options, max_epochs=1, limit_train_batches=1, limit_val_batches=limit)
    assert type(trainer.val_dataloaders) is kind


@pytest.mark.parametrize(("between_s", "inside_s", "word"), [(0.5, 0.0, "loader-bound"), (0.0, 0.3, "compute-bound")])
def test_a_run_says_once_what_limits_it(
    fit: Any,
    tmp_path: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    between_s: float,
    inside_s: float,
    word: str,
) -> None:
    monkeypatch.setattr(verdict, "NUM_STEPS", 4)
    caplog.set_level(logging.INFO, "lucid_yolo.engine.verdict")
    fit(tmp_path, callbacks=(SpeedVerdict(), Slow(between_s, inside_s)), max_epochs=4, limit_val_batches=0)
    (line,) = [record.message for record in caplog.records if record.name.endswith("verdict")]
    assert line.startswith(word), line


@pytest.mark.parametrize(("num_batches", "num_lines"), [(2, 0), (3, 1)])
def test_pauses_between_short_epochs_are_no_steps(
    fit: Any, tmp_path: Any, caplog: pytest.LogCaptureFixture, num_batches: int, num_lines: int
) -> None:
    caplog.set_level(logging.INFO, "lucid_yolo.engine.verdict")
    fit(tmp_path, callbacks=(SpeedVerdict(),), max_epochs=4, limit_train_batches=num_batches, limit_val_batches=0)
    assert sum(record.name.endswith("verdict") for record in caplog.records) == num_lines


class LateMark:
    """A moment of a device that is behind: its time cannot be read before somebody has waited for it."""

    def __init__(self, time_ms: float, waited: list[bool]) -> None:
        self.time_ms, self.waited = time_ms, waited

    def query(self) -> bool:
        return bool(self.waited)

    def synchronize(self) -> None:
        self.waited.append(True)

    def elapsed_time(self, other: LateMark) -> float:
        assert self.waited, "not ready"
        return other.time_ms - self.time_ms


def test_the_end_of_an_epoch_waits_for_a_device_that_is_behind(
    fit: Any, tmp_path: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited, clock = list[bool](), count(0.0, 10.0)
    monkeypatch.setattr(verdict, "mark", lambda _device: LateMark(next(clock), waited))
    caplog.set_level(logging.INFO, "lucid_yolo.engine.verdict")
    fit(tmp_path, callbacks=(SpeedVerdict(),), max_epochs=2, limit_val_batches=0)
    (line,) = [record.message for record in caplog.records if record.name.endswith("verdict")]
    assert "20.0 ms a step" in line
    assert waited == [True]


def test_times_are_medians_between_marks() -> None:
    marks = [(10.0 * i, 10.0 * i + 7.0, 2.0) for i in range(5)]
    marks[2] = (20.0, 29.0, 50.0)  # one step held up
    assert all(a[0] < b[0] for a, b in pairwise(marks))
    times = step_times([(a / 1e3, b / 1e3, host) for a, b, host in marks])
    assert (round(times.period, 6), round(times.idle, 6), times.host) == (10.0, 3.0, 2.0)


@pytest.mark.parametrize(
    ("times", "device", "is_recorded", "options", "expected"),
    [
        (
            StepTimes(20.0, 8.0, 1.0),
            "cuda",
            True,
            {},
            "loader-bound: 20.0 ms a step, of which 40%.*augment_device: gpu",
        ),
        (StepTimes(20.0, 8.0, 1.0), "cuda", True, {"augment_device": "gpu"}, "loader-bound.*more data.num_workers"),
        (StepTimes(20.0, 8.0, 1.0), "cpu", False, {}, "loader-bound.*cache_prepared_train_images: true"),
        (StepTimes(80.0, 1.0, 78.0), "cuda", False, {}, "launch-bound: 80.0 ms.*98%.*accelerate: auto"),
        (StepTimes(80.0, 1.0, 78.0), "cuda", True, {}, "compute-bound: 80.0 ms"),
        (StepTimes(80.0, 1.0, 20.0), "cuda", False, {}, "compute-bound"),
        (StepTimes(80.0, 1.0, 78.0), "cpu", False, {}, "compute-bound"),
    ],
)
def test_the_verdict_names_the_number_and_the_option(
    times: StepTimes, device: str, is_recorded: bool, options: dict[str, Any], expected: str
) -> None:
    data = DetectorDataModule("nowhere", **options)
    line = judge(times, device, is_recorded, data)
    assert re.search(expected, line), line


class Counts(Callback):
    """Keeps the update at which every validation happens, and which images every epoch shows."""

    def __init__(self) -> None:
        self.validated_at: list[int] = []
        self.seen: list[list[int]] = []

    def on_train_epoch_start(self, *_: Any) -> None:
        self.seen.append([])

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self.seen[-1] += batch.sample_index.tolist()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self.validated_at.append(trainer.global_step)


def test_epochs_shorter_than_the_plans_have_one_length(fit: Any, tmp_path: Any) -> None:
    counts = Counts()
    fit(tmp_path, callbacks=(counts,), max_epochs=3, limit_train_batches=2)  # of three batches of four
    assert counts.validated_at == [2, 4, 6]
    shown = [index for epoch in counts.seen for index in epoch]
    assert [len(epoch) for epoch in counts.seen] == [8, 8, 8]
    assert sorted(set(shown[:12])) == list(range(10)), "the plan goes on where the epoch before has ended"


def test_after_the_last_of_short_epochs_nothing_is_prepared(
    fit: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, begin = list[int](), TrainLoader._begin

    def noted(self: TrainLoader) -> Any:
        begun.append(self.position)
        return begin(self)

    monkeypatch.setattr(TrainLoader, "_begin", noted)
    fit(tmp_path, max_epochs=2, limit_train_batches=2, limit_val_batches=0)
    assert begun == [0, 2]
