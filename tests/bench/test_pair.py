"""Two sides are compared run by run; real processes are in the slow tests."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lucid_yolo.bench import pair
from lucid_yolo.bench.pair import FitFailedError, FitRun, PairResult, alternation, measure_pair

TINY = [
    "--config=detect",
    "--data.num_workers=0",
    "--data.batch_size=4",
    "--model.image_size=64",
    "--trainer.accelerator=cpu",
    "--trainer.max_epochs=1",
    "--trainer.num_sanity_val_steps=0",
]
NUMBERS = pair._Numbers(
    ["loss", "o2m/box"],
    torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
    [{"step": 2, "val/map": 0.25, "val/map_small": math.nan}],
    {"network.a": torch.ones(2, 2), "counters.update_index": torch.tensor([2])},
)


def fake_fits(monkeypatch: pytest.MonkeyPatch, **changed: pair._Numbers) -> PairResult:
    """Run three pairs of fits that are not run; ``changed`` says which of them compute something else."""

    def run_fit(name: str, flags: tuple[str, ...], folder: Path) -> tuple[FitRun, pair._Numbers]:
        assert folder.is_dir()
        numbers = changed.get(name, NUMBERS)
        seconds = {"A": 2.0, "B": 1.0}[name[0]] * int(name[1])
        return FitRun(name, seconds, 10.0, None, None, numbers.hashes(), f"as {flags[0]}", "cpu"), numbers

    monkeypatch.setattr(pair, "run_fit", run_fit)
    return measure_pair(["--slow"], ["--fast"], 3)


def test_sides_alternate() -> None:
    assert [side + str(number) for side, number in alternation(3)] == ["A1", "B1", "B2", "A2", "A3", "B3"]


def test_equal_fits_are_equal_and_times_have_their_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    result = fake_fits(monkeypatch)
    assert result.is_equal
    assert result.values("A", "fit_s") == [2.0, 4.0, 6.0]
    text = result.to_markdown({"commit": "abc"})
    assert text.startswith("# Complete fits, A against B: equal\n")
    assert "| fit, s | 4 (2-6) | 2 (1-3) | 2.000 |" in text
    assert "step, ms" not in text
    assert "* final state: equal in all 6 runs, SHA-256" in text
    assert "* steps of B: as --fast\n* commit: abc" in text
    assert json.loads(json.dumps(result.to_dict()))["is_equal"] is True


LATER_LOSS = replace(NUMBERS, losses=torch.tensor([[1.0, 2.0], [3.0, 4.0000005]]))
SHORTER = replace(NUMBERS, losses=NUMBERS.losses[:1])
OTHER_TERMS = replace(NUMBERS, metric_names=["loss", "o2m/l1"])
OTHER_MAP = replace(NUMBERS, validations=[{**NUMBERS.validations[0], "val/map": 0.25000000000000006}])
UNDEFINED_MAP = replace(NUMBERS, validations=[{**NUMBERS.validations[0], "val/map": None}])
MORE_METRICS = replace(NUMBERS, validations=[{**NUMBERS.validations[0], "val/ap50": 0.5}])
NO_VALIDATION = replace(NUMBERS, validations=[])
SIGNED_ZERO = replace(NUMBERS, state={**NUMBERS.state, "network.a": torch.tensor([[1.0, 1.0], [1.0, 1.0000001]])})


@pytest.mark.parametrize(
    ("changed", "item", "text"),
    [
        ({"B2": LATER_LOSS}, "losses", "B2 differs from A1: step 2, o2m/box: 4.0 (0x40800000) against 4.000000"),
        ({"B1": SHORTER}, "losses", "B1 differs from A1: number of steps: 2 against 1"),
        ({"A3": OTHER_TERMS}, "losses", "A3 differs from A1: other loss terms"),
        ({"B1": OTHER_MAP}, "validations", "validation after step 2, val/map: 0.25 against 0.25000000000000006"),
        ({"B1": UNDEFINED_MAP}, "validations", "validation after step 2, val/map: 0.25 against undefined"),
        ({"B3": MORE_METRICS}, "validations", "val/ap50: missing against 0.5"),
        ({"B3": NO_VALIDATION}, "validations", "number of validations: 1 against 0"),
        ({"A2": SIGNED_ZERO, "B3": SIGNED_ZERO}, "state", "A2 differs from A1: network.a[1, 1]"),
    ],
)
def test_the_first_differing_run_and_item_are_named(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, pair._Numbers], item: str, text: str
) -> None:
    result = fake_fits(monkeypatch, **changed)
    assert not result.is_equal
    assert text in (result.differences[item] or "")
    assert [name for name, difference in result.differences.items() if difference] == [item]
    expected = result.runs[0].hashes
    for run in result.runs:
        differing = [name for name in expected if run.hashes[name] != expected[name]]
        assert differing == ([item] if run.name in changed else [])
    assert text in result.to_markdown({})


def test_no_pairs_are_no_measurement() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        measure_pair([], [], 0)


@pytest.mark.slow
def test_two_fits_of_one_configuration_are_equal(drawn_root: Path) -> None:
    flags = [*TINY, f"--data.data_root={drawn_root}"]
    result = measure_pair(flags, flags, 1)
    assert result.is_equal
    assert [run.ran for run in result.runs] == ["0 replayed, 3 eager, 0 recordings; options: none"] * 2
    for run in result.runs:
        assert 0 < run.fit_s < run.process_s
        assert run.step_ms is not None
        assert run.peak_mib is None


@pytest.mark.slow
def test_two_seeds_differ_from_the_first_step_on(drawn_root: Path) -> None:
    flags = [*TINY, f"--data.data_root={drawn_root}", "--trainer.limit_val_batches=0"]
    result = measure_pair(flags, [*flags, "--seed_everything=1"], 1)
    assert (result.differences["losses"] or "").startswith("B1 differs from A1: step 1, loss: ")
    assert (result.differences["state"] or "").startswith("B1 differs from A1: network.backbone.stem.0.conv.weight[")
    assert result.differences["validations"] is None


@pytest.mark.slow
def test_a_failed_fit_shows_its_last_lines(drawn_root: Path) -> None:
    with pytest.raises(FitFailedError, match="fit A1 ended with exit code 2") as caught:
        measure_pair([*TINY, f"--data.data_root={drawn_root / 'nowhere'}"], [], 1)
    assert "nowhere" in str(caught.value).splitlines()[-1]
