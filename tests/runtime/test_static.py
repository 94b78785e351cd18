from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from static_guard import NotStaticError, StaticGuard

from lucid_yolo.runtime.step import StepConfig, TrainStep
from tiny_run import make_batch, make_step


@pytest.mark.parametrize(
    "config",
    [
        StepConfig((64, 64)),
        StepConfig((64, 64), precision="bf16"),
        StepConfig((64, 64), accumulate=2),
        StepConfig((64, 64), clip_norm=0.0),
    ],
    ids=["fp32", "bf16", "accumulate", "no clipping"],
)
def test_whole_step_is_static(config: StepConfig) -> None:
    step, batch = make_step(config=config), make_batch(0, num_ignored=1)
    with StaticGuard() as guard:
        for _ in range(config.accumulate):
            step.run(batch)
    assert guard.seen["convolution_backward"] >= 90, "the backward pass is seen"
    assert guard.seen["baddbmm"] > 0, "the update is seen"
    assert guard.seen["topk"] > 0, "the assigner is seen"


@pytest.fixture(scope="module")
def bare_step() -> TrainStep:
    return make_step()


def test_steps_have_the_same_operations_whatever_the_targets(bare_step: TrainStep) -> None:
    counts = []
    for num_objects in (0, 9):
        batch = make_batch(1, num_objects)
        with StaticGuard() as guard:
            bare_step.run(batch)
        counts.append(guard.seen)
    assert counts[0] == counts[1]


X = torch.arange(6.0)
MASK = X > 2
TENSOR_INDEX = torch.tensor(1)


def branch_on_value() -> None:
    if X.sum() > 1:
        pass


ONES = torch.ones(6, requires_grad=True)
PICKED = ONES[MASK].sum()  # its backward pass scatters by the mask


@pytest.mark.parametrize(
    "offence",
    [
        lambda: X.sum().item(),
        lambda: X[MASK],
        lambda: X.clone().__setitem__(MASK, 0.0),
        lambda: X[TENSOR_INDEX],
        lambda: X[torch.tensor([0, 1])],
        lambda: torch.nonzero(X),
        lambda: torch.where(MASK),
        lambda: torch.masked_select(X, MASK),
        lambda: X.unique(),
        lambda: F.one_hot(X.long()),
        lambda: torch.add(X, X, alpha=TENSOR_INDEX),
        lambda: X.repeat_interleave(X.long()),
        lambda: X.tolist() and float(X[0]),
        lambda: torch.equal(X, X),
        lambda: X.to("meta"),
        branch_on_value,
        lambda: PICKED.backward(),
    ],
)
def test_guard_catches(offence: Callable[[], object]) -> None:
    with pytest.raises(NotStaticError), StaticGuard():
        offence()


def test_guard_lets_plain_work_pass() -> None:
    with StaticGuard() as guard:
        torch.where(MASK, X, 0.0).to(torch.bfloat16).float().clamp(min=0).sum()
    assert guard.seen["_to_copy"] == 2
