"""A fit that scores one head in a second process has the numbers of one that does not, and leaves no process behind."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lucid_yolo.data.dataset import open_split
from lucid_yolo.engine import module as engine_module
from lucid_yolo.engine.module import DetectorModule
from lucid_yolo.evaluate import BoxMetrics
from lucid_yolo.runtime import scoring
from lucid_yolo.runtime.scoring import ScoringProcess


def test_a_fit_has_the_same_numbers(fit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processes, answers = [], []
    start, answer = ScoringProcess.__init__, ScoringProcess.answer

    def noted_start(self: ScoringProcess, *args: object) -> None:
        start(self, *args)  # type: ignore[arg-type]
        processes.append(self._process)
        assert self._connection.poll(120.0)

    def noted_answer(self: ScoringProcess) -> BoxMetrics | None:
        answers.append(answer(self))
        return answers[-1]

    monkeypatch.setattr(scoring, "MIN_BESIDE", 1)
    monkeypatch.setattr(ScoringProcess, "__init__", noted_start)
    monkeypatch.setattr(ScoringProcess, "answer", noted_answer)
    fit(tmp_path / "plain")
    assert not processes
    monkeypatch.setattr(DetectorModule, "_may_score_beside", lambda self, split: True)
    fit(tmp_path / "beside")
    assert len(processes) == 1
    assert len(answers) == 3
    assert None not in answers
    assert not processes[0].is_alive()
    first, second = ((tmp_path / name / "metrics.csv").read_text(encoding="utf-8") for name in ("plain", "beside"))
    assert first == second


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"train_step": None}, False),
        ({"device": torch.device("cpu")}, False),
        ({"world_size": 2}, False),
        ({"pays": False}, False),
        ({"has_workers": False}, False),
    ],
    ids=["a fit on one GPU", "no fit", "CPU", "two ranks", "few images", "no workers"],
)
def test_where_a_second_process_is_started(
    change: dict[str, Any], expected: bool, shapes_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = {"train_step": object(), "device": torch.device("cuda"), "world_size": 1, "pays": True, "has_workers": True}
    case |= change
    monkeypatch.setattr(engine_module, "pays_beside", lambda num_images: case["pays"])
    monkeypatch.setattr(engine_module, "detector_data", lambda trainer: SimpleNamespace(**case))
    fitted: Any = SimpleNamespace(trainer=SimpleNamespace(**case), **case)
    assert DetectorModule._may_score_beside(fitted, open_split(shapes_root, "val")) is expected
