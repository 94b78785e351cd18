"""Equal arms are found equal, and faults planted in one arm are found and located."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from lucid_yolo.bench.fault import flip_last_bit, plant_fault
from lucid_yolo.bench.prove import Proof, prove
from lucid_yolo.engine.arms import Arms
from lucid_yolo.runtime.step import TrainStep
from lucid_yolo.structures import Batch, LossTerms

BuildArms = Callable[..., Arms]


def failed(proof: Proof, step: int | None = None) -> tuple[str, str, str]:
    """Return (differing item, stage, place) of a proof that must have failed, at ``step`` if given."""
    assert not proof.is_equal
    assert proof.failure is not None
    assert proof.failure.location is not None
    assert proof.failure.step == proof.num_steps
    assert step in (None, proof.num_steps)
    return proof.failure.difference.item, proof.failure.location.stage, proof.failure.location.name


@pytest.mark.parametrize("accumulate", [1, 2])
def test_equal_arms_are_equal(arms: BuildArms, accumulate: int) -> None:
    built = arms(accumulate=accumulate)
    proof = prove(built, 7)  # more than an epoch of five batches
    assert proof.is_equal
    assert proof.plain_sha256 == proof.accelerated_sha256
    assert (proof.num_steps, proof.num_updates) == (7, 7 // accumulate)
    assert (proof.plain_counts.eager, proof.accelerated_counts.eager) == (7, 7)
    assert built.data.train_dataloader().position == 7
    text = proof.to_markdown({"data": "drawn"})
    assert text.startswith("# Plain against accelerated: equal, both eager\n\n* data: drawn\n")
    assert "the device is cpu" in text


def test_a_fault_in_a_module_is_located_in_it(arms: BuildArms) -> None:
    place = "neck.out3.split.act"
    item, stage, name = failed(prove(arms(before=partial(plant_fault, place=place)), 3))
    assert (stage, name) == ("forward", f"{place} (SiLU)")
    assert item


def test_a_fault_in_the_update_is_located_there(arms: BuildArms) -> None:
    item, stage, name = failed(prove(arms(before=partial(plant_fault, place="update")), 3))
    assert item == name == "params: backbone.stem.0.conv.weight[0, 0, 0, 0]"
    assert stage == "update"


def test_a_fault_between_updates_is_found_in_its_micro_step(arms: BuildArms) -> None:
    built = arms(accumulate=2, before=partial(spoil_later, first_bad_call=3))
    assert failed(prove(built, 6), step=3)[1:] == ("forward", "neck.out3.split.act (SiLU)")


def spoil_later(step: TrainStep, first_bad_call: int) -> None:
    """Let the fault begin late."""
    calls = []

    def hook(_module: Any, _inputs: Any, output: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        spoiled = output.clone()
        if len(calls) >= first_bad_call:
            flip_last_bit(spoiled)
        return spoiled

    step.state.network.neck.out3.split.act.register_forward_hook(hook)


def spoil_criterion(step: TrainStep) -> None:
    criterion = step.task.criterion

    def spoiled(*args: Any) -> LossTerms:
        terms = criterion(*args)
        flip_last_bit(terms.sums[1, 2:])
        return terms

    object.__setattr__(step.task, "criterion", spoiled)


def spoil_gradient(step: TrainStep) -> None:
    """One bit of the gradient that leaves a module backwards; its own output is right."""

    def hook(_module: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        spoiled = inputs[0].clone()
        spoiled.register_hook(with_flipped_bit)
        return (spoiled,)

    step.state.network.neck.out3.split.act.register_forward_pre_hook(hook)


def with_flipped_bit(gradient: torch.Tensor) -> torch.Tensor:
    gradient = gradient.clone()
    flip_last_bit(gradient)
    return gradient


def spoil_statistic(step: TrainStep) -> None:
    micro_step = step.micro_step

    def spoiled(batch: Batch) -> torch.Tensor:
        losses = micro_step(batch)
        flip_last_bit(step.state.buffers)
        return losses

    step.micro_step = spoiled


def spoil_weight_gradient(step: TrainStep) -> None:
    weight = step.state.network.backbone.stem[0].conv.weight
    weight.register_hook(with_flipped_bit)


@pytest.mark.parametrize(
    ("spoil", "stage", "name"),
    [
        (spoil_criterion, "loss", "o2o/cls"),
        (spoil_gradient, "backward", "neck.out3.split.norm (BatchNorm2d)"),
        (spoil_weight_gradient, "backward", "gradient: backbone.stem.0.conv.weight[0, 0, 0, 0]"),
        (spoil_statistic, "statistics", "statistics: backbone.stem.0.norm.running_mean[0]"),
    ],
)
def test_other_stages_are_told_apart(
    arms: BuildArms, spoil: Callable[[TrainStep], None], stage: str, name: str
) -> None:
    assert failed(prove(arms(before=spoil), 3))[1:] == (stage, name)


def test_a_hook_on_a_weight_is_called_in_half_precision_too(arms: BuildArms) -> None:
    found = failed(prove(arms(before=spoil_weight_gradient, precision="bf16"), 3))
    assert found[1:] == ("backward", "gradient: backbone.stem.0.conv.weight[0, 0, 0, 0]")


def test_a_fault_that_does_not_come_again_is_said_to(arms: BuildArms) -> None:
    calls = []

    def once(step: TrainStep) -> None:
        update = step.update

        def spoiled() -> Any:
            result = update()
            calls.append(1)
            if len(calls) == 2:
                flip_last_bit(step.state.ema)
            return result

        step.update = spoiled

    proof = prove(arms(before=once), 4)
    item, stage, _ = failed(proof, step=2)
    assert item.startswith("ema: backbone.stem.0.conv.weight")
    assert stage == "nowhere"
    assert "run again, the step was equal" in str(proof.failure.location)


def test_a_plain_step_that_does_not_repeat_itself_is_said_to(arms: BuildArms) -> None:
    built = arms()
    generator = torch.Generator().manual_seed(0)
    act = built.plain.step.state.network.neck.out3.split.act
    act.register_forward_hook(lambda _m, _i, y: y + 1e-3 * torch.rand(y.shape, generator=generator))
    proof = prove(built, 2)
    assert failed(proof)[1] == "nowhere"
    assert "does not repeat itself" in str(proof.failure.location)


def test_unequal_initial_states_are_found(arms: BuildArms) -> None:
    built = arms()
    flip_last_bit(built.accelerated.step.state.momentum)
    proof = prove(built, 2)
    assert proof.failure is not None
    assert (proof.failure.step, proof.num_steps, proof.failure.location) == (0, 0, None)
    assert "different in step 0" in proof.to_markdown({})


def test_randomness_is_the_same_in_both_arms(arms: BuildArms) -> None:
    built = arms()
    for arm in (built.plain, built.accelerated):
        arm.step.state.network.neck.out3.split.act.register_forward_hook(lambda _m, _i, y: torch.dropout(y, 0.1, True))
    assert prove(built, 3).is_equal


@pytest.mark.parametrize(
    ("place", "message"), [("neck.missing", "expected 'update' or a module"), ("neck", "one output")]
)
def test_a_fault_needs_a_place(arms: BuildArms, place: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prove(arms(before=partial(plant_fault, place=place)), 1)


def test_no_steps_are_no_proof(arms: BuildArms) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        prove(arms(), 0)
