import copy
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lucid_yolo.models.freeze import frozen_parameters
from lucid_yolo.models.network import convolution_weights
from lucid_yolo.optim.musgd import MuSGDConfig
from lucid_yolo.optim.schedule import ScheduleConfig
from lucid_yolo.runtime.precision import forward_context
from lucid_yolo.runtime.state import TrainState
from lucid_yolo.runtime.step import StepConfig, TrainStep
from lucid_yolo.structures import Batch
from lucid_yolo.tasks import DetectTask
from tiny_run import NUM_CLASSES, SIZE_PX, assert_same_bytes, make_batch, make_network, make_step, snapshot

SIZE = (SIZE_PX, SIZE_PX)
LEARNED = ("params", "momentum", "ema", "committed_buffers")
NO_RATES = torch.tensor([[0.0, 0.9, 0.8, 0.5]])


def with_bad_pixel(batch: Batch, value: float = float("nan")) -> Batch:
    """The same batch with one float pixel that is not finite, past the type of the field."""
    images = batch.images.float()
    images[0, 1, 5, 7] = value
    object.__setattr__(batch, "images", images)
    return batch


def named_metrics(names: tuple[str, ...], values: torch.Tensor) -> dict[str, float]:
    return dict(zip(names, values.tolist(), strict=True))


def bad_updates(state: TrainState) -> tuple[int, int, int]:
    """Skipped in all, skipped in a row, first of the row."""
    return int(state.num_skipped), int(state.bad_run_length), int(state.first_bad_update)


def buffers_of(state: TrainState) -> torch.Tensor:
    return torch.cat([buffer.flatten() for buffer in state.network.buffers()]).clone()


def test_step_changes_everything_it_should() -> None:
    step = make_step()
    before = snapshot(step.state)
    metrics = named_metrics(step.metric_names, step.run(make_batch(0)))
    assert step.metric_names[0] == "loss"
    assert step.metric_names[1:4] == ("o2m/box", "o2m/l1", "o2m/cls")
    assert metrics["is_finite"] == 1
    assert metrics["grad_norm"] > 0
    after = snapshot(step.state)
    for name in LEARNED:
        assert not torch.equal(before[name], after[name]), name
    assert after["update_index"].item() == 1


def test_loss_is_the_weighted_sum_of_its_terms() -> None:
    step = make_step()
    for _ in range(2):
        metrics = named_metrics(step.metric_names, step.run(make_batch(0)))
    one_to_many = sum(metrics[f"o2m/{term}"] for term in ("box", "l1", "cls"))
    one_to_one = sum(metrics[f"o2o/{term}"] for term in ("box", "l1", "cls"))
    assert metrics["loss"] == pytest.approx(0.8 * one_to_many + 0.2 * one_to_one, rel=1e-5)


def test_terms_are_normalised_by_the_sum_of_soft_targets() -> None:
    network, batch, task = make_network(), make_batch(0), DetectTask(NUM_CLASSES)
    step = make_step(network=network)
    with torch.no_grad():
        terms = task.criterion(network(batch.images.float() / 255), batch.targets, step.points)
    buffers = step.state.committed_buffers
    step.state.buffers.copy_(buffers)
    metrics = named_metrics(step.metric_names, step.run(batch))
    for row, branch in enumerate(("o2m", "o2o")):
        for column, (name, gain) in enumerate((("box", 7.5), ("l1", 6.0), ("cls", 0.5))):
            expected = gain * terms.sums[row, column] / max(terms.normalizers[row].item(), 1.0)
            assert metrics[f"{branch}/{name}"] == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("config", [StepConfig(SIZE), StepConfig(SIZE, precision="bf16")], ids=["fp32", "bf16"])
def test_capacity_changes_no_byte(config: StepConfig) -> None:
    states, metrics = [], []
    for capacity in (64, 256):
        step = make_step(config=config)
        rows = [step.run(make_batch(seed, 9, capacity=capacity, num_ignored=2)) for seed in range(3)]
        states.append(snapshot(step.state))
        metrics.append({"metrics": torch.stack(rows)})
    assert_same_bytes(*states)
    assert_same_bytes(*metrics)


@pytest.mark.parametrize("num_ignored", [0, 3], ids=["empty", "ignore regions only"])
def test_batch_without_objects(num_ignored: int) -> None:
    step = make_step()
    losses = step.micro_step(make_batch(0, num_ignored, num_ignored=num_ignored))
    named = named_metrics(step.metric_names[:-2], losses)
    assert [named[f"{branch}/{term}"] for branch in ("o2m", "o2o") for term in ("box", "l1")] == [0.0] * 4
    assert named["o2m/cls"] > 0
    for name, parameter in step.state.network.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
    box_stems = [p for name, p in step.state.network.named_parameters() if ".stems.box." in name]
    assert len(box_stems) == 48
    assert not any(p.grad.any() for p in box_stems), "exactly zero"
    step.update()
    assert all(torch.isfinite(tensor).all() for tensor in step.state.tensors().values())
    assert bad_updates(step.state) == (0, 0, -1)


def test_gradients_are_gathered_in_flat_order() -> None:
    step = make_step()
    step.micro_step(make_batch(0))
    views = step.state.layout.views(step.state.grads)
    for name, parameter in step.state.network.named_parameters():
        assert torch.equal(views[name], parameter.grad), name
    assert step.state.grads.any()


def test_clipping_bounds_the_step() -> None:
    batch = make_batch(0)
    config = MuSGDConfig(muon_w=0.0, sgd_w=1.0, weight_decay=0.0)
    step = make_step(config=StepConfig(SIZE, clip_norm=0.5, optimizer=config))
    norm = named_metrics(step.metric_names, step.run(batch))["grad_norm"]
    assert norm > 0.5, "reported before clipping"
    assert step.state.momentum.norm().item() == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_pixel_that_is_not_finite_changes_nothing(value: float) -> None:
    step = make_step()
    step.run(make_batch(0))
    before, buffers = snapshot(step.state), buffers_of(step.state)
    metrics = named_metrics(step.metric_names, step.run(with_bad_pixel(make_batch(1), value)))
    assert metrics["is_finite"] == 0
    after = snapshot(step.state)
    assert_same_bytes(before, after, (*LEARNED, "exchange", "loss_scale"))
    assert torch.equal(buffers_of(step.state), buffers), "a bad pixel reached the batch-norm statistics"
    assert bad_updates(step.state) == (1, 1, 1)
    assert after["update_index"].item() == 2
    step.run(with_bad_pixel(make_batch(1), value))
    assert bad_updates(step.state) == (2, 2, 1)
    assert named_metrics(step.metric_names, step.run(make_batch(2)))["is_finite"] == 1
    assert bad_updates(step.state) == (2, 0, -1)
    assert not torch.equal(step.state.params, before["params"])
    assert torch.isfinite(step.state.exchange).all()


def test_bad_pixel_in_an_ignored_image_is_noticed() -> None:
    step, batch = make_step(), make_batch(0, 1, num_ignored=1)
    batch.targets.boxes_xyxy_px[:, 0] = torch.tensor([0.0, 0.0, 64.0, 64.0])
    before = snapshot(step.state)
    metrics = named_metrics(step.metric_names, step.run(with_bad_pixel(batch)))
    assert metrics["is_finite"] == 0
    assert_same_bytes(before, snapshot(step.state), (*LEARNED, "exchange"))


@pytest.mark.parametrize("bad", range(4))
def test_one_bad_micro_step_skips_the_update(bad: int) -> None:
    step = make_step(config=StepConfig(SIZE, accumulate=4))
    before, buffers = snapshot(step.state), buffers_of(step.state)
    for micro in range(4):
        batch = make_batch(micro)
        metrics = step.run(with_bad_pixel(batch) if micro == bad else batch)
        assert step.state.update_index.item() == (micro == 3)
        assert named_metrics(step.metric_names, metrics)["is_finite"] == (micro < bad)
    assert_same_bytes(before, snapshot(step.state), (*LEARNED, "exchange"))
    assert torch.equal(buffers_of(step.state), buffers)
    assert bad_updates(step.state) == (1, 1, 0)
    for micro in range(4):
        metrics = step.run(make_batch(micro))
    assert named_metrics(step.metric_names, metrics)["is_finite"] == 1
    assert bad_updates(step.state) == (1, 0, -1)


def test_accumulation_averages_gradients() -> None:
    batches = [make_batch(seed) for seed in range(2)]
    single = make_step()
    gradients = []
    for batch in batches:
        single.micro_step(batch)
        gradients.append({name: p.grad.double() for name, p in single.state.network.named_parameters()})
    step = make_step(config=StepConfig(SIZE, accumulate=2))
    for batch in batches:
        step.micro_step(batch)
    for name, view in step.state.layout.views(step.state.grads).items():
        expected = (gradients[0][name] + gradients[1][name]) / 2
        torch.testing.assert_close(view.double(), expected, rtol=1e-5, atol=1e-7)
    assert torch.equal(buffers_of(single.state), buffers_of(step.state))


def test_accumulating_the_same_batch_equals_one_step_of_it() -> None:
    batch = make_batch(0)
    single, double = make_step(), make_step(config=StepConfig(SIZE, accumulate=2))
    single.run(batch)
    for _ in range(2):
        double.run(batch)
    assert torch.equal(single.state.params, double.state.params)
    assert double.state.update_index.item() == 1


def test_without_rate_and_decay_parameters_keep_their_bytes() -> None:
    config = StepConfig(SIZE, optimizer=MuSGDConfig(weight_decay=0.0))
    step = make_step(schedule=ScheduleConfig(lr0=0.0), config=config)
    before = snapshot(step.state)
    for seed in range(3):
        step.run(make_batch(seed))
    assert_same_bytes(before, snapshot(step.state), ("params",))
    assert step.state.momentum.any()


def test_schedule_is_read_at_the_update_index() -> None:
    step = make_step(config=StepConfig(SIZE, optimizer=MuSGDConfig(weight_decay=0.0)))
    step.schedule = NO_RATES.repeat(3, 1)
    step.schedule[1, 0] = 0.01
    moved = []
    for seed in range(4):
        before = step.state.params.clone()
        step.run(make_batch(seed))
        moved.append(not torch.equal(before, step.state.params))
    assert moved == [False, True, False, False], "behind the end the last row stays"


def test_average_follows_the_scheduled_rate() -> None:
    step = make_step(schedule=ScheduleConfig(ema_decay=0.9, ema_ramp=1.0))
    expected = step.state.ema.double()
    for seed in range(3):
        step.run(make_batch(seed))
        rate = step.schedule[seed, 3].double()
        expected = expected + rate * (step.state.params.double() - expected)
    torch.testing.assert_close(step.state.ema.double(), expected, rtol=1e-6, atol=1e-7)


def run_bytes(seed: int, num_steps: int) -> dict[str, torch.Tensor]:
    step = make_step(seed)
    for index in range(num_steps):
        step.run(make_batch(index))
    return snapshot(step.state)


class CountCasts(TorchDispatchMode):
    """Counts copies into another type, also those of the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.number += func is torch.ops.aten._to_copy.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("frozen", [[], ["backbone", "head.one_to_many"]], ids=["all", "frozen"])
def test_weights_cast_at_once_give_the_gradients_of_autocast(frozen: list[str]) -> None:
    step, batch = make_step(config=StepConfig(SIZE, precision="bf16")), make_batch(0)
    step.freeze(frozen_parameters(step.state.network, frozen))
    plain = copy.deepcopy(step.state.network).requires_grad_(False)
    trained = {name: p for name, p in plain.named_parameters() if name not in step.state.frozen}
    for parameter in trained.values():
        parameter.requires_grad_()
    with CountCasts() as by_autocast:
        with forward_context("bf16", torch.device("cpu")):
            prediction = plain(batch.images.float().mul(1 / 255))
        loss, _ = step._loss(step.task.criterion(prediction, batch.targets, step.points))
        loss.backward()
    with CountCasts() as at_once:
        losses = step.micro_step(batch)
    assert torch.equal(losses[0], loss.detach())
    found = step.state.layout.views(step.state.grads)
    assert [name for name, p in trained.items() if not torch.equal(found[name], p.grad)] == []
    num_convolutions = len(convolution_weights(plain))
    assert at_once.number <= by_autocast.number - num_convolutions + 1


def test_same_seed_same_bytes_and_other_seed_other_bytes() -> None:
    assert_same_bytes(run_bytes(0, 3), run_bytes(0, 3))
    assert not torch.equal(run_bytes(0, 1)["params"], run_bytes(1, 1)["params"])


def test_low_precision_step_keeps_a_float32_state() -> None:
    exact, low = make_step(), make_step(config=StepConfig(SIZE, precision="bf16"))
    losses = [named_metrics(step.metric_names, step.run(make_batch(0)))["loss"] for step in (exact, low)]
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=0.05)
    for name, tensor in low.state.tensors().items():
        assert tensor.dtype in (torch.float32, torch.int64), name
    for tensor in (*low.state.network.parameters(), *low.state.network.buffers()):
        assert tensor.dtype == torch.float32
    assert torch.isfinite(low.state.params).all()


class TwoRanks:
    """Another rank that has seen exactly what this one has."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def average(self, tensor: torch.Tensor) -> None:
        self.sizes.append(tensor.numel())
        tensor.copy_((tensor + tensor) / 2)


def test_ranks_exchange_the_normalisers_and_one_flat_buffer() -> None:
    alone = make_step()
    ranks = TwoRanks()
    together = TrainStep(TrainState(make_network()), alone.task, alone.schedule, alone.config, ranks)
    for seed in range(2):
        metrics = [step.run(make_batch(seed)) for step in (alone, together)]
        assert torch.equal(*metrics)
    assert ranks.sizes == [2, together.state.exchange.numel()] * 2
    assert_same_bytes(snapshot(alone.state), snapshot(together.state))


def test_accumulate_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="accumulate: expected at least 1, found 0"):
        make_step(config=StepConfig(SIZE, accumulate=0))
