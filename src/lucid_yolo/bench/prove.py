"""Whether the accelerated training step equals the plain one on a run's own data, byte for byte, step by step."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from lucid_yolo.bench.compare import Difference, describe_difference, has_same_bytes, sha256_of, state_difference
from lucid_yolo.bench.locate import Location, Snapshot, locate
from lucid_yolo.bench.reports import to_lines
from lucid_yolo.data.loader import TrainLoader
from lucid_yolo.engine.arms import Arm, Arms
from lucid_yolo.graphs import RunCounts
from lucid_yolo.kernels.augment.planned_batch import TrainBatch


@dataclass(frozen=True)
class Failure:
    """The first step after which the arms differ.

    Attributes:
        step: Training batch, counted from 1; 0 for the initial state.
        difference: The first tensor and element, plain against accelerated.
        location: Where it arises; None for the initial state.
    """

    step: int
    difference: Difference
    location: Location | None


@dataclass(frozen=True)
class Proof:
    """What :func:`prove` found.

    Attributes:
        options: Options of ``Speed`` that were compared with plain execution.
        choice: What was chosen and why not the rest, in one line.
        num_steps: Training batches compared.
        num_updates: Updates among them, those skipped for not being finite included.
        plain_counts: How the plain arm ran.
        accelerated_counts: How the accelerated arm ran.
        plain_sha256: Over every tensor of the plain arm's last state.
        accelerated_sha256: The same of the accelerated arm.
        failure: The first difference; None if all was equal.
    """

    options: tuple[str, ...]
    choice: str
    num_steps: int
    num_updates: int
    plain_counts: RunCounts
    accelerated_counts: RunCounts
    plain_sha256: str
    accelerated_sha256: str
    failure: Failure | None

    @property
    def is_equal(self) -> bool:
        """Whether no byte differed."""
        return self.failure is None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"is_equal": self.is_equal, **asdict(self)}

    def to_markdown(self, header: Mapping[str, object]) -> str:
        """Return the certificate, or what differs.

        Args:
            header: Command, configuration, data, hardware and versions.
        """
        counts = self.accelerated_counts
        ran = f"{counts.replayed} replayed, {counts.eager} eager, {counts.recorded} recordings"
        facts = {
            **header,
            "compared with plain execution": ", ".join(self.options) or "nothing: no option can be used here",
            "why": self.choice,
            "training batches": f"{self.num_steps}, with {self.num_updates} updates",
            "accelerated arm": ran,
            "SHA-256 of the plain state": self.plain_sha256,
            "SHA-256 of the accelerated state": self.accelerated_sha256,
        }
        return f"# Plain against accelerated: {self._verdict()}\n\n{to_lines(facts)}\n{self._findings()}"

    def _verdict(self) -> str:
        if self.failure is not None:
            return f"different in step {self.failure.step}"
        return "equal" if self.options else "equal, both eager"

    def _findings(self) -> str:
        if self.failure is None:
            return (
                "\nAfter every batch, every tensor of the training state, the returned losses and the random "
                "generators had the same bytes in both arms."
            )
        lines = {"first difference (plain against accelerated)": str(self.failure.difference)}
        if (location := self.failure.location) is not None:
            lines["where it arises"] = str(location)
            if location.difference is not None:
                lines["there"] = str(location.difference)
        return f"\n{to_lines(lines)}"


def prove(arms: Arms, num_steps: int) -> Proof:
    """Run both arms on the run's training batches and compare them after each.

    Args:
        arms: In equal states; both are changed.
        num_steps: Training batches, at least 1.

    Raises:
        ValueError: No step is asked for.
    """
    if num_steps < 1:
        raise ValueError(f"steps: expected at least 1, found {num_steps}")
    plain, accelerated = arms.plain, arms.accelerated
    first_update = int(plain.step.state.update_index)
    device, step, mismatch = plain.step.state.device, 0, _initial_mismatch(plain, accelerated)
    loader = arms.data.train_dataloader()
    batches = endless_batches(loader)
    for batch in () if mismatch else itertools.islice(batches, num_steps):
        step += 1
        if mismatch := _compare_step(plain, accelerated, batch.to(device)):
            break
    proof = Proof(
        options=tuple(sorted(accelerated.options)),
        choice=arms.choice.line,
        num_steps=step,
        num_updates=int(plain.step.state.update_index) - first_update,
        plain_counts=replace(plain.step.counts),
        accelerated_counts=replace(accelerated.step.counts),
        plain_sha256=sha256_of(plain.step.state.tensors()),
        accelerated_sha256=sha256_of(accelerated.step.state.tensors()),
        failure=None,
    )
    if mismatch is None:
        return proof
    batches.close()
    loader.close()  # no thread of it may work while the step is recorded anew
    failure = Failure(step, mismatch.difference, mismatch.locate(plain, accelerated))
    return replace(proof, failure=failure)


def endless_batches(loader: TrainLoader) -> Generator[TrainBatch, None, None]:
    """Yield the batches of one epoch after the other."""
    while True:
        yield from loader


@dataclass(frozen=True)
class _Mismatch:
    """A difference and what is needed to run its step again; no batch for one in the initial state."""

    difference: Difference
    start: Snapshot
    batch: TrainBatch | None = None
    after: Mapping[str, Tensor] = field(default_factory=dict)

    def locate(self, plain: Arm, accelerated: Arm) -> Location | None:
        return locate(plain, accelerated, self.start, self.batch, self.after) if self.batch is not None else None


def _initial_mismatch(plain: Arm, accelerated: Arm) -> _Mismatch | None:
    state = plain.step.state
    found = state_difference(state, state.tensors(), accelerated.step.state.tensors())
    return _Mismatch(found, Snapshot.of(state)) if found else None


def _compare_step(plain: Arm, accelerated: Arm, batch: TrainBatch) -> _Mismatch | None:
    """Run one batch through both arms from equal states and equal random generators."""
    start = Snapshot.of(plain.step.state)
    expected = plain.step.run(batch)
    expected_end = Snapshot.of(plain.step.state)
    start.restore_random(accelerated.step.state.device)
    found = accelerated.step.run(batch)
    end = Snapshot.of(accelerated.step.state)
    difference = _losses_difference(plain.step.metric_names, expected, found)
    difference = difference or state_difference(plain.step.state, expected_end.tensors, end.tensors)
    difference = difference or _random_difference(expected_end.random, end.random)
    return _Mismatch(difference, start, batch, expected_end.tensors) if difference else None


def _losses_difference(names: Iterable[str], first: Tensor, second: Tensor) -> Difference | None:
    if has_same_bytes(first, second):
        return None
    found = (describe_difference(f"returned {name}", a, b) for name, a, b in zip(names, first, second, strict=True))
    return next(difference for difference in found if difference)


def _random_difference(first: tuple[Tensor, ...], second: tuple[Tensor, ...]) -> Difference | None:
    for name, a, b in zip(("host", "device"), first, second, strict=False):
        if not torch.equal(a, b):
            return describe_difference(f"state of the {name}'s random generator", a, b)
    return None
