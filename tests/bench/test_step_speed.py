from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lucid_yolo.bench.device_work import busy_time, device_work
from lucid_yolo.bench.step import StepBench, StepTiming, measure_step
from lucid_yolo.optim.musgd import MuSGD

TIMING = StepTiming(
    batch_size=4,
    capacity=64,
    floor_ms=4.0,
    compute_ms=40.0,
    recorded_ms=5.0,
    is_equal=True,
    busy_percent=12.0,
    recorded_busy_percent=97.0,
    num_device_operations=900.0,
    loader_ms=3.0,
    end_to_end_ms=5.5,
    images_per_s=727.0,
    peak_mib=900.0,
    recorded_peak_mib=1000.0,
)


@pytest.mark.parametrize(
    ("timing", "verdict"),
    [
        (TIMING, "launch-bound"),
        (replace(TIMING, loader_ms=6.0), "loader-bound"),
        (replace(TIMING, busy_percent=85.0), "compute-bound"),
        (replace(TIMING, busy_percent=None, recorded_ms=None, loader_ms=None), "compute-bound"),
        (replace(TIMING, recorded_ms=None, loader_ms=39.0), "launch-bound"),
    ],
)
def test_the_verdict_names_what_limits_training(timing: StepTiming, verdict: str) -> None:
    assert timing.to_dict()["verdict"] == verdict


def test_ratios() -> None:
    assert (TIMING.floor_ratio, TIMING.gain) == (1.25, 8.0)
    alone = replace(TIMING, recorded_ms=None, floor_ms=None)
    assert (alone.floor_ratio, alone.gain) == (None, None)


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], 0.0),
        ([(0.0, 2.0), (3.0, 4.0)], 3.0),
        ([(3.0, 4.0), (0.0, 2.0), (1.0, 3.5)], 4.0),
        ([(0.0, 9.0), (2.0, 3.0), (4.0, 5.0)], 9.0),
    ],
)
def test_overlapping_work_counts_once(spans: list[tuple[float, float]], expected: float) -> None:
    assert busy_time(spans) == expected


def test_without_a_gpu_there_is_no_recorded_column(drawn_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MuSGD, "orthogonalize", lambda _, update: update)
    bench = StepBench(image_size_px=64, device="cpu", num_steps=1, data_root=str(drawn_root), num_workers=0)
    timing = measure_step(bench, batch_size=2, has_floor=True)
    assert device_work(lambda: None, torch.device("cpu")) is None
    assert (timing.recorded_ms, timing.is_equal, timing.num_device_operations) == (None, None, None)
    for ms in (timing.floor_ms, timing.compute_ms, timing.loader_ms, timing.end_to_end_ms):
        assert ms is not None
        assert ms > 0
    assert timing.images_per_s == pytest.approx(2000 / timing.end_to_end_ms)
