"""The page that a fit leaves behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lucid_yolo.engine.run_report import BatchClock, RunReport


def test_page_of_a_fit(fit: Any, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "config.yaml").write_text("model: {note: <b>}\n", "utf-8")
    fit(run_dir, max_epochs=2, callbacks=(RunReport(run_dir),))
    text = (run_dir / "report.html").read_text("utf-8")
    best = json.loads((run_dir / "report.json").read_text("utf-8"))["metrics"]
    for head in ("one_to_one", "one_to_many"):
        assert f"{best[head]['ar_max']:.4f}" in text
    assert "0 replayed, 6 eager, 0 recordings" in text
    assert "over 4 batches" in text
    assert "Evaluation of the best checkpoint on split val" in text
    assert "model: {note: &lt;b&gt;}" in text
    assert all(word in text for word in ("images per second", "cross", "grad_norm", "commit"))


def test_page_without_validation(fit: Any, tmp_path: Path) -> None:
    fit(tmp_path, max_epochs=1, limit_val_batches=0, callbacks=(RunReport(tmp_path),))
    text = (tmp_path / "report.html").read_text("utf-8")
    assert "Without validation" in text
    assert ">Training</h2>" in text
    assert ">Metrics</h2>" not in text


def test_page_says_whose_evaluation_it_shows(fit: Any, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    fit(first, max_epochs=1)
    best = first / "checkpoints" / "best.ckpt"
    saved = torch.load(best, weights_only=True)
    saved["callbacks"]["RunCheckpoint"]["best_score"] = 2.0  # nothing will be better
    torch.save(saved, best)
    fit(second, best, max_epochs=2, module={"resume_override": True}, callbacks=(RunReport(second),))
    assert "Evaluation of the last weights on split val" in (second / "report.html").read_text("utf-8")


def test_clock_leaves_pauses_out(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10.0, 11.0, 13.0, 50.0, 54.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(times))
    clock = BatchClock()
    for _ in range(3):
        clock.tick()
    clock.pause()
    for _ in range(2):
        clock.tick()
    assert (clock.num_batches, clock.seconds) == (3, 7.0)
