import math

import pytest
import torch

from lucid_yolo.optim.schedule import COLUMNS, RunLength, ScheduleConfig, build_schedule, warmup_updates


def column(table: torch.Tensor, name: str) -> list[float]:
    return table[:, COLUMNS.index(name)].tolist()


def test_table_has_a_row_per_update() -> None:
    table = build_schedule(ScheduleConfig(), RunLength(30, 20))
    assert table.shape == (600, 4)
    assert table.dtype == torch.float32
    assert COLUMNS == ("lr", "momentum", "one_to_many_weight", "ema_rate")


@pytest.mark.parametrize(
    ("epochs", "run", "expected", "reason"),
    [
        (3.0, RunLength(100, 100), 300, "the configured epochs"),
        (3.0, RunLength(100, 100, accumulate=4), 75, "counted in updates"),
        (3.0, RunLength(100, 20), 200, "at most a tenth of the run"),
        (3.0, RunLength(10, 30), 50, "at least 50 updates"),
        (3.0, RunLength(10, 2), 20, "never longer than the run"),
        (0.99, RunLength(10_000, 80), 9900, "part of an epoch"),
        (0.0, RunLength(100, 100), 0, "none"),
    ],
)
def test_warmup_length(epochs: float, run: RunLength, expected: int, reason: str) -> None:
    assert warmup_updates(ScheduleConfig(warmup_epochs=epochs), run) == expected, reason


@pytest.mark.parametrize(
    ("run", "expected"),
    [(RunLength(10, 3), 30), (RunLength(10, 3, 4), 7), (RunLength(1, 1, 4), 1)],
)
def test_number_of_updates(run: RunLength, expected: int) -> None:
    assert run.num_updates == expected
    assert len(build_schedule(ScheduleConfig(), run)) == expected


def test_update_that_straddles_epochs_has_the_weight_of_its_first_batch() -> None:
    weight = column(build_schedule(ScheduleConfig(), RunLength(10, 3, accumulate=4)), "one_to_many_weight")
    assert weight == pytest.approx([0.8, 0.8, 0.8, 0.45, 0.45, 0.1, 0.1])


def test_learning_rate_rises_then_falls_linearly() -> None:
    lr = column(build_schedule(ScheduleConfig(lr0=0.02, lrf=0.1), RunLength(50, 20)), "lr")
    warmup, total = 100, 1000
    for t in (0, 1, 50, 98, 99, 100, 500, 999):
        ramp = min((t + 1) / warmup, 1.0)
        assert lr[t] == pytest.approx(0.02 * ramp * (1 - 0.9 * t / total), rel=1e-6)
    assert max(lr) == lr[warmup - 1]
    assert lr[-1] == pytest.approx(0.02 * (0.1 + 0.9 / total), rel=1e-6)


def test_momentum_reaches_its_value_at_the_end_of_the_warmup() -> None:
    momentum = column(build_schedule(ScheduleConfig(), RunLength(50, 20)), "momentum")
    assert 0.8 <= momentum[0] < 0.81
    assert momentum[49] == pytest.approx(0.8 + 0.137 * 0.5, abs=1e-6)
    assert momentum[99:] == pytest.approx([0.937] * 901, abs=1e-6)


def test_without_warmup_the_peak_comes_first() -> None:
    table = build_schedule(ScheduleConfig(warmup_epochs=0.0), RunLength(50, 20))
    assert table[0, 0].item() == pytest.approx(0.01)
    assert table[0, 1].item() == pytest.approx(0.937)


def test_branch_weight_is_constant_within_an_epoch() -> None:
    weight = column(build_schedule(ScheduleConfig(), RunLength(7, 5)), "one_to_many_weight")
    for t, value in enumerate(weight):
        epoch = t // 7
        assert value == pytest.approx(max(1 - epoch / 4, 0) * (0.8 - 0.1) + 0.1, abs=1e-6)
    assert weight[:7] == [weight[0]] * 7
    assert weight[-7:] == pytest.approx([0.1] * 7, abs=1e-6)


def test_single_epoch_keeps_the_first_branch_weight() -> None:
    assert column(build_schedule(ScheduleConfig(), RunLength(4, 1)), "one_to_many_weight") == pytest.approx([0.8] * 4)


def test_averaging_rate_is_one_minus_the_ramped_decay() -> None:
    rate = column(build_schedule(ScheduleConfig(), RunLength(1000, 40)), "ema_rate")
    for t in (0, 1999, 39_999):
        assert rate[t] == pytest.approx(1 - 0.9999 * (1 - math.exp(-(t + 1) / 2000)), rel=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr0": -0.1}, "lr0=-0.1"),
        ({"lrf": 1.5}, "lrf=1.5"),
        ({"one_to_many_start": 1.2}, "one_to_many_start"),
        ({"one_to_many_end": -0.1}, "one_to_many_end"),
    ],
)
def test_bad_values_are_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ScheduleConfig(**changes)
