"""Frozen parameters keep their bytes, and the rest of the step does not notice."""

from __future__ import annotations

import pytest
import torch
from static_guard import StaticGuard

from lucid_yolo.models.freeze import frozen_parameters
from lucid_yolo.optim.musgd import MuSGDConfig
from lucid_yolo.runtime.step import StepConfig, TrainStep
from tiny_run import SIZE_PX, assert_same_bytes, make_batch, make_step, snapshot

SIZE = (SIZE_PX, SIZE_PX)
FLAT = ("params", "momentum", "ema")


class ThreeRanks:
    """Averages as three equal ranks do: the sum of three, divided, which rounds."""

    def average(self, tensor: torch.Tensor) -> None:
        tensor.copy_((tensor + tensor + tensor) / 3)


def frozen_step(freeze: int | list[str], config: StepConfig | None = None) -> TrainStep:
    step = make_step(config=config)
    step.freeze(frozen_parameters(step.state.network, freeze))
    return step


def parts(step: TrainStep) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return copies of every parameter, momentum, average and statistic: (frozen ones, the others)."""
    state = step.state
    named = {f"{flat} {n}": t for flat in FLAT for n, t in state.layout.unpack(getattr(state, flat)).items()}
    named |= {f"buffers {n}": t for n, t in state.buffer_layout.unpack(state.buffers).items()}
    named |= {f"committed {n}": t for n, t in state.buffer_layout.unpack(state.committed_buffers).items()}
    owners = {name.rpartition(".")[0] for name in state.frozen}
    is_frozen = {key: key.split()[1].rpartition(".")[0] in owners for key in named}
    named = {key: tensor.reshape(-1) for key, tensor in named.items()}
    kept = {key: tensor for key, tensor in named.items() if is_frozen[key]}
    return kept, {key: tensor for key, tensor in named.items() if not is_frozen[key]}


@pytest.mark.parametrize("freeze", [3, 11, ["neck", "head.one_to_many.class"]], ids=str)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_frozen_bytes_stay_and_all_others_move(freeze: int | list[str], accumulate: int) -> None:
    decay = MuSGDConfig(weight_decay=0.5)
    step = frozen_step(freeze, StepConfig(SIZE, accumulate=accumulate, optimizer=decay))
    step.collective = ThreeRanks()
    frozen, others = parts(step)
    for seed in range(3 * accumulate):
        step.run(make_batch(seed))
    frozen_after, others_after = parts(step)
    assert_same_bytes(frozen, frozen_after)
    still = [name for name, tensor in others.items() if torch.equal(tensor, others_after[name])]
    unseen = "one_to_one.stems.box.2"  # no object of these batches belongs to it
    assert not any(name.startswith(("momentum", "buffers", "committed")) and unseen not in name for name in still)
    assert len(still) < 0.2 * len(others)


def test_momentum_and_average_of_a_late_freeze_stay() -> None:
    step = make_step(config=StepConfig(SIZE, accumulate=2))
    for seed in range(4):
        step.run(make_batch(seed))
    step.freeze(frozen_parameters(step.state.network, ["backbone"]))
    frozen, _ = parts(step)
    assert any(tensor.any() for name, tensor in frozen.items() if name.startswith("momentum"))
    for seed in range(4):
        step.run(make_batch(seed))
    assert_same_bytes(frozen, parts(step)[0])
    step.freeze(())
    for seed in range(2):
        step.run(make_batch(seed))
    after = step.state.layout.unpack(step.state.params)
    weights = [key for key in frozen if key.startswith("params") and key.endswith("conv.weight")]
    assert weights
    assert not any(torch.equal(after[key.split()[1]].reshape(-1), frozen[key]) for key in weights)


def test_freezing_nothing_changes_no_byte() -> None:
    plain, asked = make_step(), frozen_step(0)
    for step in (plain, asked):
        for seed in range(3):
            step.run(make_batch(seed))
    assert_same_bytes(snapshot(plain.state), snapshot(asked.state))


def test_no_graph_is_built_below_the_first_trained_layer() -> None:
    counts = []
    for freeze in (0, 11):
        step, batch = frozen_step(freeze), make_batch(0)
        with StaticGuard() as guard:
            step.run(batch)
        counts.append(guard.seen)
    convolutions = [count["convolution"] for count in counts]
    backward = [count["convolution_backward"] for count in counts]
    assert convolutions[0] == convolutions[1]
    assert backward[1] < 0.7 * backward[0]
    products = [count["baddbmm"] for count in counts]
    assert 0 < products[1] <= products[0]


def test_a_recording_is_of_one_freeze() -> None:
    step, batch = make_step(), make_batch(0)
    free = step.key(batch)
    step.freeze(frozen_parameters(step.state.network, 11))
    assert step.key(batch) != free
    step.freeze(())
    assert step.key(batch) == free


def test_masks_follow_the_network() -> None:
    step = frozen_step(11)
    step.state.network.to("cpu")
    assert step.state.is_trained is not None
    assert step.state.is_tracked is not None
    num_frozen = sum(step.state.layout.shapes[name].numel() for name in step.state.frozen)
    assert int((~step.state.is_trained).sum()) == num_frozen


def test_unknown_names_and_half_updates_are_refused() -> None:
    step = make_step(config=StepConfig(SIZE, accumulate=2))
    with pytest.raises(ValueError, match="has no parameters nose"):
        step.freeze(["nose"])
    step.run(make_batch(0))
    with pytest.raises(ValueError, match="found micro-steps"):
        step.freeze(["neck.down3.conv.weight"])
