"""A second process scores as this one does, and what happens to it changes no number."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lucid_yolo.evaluate import BoxMetrics, ImageDetections
from lucid_yolo.runtime import scoring
from lucid_yolo.runtime.scoring import ScoringProcess, pays_beside, score_branch
from lucid_yolo.structures import ClassMap, ImageRecord

CLASSES = ClassMap.from_names(["a", "b"])
START_S = 120.0


def some_split(seed: int) -> tuple[list[ImageRecord], list[ImageDetections]]:
    """Objects and detections near them in six images; the detections of one image are missing."""
    rng = np.random.default_rng(seed)
    records, rows = [], []
    for image_id in range(6):
        corner = rng.uniform(0, 80, (5, 2))
        boxes, labels = np.concatenate([corner, corner + rng.uniform(8, 40, (5, 2))], axis=1), rng.integers(0, 2, 5)
        ignored, area = np.arange(5) == 4, np.full(5, 900.0)
        records.append(ImageRecord(f"{image_id}.jpg", image_id, 99, 99, boxes, labels, ignored, area, 5))
        near, source = np.sort(rng.random(30).astype(np.float32))[::-1], rng.integers(0, 5, 30)
        rows.append(ImageDetections(image_id, boxes[source] + rng.normal(0, 2, (30, 4)), near, labels[source]))
    return records, rows[:-1]


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScoringProcess]:
    monkeypatch.setattr(scoring, "MIN_BESIDE", 1)
    process = ScoringProcess(some_split(0)[0], CLASSES)
    assert process._connection.poll(START_S)
    yield process
    process.close()
    assert not process._process.is_alive()


def in_place(rows: list[ImageDetections]) -> BoxMetrics:
    return score_branch("x", some_split(0)[0], rows, CLASSES)


def test_has_the_numbers_of_this_process_epoch_after_epoch(process: ScoringProcess) -> None:
    for seed in range(3):
        rows = [replace(row, score=row.score / (seed + 1)) for row in some_split(0)[1][seed:]]
        assert process.ask("one_to_one", rows)
        found = process.answer()
        assert repr(found) == repr(in_place(rows))
        assert found is not None
        assert found.map > 0


def test_says_here_what_there_is_to_say_once(process: ScoringProcess, caplog: pytest.LogCaptureFixture) -> None:
    assert process.ask("one_to_one", some_split(0)[1])
    assert process.answer() is not None
    assert [(r.name, r.levelname, r.getMessage()) for r in caplog.records] == [
        ("lucid_yolo.runtime.scoring", "WARNING", "one_to_one: scored on 5 of 6 images")
    ]


def test_few_detections_are_not_sent(process: ScoringProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = some_split(0)[1]
    monkeypatch.setattr(scoring, "MIN_BESIDE", sum(len(row.score) for row in rows) + 1)
    assert not process.ask("one_to_one", rows)


def test_an_answer_that_nobody_took_is_never_given(process: ScoringProcess) -> None:
    assert process.ask("one_to_one", some_split(0)[1])
    assert not process.ask("one_to_one", some_split(0)[1][1:])


def test_died_between_two_epochs(process: ScoringProcess, caplog: pytest.LogCaptureFixture) -> None:
    assert process.ask("one_to_one", some_split(0)[1])
    assert process.answer() is not None
    caplog.clear()
    process._process.kill()
    process._process.join()
    for _ in range(3):
        assert not process.ask("one_to_one", some_split(0)[1])
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "gone" in caplog.text


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stands still"])
def test_no_answer(
    process: ScoringProcess, is_killed: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes after it was asked, and before it can answer."""
    assert process.ask("one_to_one", some_split(0)[1])
    assert process.answer() is not None
    caplog.clear()
    os.kill(process._process.pid or 0, signal.SIGSTOP)
    assert process.ask("one_to_one", some_split(0)[1])
    monkeypatch.setattr(scoring, "WAIT_S", 0.1)
    if is_killed:
        os.kill(process._process.pid or 0, signal.SIGKILL)
    assert process.answer() is None
    assert not process.ask("one_to_one", some_split(0)[1])
    assert [r.levelname for r in caplog.records] == ["WARNING"]


def test_cannot_start(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def no_process(self: Any) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(scoring, "MIN_BESIDE", 1)
    monkeypatch.setattr("multiprocessing.process.BaseProcess.start", no_process)
    process = ScoringProcess(some_split(0)[0], CLASSES)
    assert not process.ask("one_to_one", some_split(0)[1])
    process.close()
    assert [r.levelno for r in caplog.records] == [logging.WARNING]
    assert "no more processes" in caplog.text


@pytest.mark.parametrize(("num_images", "cores", "expected"), [(1, 16, False), (5000, 16, True), (5000, 1, False)])
def test_when_it_pays(num_images: int, cores: int, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "usable_cores", lambda: cores)
    assert pays_beside(num_images) is expected
