"""Where two runs of one training step part: the first module, loss term, gradient or update that differs.

The step is run once more from the state before it, in both arms, with hooks that keep what passes through every module.
For an arm that is replayed the step is recorded anew with the hooks active, so that what they keep lies in memory of
the recording and can be read after the replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lucid_yolo.bench.compare import Difference, describe_difference, state_difference
from lucid_yolo.engine.arms import Arm
from lucid_yolo.kernels.augment.planned_batch import TrainBatch
from lucid_yolo.runtime.state import TrainState

Kept = Literal["outputs", "gradients"]
Stage = Literal["forward", "statistics", "loss", "backward", "update", "nowhere"]


@dataclass(frozen=True)
class Snapshot:
    """Everything a training step changes, at one moment.

    Attributes:
        tensors: Copies of :meth:`TrainState.tensors`.
        micro_index: Micro-steps since the last update.
        random: State of the device's and the host's default generators.
    """

    tensors: dict[str, Tensor]
    micro_index: int
    random: tuple[Tensor, ...]

    @classmethod
    def of(cls, state: TrainState) -> Snapshot:
        """Copy a state."""
        random = [torch.get_rng_state()]
        if state.device.type == "cuda":
            random.append(torch.cuda.get_rng_state(state.device))
        return cls({k: v.clone() for k, v in state.tensors().items()}, state.micro_index, tuple(random))

    @torch.no_grad()
    def restore(self, state: TrainState) -> None:
        """Put a state back, byte for byte."""
        for name, tensor in state.tensors().items():
            tensor.copy_(self.tensors[name])
        state.micro_index = self.micro_index
        self.restore_random(state.device)

    def restore_random(self, device: torch.device) -> None:
        """Put the random generators back, and nothing else."""
        torch.set_rng_state(self.random[0])
        if device.type == "cuda":
            torch.cuda.set_rng_state(self.random[1], device)


@dataclass(frozen=True)
class Location:
    """Where the difference arises.

    Attributes:
        stage: Part of the step; ``nowhere`` if the step did not differ when it was run again.
        name: Module, loss term, gradient or tensor, with its position among those compared.
        detail: What that means.
        difference: The first element that differs; None where nothing did.
    """

    stage: Stage
    name: str
    detail: str
    difference: Difference | None = None

    def __str__(self) -> str:
        return f"{self.stage}: {self.name} ({self.detail})"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


class Trace:
    """Keeps a copy of every module's output, or of the gradient that arrives at it, in order of execution.

    Args:
        network: The network to watch; what an earlier forward pass left is forgotten when the next begins.
        kept: What to keep.
        move: Applied to every copy; identity for a recording, whose memory must stay where it is.

    Attributes:
        tensors: (module, copy) pairs. A module that runs twice appears twice.
    """

    def __init__(self, network: nn.Module, kept: Kept, move: Callable[[Tensor], Tensor] = lambda x: x) -> None:
        self._network, self._kept, self._move = network, kept, move
        self._handles: list[Any] = []
        self.tensors: list[tuple[str, Tensor]] = []

    def __enter__(self) -> Trace:
        self._handles = [self._network.register_forward_pre_hook(lambda *_: self.tensors.clear())]
        for name, module in self._network.named_modules():
            title = f"{name or 'the network'} ({type(module).__name__})"
            self._handles.append(module.register_forward_hook(self._hook(title)))
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _hook(self, title: str) -> Callable[[nn.Module, Any, Any], None]:
        def keep(tensor: Tensor) -> None:
            self.tensors.append((title, self._move(tensor.detach().clone())))

        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            for tensor in tensors_in(output):
                if self._kept == "outputs":
                    keep(tensor)
                elif tensor.requires_grad:
                    tensor.register_hook(keep)  # type: ignore[no-untyped-call]

        return hook


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors of a module's output, which may be nested."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from tensors_in(part)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for part in value:
            yield from tensors_in(part)
    elif is_dataclass(value):
        for field in fields(value):
            yield from tensors_in(getattr(value, field.name))


@dataclass(frozen=True)
class _Seen:
    """One arm's run of a step."""

    modules: list[tuple[str, Tensor]]
    losses: Tensor
    after_backward: dict[str, Tensor]
    after_update: dict[str, Tensor]
    norm: Tensor


def locate(plain: Arm, accelerated: Arm, start: Snapshot, batch: TrainBatch, after: Mapping[str, Tensor]) -> Location:
    """Run a step again from where it began and say where the arms part.

    Both arms are left in an unspecified state.

    Args:
        plain: Runs eagerly.
        accelerated: What is compared with it.
        start: State before the step.
        batch: On the device.
        after: The plain arm's tensors after the step that is repeated.
    """
    start.restore(plain.step.state)
    plain.step.run(batch)
    if found := state_difference(plain.step.state, after, plain.step.state.tensors()):
        detail = "the plain step does not repeat itself: one of its operations is not deterministic"
        return Location("nowhere", found.item, detail, found)
    is_again = _differs_again(plain, accelerated, start, batch)
    for kept in ("outputs", "gradients"):
        location = _part(plain, _run(plain, start, batch, kept), _run(accelerated, start, batch, kept), kept)
        if location is not None:
            return location
    detail = "run again, the step was equal: the difference depends on timing or on memory left by what ran before"
    if is_again and accelerated.is_recorded:
        detail = (
            "the recording differs again and a new one does not: it is stale, it reads memory that is no longer "
            "written or a value that was fixed when it was made"
        )
    return Location("nowhere", "-", detail)


def _differs_again(plain: Arm, accelerated: Arm, start: Snapshot, batch: TrainBatch) -> bool:
    """Run the accelerated step as it stands once more; the plain arm has just done so."""
    start.restore(accelerated.step.state)
    accelerated.step.run(batch)
    tensors = accelerated.step.state.tensors()
    return state_difference(plain.step.state, plain.step.state.tensors(), tensors) is not None


def _run(arm: Arm, start: Snapshot, batch: TrainBatch, kept: Kept) -> _Seen:
    """Run one step from ``start`` in two spans, with hooks."""
    step, state = arm.step, arm.step.state
    start.restore(state)
    runners = [step.make_runner(span, arm.is_recorded) for span in ("micro_step", "update")]
    move = (lambda x: x) if arm.is_recorded else Tensor.cpu
    with Trace(state.network, kept, move) as trace:
        losses = runners[0](step.key(batch), *batch.tensors)[0]
    after_backward = {name: tensor.clone() for name, tensor in state.tensors().items()}
    norm = losses.new_zeros(1)
    if start.micro_index + 1 == step.config.accumulate:
        norm = runners[1](None, state.update_index)[0]
    seen = _Seen(
        [(name, tensor.cpu()) for name, tensor in trace.tensors],
        losses,
        after_backward,
        {name: tensor.clone() for name, tensor in state.tensors().items()},
        norm,
    )
    trace.tensors.clear()
    for runner in runners:
        runner.release()
    return seen


def _part(plain: Arm, first: _Seen, second: _Seen, kept: Kept) -> Location | None:
    """Return where two runs part, as far as what was kept tells."""
    if kept == "outputs":
        return _forward_part(plain, first, second)
    if module := _module_difference(first, second):
        detail = f"gradient at its output, {module.place} in order of the backward pass; all before are equal"
        return Location("backward", module.name, detail, module.difference)
    state = plain.step.state
    if found := state_difference(state, first.after_backward, second.after_backward):
        return Location("backward", found.item, "every gradient between modules is equal", found)
    if found := describe_difference("gradient norm", first.norm, second.norm):
        return Location("update", "gradient norm", "every gradient is equal", found)
    if found := state_difference(state, first.after_update, second.after_update):
        return Location("update", found.item, "outputs, losses and gradients are equal", found)
    return None


def _forward_part(plain: Arm, first: _Seen, second: _Seen) -> Location | None:
    if module := _module_difference(first, second):
        detail = f"{module.place} in order of execution; all before are equal"
        return Location("forward", module.name, detail, module.difference)
    state = plain.step.state
    sides = [{"exchange": seen.after_backward["exchange"].clone()} for seen in (first, second)]
    for side in sides:
        side["exchange"][: state.layout.length].zero_()  # gradients have their turn later
    if found := state_difference(state, *sides):
        return Location("statistics", found.item, "every module's output is equal", found)
    for name, a, b in zip(plain.step.metric_names, first.losses, second.losses, strict=False):
        if found := describe_difference(name, a, b):
            return Location("loss", name, "assignment or criterion; every module's output is equal", found)
    return None


@dataclass(frozen=True)
class _ModuleDifference:
    name: str
    place: str
    difference: Difference


def _module_difference(first: _Seen, second: _Seen) -> _ModuleDifference | None:
    """Return the first module in the order of what was kept that differs."""
    count = len(first.modules)
    for place, ((name, a), (other, b)) in enumerate(zip(first.modules, second.modules, strict=False), 1):
        found = describe_difference(name, a, b) if name == other else Difference("order of execution", name, other)
        if found:
            return _ModuleDifference(name, f"{place} of {count}", found)
    return None
