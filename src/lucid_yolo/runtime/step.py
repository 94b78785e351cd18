"""The training step: one straight sequence on fixed shapes, without a host synchronisation."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.func import functional_call

from lucid_yolo.data.host import usable_cores
from lucid_yolo.geometry.points import make_anchor_points
from lucid_yolo.graphs import EagerRunner, ReplayRunner, RunCounts, Runner
from lucid_yolo.graphs.runner import Function
from lucid_yolo.kernels.augment import draw_images
from lucid_yolo.kernels.augment.planned_batch import TrainBatch
from lucid_yolo.kernels.launch import rehearsal
from lucid_yolo.models.head import BRANCHES
from lucid_yolo.models.network import convolution_weights
from lucid_yolo.models.scales import STRIDES
from lucid_yolo.optim.clip import clip_by_norm
from lucid_yolo.optim.ema import ema_update
from lucid_yolo.optim.musgd import MuSGD, MuSGDConfig
from lucid_yolo.runtime.gradient_plans import GradientPlans
from lucid_yolo.runtime.precision import HALF_DTYPES, ResolvedPrecision, forward_context
from lucid_yolo.runtime.state import TrainState
from lucid_yolo.structures import Batch, LossTerms, Prediction
from lucid_yolo.tasks.task import Task

GROWTH_INTERVAL = 2000
Span = Literal["step", "micro_step", "update"]
_SHORT = {"one_to_many": "o2m", "one_to_one": "o2o"}


@runtime_checkable
class Collective(Protocol):
    """What the step asks of several devices; both work in place and are uniform over ranks."""

    def average(self, tensor: Tensor) -> None:
        """Replace ``tensor`` by its mean over all ranks."""


@dataclass(frozen=True)
class StepConfig:
    """Constants of the step.

    Attributes:
        image_size_px: (height, width) of the network input.
        precision: Precision of the network forward.
        accumulate: Micro-steps per update; their gradients are averaged.
        clip_norm: Upper bound of the gradient norm; 0 for none.
        optimizer: Constants of the update rule.
    """

    image_size_px: tuple[int, int]
    precision: ResolvedPrecision = "fp32"
    accumulate: int = 1
    clip_norm: float = 10.0
    optimizer: MuSGDConfig = field(default_factory=MuSGDConfig)


class TrainStep:
    """Forward, criterion, backward, clip, update, average and commit.

    Args:
        state: What the step changes.
        task: Criterion and gains.
        schedule: ``[updates, columns]`` table of learning rate, momentum, one-to-many weight, EMA rate.
        config: Constants.
        collective: Averages over ranks; None for a single process.
        source_pixels: Source images on the device, where batches hold plans that point into them.

    Attributes:
        metric_names: Names of the values :meth:`run` returns.
    """

    def __init__(
        self,
        state: TrainState,
        task: Task,
        schedule: Float[Tensor, "updates columns"],
        config: StepConfig,
        collective: Collective | None = None,
        source_pixels: UInt8[Tensor, " num_values"] | None = None,
    ) -> None:
        if config.accumulate < 1:
            raise ValueError(f"accumulate: expected at least 1, found {config.accumulate}")
        device = state.device
        self.state = state
        self.task = task
        self.config = config
        self.collective = collective
        self._source_pixels = source_pixels
        self._plans: GradientPlans | None = None
        self.schedule = schedule.to(device)
        self.points = make_anchor_points(config.image_size_px, STRIDES, device)
        self._parameters = dict(state.network.named_parameters())
        self._gains = torch.tensor(list(task.gains().values()), device=device)
        self._micro_grads = torch.zeros_like(state.grads) if config.accumulate > 1 else state.grads
        self._plan_update()
        terms = [f"{_SHORT[branch]}/{term}" for branch in BRANCHES for term in task.gains()]
        self.metric_names = ("loss", *terms, "grad_norm", "is_finite")
        self._spans: tuple[Span, ...] = ("step",) if config.accumulate == 1 else ("micro_step", "update")
        self._runners: dict[str, Runner] = {}
        self.release()

    def freeze(self, names: Collection[str]) -> None:
        """Freeze these parameters of the state and no others; to be called between updates.

        Recordings are forgotten: they read constants that belong to what was frozen before.

        Args:
            names: Parameters of the network.

        Raises:
            ValueError: An unknown name, or an update is half done.
        """
        if self.state.micro_index:
            raise ValueError("freeze: expected the end of an update, found micro-steps that wait for theirs")
        for runner in self._runners.values():
            runner.release()
        self.state.freeze(names)
        self._plan_update()

    def _plan_update(self) -> None:
        """Settle which parameters have gradients and which matrices are orthogonalised."""
        state = self.state
        cast = set() if self.config.precision == "fp32" else set(convolution_weights(state.network))
        self._cast_names = [name for name in state.layout.shapes if name in cast]
        trained = [name for name in state.layout.shapes if name not in state.frozen]
        by_dtype = [n for n in trained if n in cast], [n for n in trained if n not in cast]
        grads = state.layout.views(self._micro_grads)
        self._trained = [(names, [grads[name] for name in names]) for names in by_dtype if names]
        if self.config.accumulate > 1:
            self._micro_grads.zero_()
        params = list(state.layout.views(state.params).items())
        self._optimizer = MuSGD(
            [view for _, view in params],
            list(state.layout.offsets.values()),
            self.config.optimizer,
            is_frozen=[name in state.frozen for name, _ in params],
        )

    def run(self, batch: TrainBatch) -> Float[Tensor, " metrics"]:
        """Run one micro-step and, when it is the last of an update, the update.

        Args:
            batch: Images, or plans to draw them from, and targets, on the state's device.

        Returns:
            The values named by ``metric_names``, of this micro-step; norm and validity are those of the last update.
        """
        if self.config.accumulate == 1:
            return self._runners["step"](self.key(batch), *batch.tensors)[0]
        losses = self._runners["micro_step"](self.key(batch), *batch.tensors)[0]
        self.state.micro_index += 1
        if self.state.micro_index < self.config.accumulate:
            return torch.cat((losses, losses.new_zeros(1), (self.state.flag == 0).float()))
        self.state.micro_index = 0
        return torch.cat((losses, *self._runners["update"](self.state.frozen, self.state.update_index)))

    def prepare(self, batch: TrainBatch) -> None:
        """Make the runners ready for batches of this shape and capacity; no state changes."""
        for name, runner in self._runners.items():
            if name == "update":
                runner.prepare(self.state.frozen, self.state.update_index)
            else:
                runner.prepare(self.key(batch), *batch.tensors)

    def record(self, plans: GradientPlans | None = None) -> None:
        """Record the step at the first batch of each shape and replay it from then on.

        Args:
            plans: Built meanwhile; a recording waits for them.

        Raises:
            RecordingError: There is no CUDA device.
        """
        self.release()
        self._plans = plans
        self._runners = {span: self.make_runner(span, is_recorded=True) for span in self._spans}

    def release(self) -> None:
        """Free what recording holds; the step runs eagerly again."""
        for runner in self._runners.values():
            runner.release()
        self._runners = {span: self.make_runner(span, is_recorded=False) for span in self._spans}

    def make_runner(self, span: Span, is_recorded: bool) -> Runner:
        """Return a way to run one span of the step, independent of how :meth:`run` runs it.

        Args:
            span: ``update`` takes (names of frozen parameters, update index), the others :meth:`key` and the tensors of
                a batch.
            is_recorded: Record and replay.

        Raises:
            RecordingError: Recording without a CUDA device.
        """
        functions: dict[Span, Function] = {
            "step": self._step,
            "micro_step": self._micro_step,
            "update": self._update,
        }
        if not is_recorded:
            return EagerRunner(functions[span])
        return ReplayRunner(
            functions[span],
            lambda: list(self.state.tensors().values()),
            modules=dict(self.state.network.named_modules()),
            cleanup=self._drop_gradients,
            first_run=self._first_run,
        )

    @contextmanager
    def _first_run(self) -> Iterator[None]:
        """Have kernels compiled side by side; when it ends, everything that is built once exists."""
        with rehearsal(usable_cores()):
            yield
        if self._plans is not None:
            self._plans.wait()

    @property
    def counts(self) -> RunCounts:
        """Recordings, replays and eager runs of the step (of its micro-steps, with accumulation)."""
        return next(iter(self._runners.values())).counts

    def key(self, batch: TrainBatch) -> tuple[object, ...]:
        """Return what a recording depends on beside its inputs' shapes."""
        return type(batch), batch.constants, self.state.network.training, self.state.frozen

    def _step(self, key: tuple[Any, ...], *tensors: Tensor) -> tuple[Tensor]:
        losses = self.micro_step(key[0].restore(key[1], tensors))
        norm, is_finite = self.update()
        return (torch.cat((losses, norm.view(1), is_finite.float())),)

    def _micro_step(self, key: tuple[Any, ...], *tensors: Tensor) -> tuple[Tensor]:
        return (self.micro_step(key[0].restore(key[1], tensors)),)

    def _update(self, _key: object, _update_index: Tensor) -> tuple[Tensor, Tensor]:
        norm, is_finite = self.update()
        return norm.view(1), is_finite.float()

    def _drop_gradients(self) -> None:
        for parameter in self._parameters.values():
            parameter.grad = None

    def micro_step(self, batch: TrainBatch) -> Float[Tensor, " losses"]:
        """Forward, criterion, backward; add the gradient to the state.

        Returns:
            Total loss, then every weighted term per branch.
        """
        state, config = self.state, self.config
        images, weights = self.images(batch), self._cast_weights()
        with forward_context(config.precision, state.device):
            prediction: Prediction = functional_call(state.network, weights, (images,), tie_weights=False)
        loss, terms = self._loss(self.task.criterion(prediction, batch.targets, self.points))

        self._drop_gradients()
        scaled = loss * state.loss_scale.squeeze() if config.precision == "fp16" else loss
        scaled.backward()  # type: ignore[no-untyped-call]
        self._gather_gradients(self._parameters | weights)
        loss = loss.detach()
        state.flag.add_(loss * 0)
        return torch.cat((loss.view(1), terms.detach().flatten()))

    @torch.no_grad()
    def images(self, batch: TrainBatch) -> Float[Tensor, "B 3 H W"]:
        """Return the network's input in [0, 1], drawn where the batch holds plans."""
        if isinstance(batch, Batch):
            return batch.images.float().mul(1 / 255)
        pixels = batch.pixels if batch.pixels is not None else self._source_pixels
        assert pixels is not None, "the batch points into source pixels that the step does not have"
        return draw_images(batch, pixels)

    @torch.no_grad()
    def update(self) -> tuple[Float[Tensor, ""], Float[Tensor, 1]]:
        """Clip, update, average and commit; a step that is not finite leaves the state as it was.

        Returns:
            (gradient norm before clipping, whether the update was committed)
        """
        state, config = self.state, self.config
        if self.collective is not None:
            self.collective.average(state.exchange)
        lr, momentum_factor, _, ema_rate = self._scheduled()
        grads = state.grads / state.loss_scale if config.precision == "fp16" else state.grads
        grads, norm = clip_by_norm(grads, config.clip_norm)
        is_finite = torch.isfinite(norm + state.flag)

        params, momentum = self._optimizer.step(state.params, grads, state.momentum, lr, momentum_factor)
        ema = ema_update(state.ema, params, ema_rate)
        self._commit(is_finite, params, momentum, ema)
        return norm, is_finite

    @property
    def last_lr(self) -> Float[Tensor, ""]:
        """Learning rate of the last update."""
        row = (self.state.update_index - 1).clamp(0, self.schedule.shape[0] - 1)
        return self.schedule.index_select(0, row)[0, 0]

    def _scheduled(self) -> tuple[Tensor, ...]:
        """Return this update's row of the schedule as 0-D tensors; the last row stays behind the end."""
        row = self.state.update_index.clamp(max=self.schedule.shape[0] - 1)
        return self.schedule.index_select(0, row).squeeze(0).unbind()

    def _loss(self, terms: LossTerms) -> tuple[Float[Tensor, ""], Float[Tensor, "branches terms"]]:
        """Normalise and weigh the sums; return the total and every weighted term before the branch weight."""
        normalizers = terms.normalizers
        if self.collective is not None:
            normalizers = normalizers.clone()
            self.collective.average(normalizers)
        weighted = terms.sums / normalizers.clamp(min=1.0).unsqueeze(1) * self._gains
        one_to_many = self._scheduled()[2]
        branch_weight = torch.stack((one_to_many, 1 - one_to_many))
        return (weighted.sum(1) * branch_weight).sum(), weighted

    @torch.no_grad()
    def _cast_weights(self) -> dict[str, Tensor]:
        """Return the convolutions' weights in half precision, cast at once; autocast would cast each by itself.

        A weight whose gradient has hooks is left to autocast: they hang on the parameter.
        """
        names = [name for name in self._cast_names if not _has_hooks(self._parameters[name])]
        if not names:
            return {}
        state, dtype = self.state, HALF_DTYPES[self.config.precision]
        cast = state.params.to(dtype)
        return {n: state.layout.view(n, cast).requires_grad_(n not in state.frozen) for n in names}

    @torch.no_grad()
    def _gather_gradients(self, leaves: Mapping[str, Tensor]) -> None:
        for names, views in self._trained:
            grads = [leaves[name].grad for name in names]
            torch._foreach_copy_(views, grads)  # type: ignore[arg-type]  # a missing gradient raises here
        if self.config.accumulate > 1:
            self.state.grads.add_(self._micro_grads, alpha=1 / self.config.accumulate)

    @torch.no_grad()
    def _commit(self, is_finite: Tensor, params: Tensor, momentum: Tensor, ema: Tensor) -> None:
        """Write every change of state under one device flag."""
        state = self.state
        is_moved = is_finite if state.is_trained is None else is_finite & state.is_trained
        is_tracked = is_finite if state.is_tracked is None else is_finite & state.is_tracked
        torch.where(is_moved, params, state.params, out=state.params)
        torch.where(is_moved, momentum, state.momentum, out=state.momentum)
        torch.where(is_moved, ema, state.ema, out=state.ema)
        torch.where(is_tracked, state.buffers, state.committed_buffers, out=state.committed_buffers)
        state.buffers.copy_(state.committed_buffers)

        is_bad = ~is_finite
        state.first_bad_update.copy_(
            torch.where(
                is_finite, -1, torch.where(state.bad_run_length > 0, state.first_bad_update, state.update_index)
            )
        )
        state.num_skipped.add_(is_bad)
        state.bad_run_length.add_(1).mul_(is_bad)
        state.update_index.add_(1)
        if self.config.precision == "fp16":
            self._rescale(is_finite)
        state.grads.zero_()
        state.flag.zero_()

    def _rescale(self, is_finite: Tensor) -> None:
        """Halve the loss scale after an overflow, double it after a long clean stretch."""
        state = self.state
        state.growth_count.add_(1).mul_(is_finite)
        is_due = state.growth_count >= GROWTH_INTERVAL
        factor = torch.where(is_finite, torch.where(is_due, 2.0, 1.0), 0.5)
        state.loss_scale.mul_(factor)
        state.growth_count.mul_(~is_due)


def _has_hooks(parameter: Tensor) -> bool:
    """Return whether somebody wants to see or change the parameter's gradient."""
    return bool(parameter._backward_hooks or parameter._post_accumulate_grad_hooks)
