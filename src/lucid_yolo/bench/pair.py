"""Two configurations, complete fits in alternating fresh processes: how long each takes, and whether bytes differ."""

from __future__ import annotations

import hashlib
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lucid_yolo.bench.compare import describe_difference, first_difference, has_same_bytes, sha256_of
from lucid_yolo.bench.reports import to_lines, to_table
from lucid_yolo.engine.fit_probe import LOSSES, SUMMARY, FitProbe
from lucid_yolo.runtime.checkpoint_file import SECTION, read_checkpoint

MEASURES = {
    "fit_s": "fit, s",
    "process_s": "process, s",
    "step_ms": "step, ms (median of a fit)",
    "peak_mib": "device memory reserved at most, MiB",
}
COMPARED = {
    "losses": "loss terms of every step",
    "validations": "metrics of every validation",
    "state": "final state",
}
_NUM_LAST_LINES = 20


class FitFailedError(RuntimeError):
    """A fit did not end well; the message holds its last lines."""


@dataclass(frozen=True)
class FitRun:
    """One complete fit.

    Attributes:
        name: Side and number, such as ``A1``.
        fit_s: Between synchronisations at the start, before the step is built, and at the end.
        process_s: Of the whole process, imports included.
        step_ms: Median time between the ends of two batches; None where no epoch has two.
        peak_mib: Device memory reserved at most; None on a CPU.
        hashes: SHA-256 of what :data:`COMPARED` names.
        ran: How the steps ran and with which options.
        device: Device of the fit.
    """

    name: str
    fit_s: float
    process_s: float
    step_ms: float | None
    peak_mib: float | None
    hashes: dict[str, str]
    ran: str
    device: str


@dataclass(frozen=True)
class _Numbers:
    """What a fit computed."""

    metric_names: list[str]
    losses: Tensor
    validations: list[dict[str, Any]]
    state: dict[str, Tensor]

    def hashes(self) -> dict[str, str]:
        metrics = json.dumps([{k: _exact(v) for k, v in row.items()} for row in self.validations])
        return {
            "losses": sha256_of({", ".join(self.metric_names): self.losses}),
            "validations": hashlib.sha256(metrics.encode()).hexdigest(),
            "state": sha256_of(self.state),
        }


@dataclass(frozen=True)
class PairResult:
    """What :func:`measure_pair` found.

    Attributes:
        flags: Flags of each side.
        runs: In the order in which they ran.
        differences: For everything in :data:`COMPARED` the first run that differs from the first one and where; None
            if all runs are equal.
    """

    flags: dict[str, tuple[str, ...]]
    runs: tuple[FitRun, ...]
    differences: dict[str, str | None]

    @property
    def is_equal(self) -> bool:
        """Whether no byte of any run differs."""
        return not any(self.differences.values())

    def values(self, side: str, measure: str) -> list[float]:
        """Return what was measured of a side; empty where it does not apply."""
        found = [getattr(run, measure) for run in self.runs if run.name.startswith(side)]
        return [value for value in found if value is not None]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"is_equal": self.is_equal, **asdict(self)}

    def to_markdown(self, header: Mapping[str, object]) -> str:
        """Return the report.

        Args:
            header: Command, hardware, versions and commit.
        """
        rows = [row for measure in MEASURES if (row := self._row(measure))]
        table = to_table(("median (min-max)", "A", "B", "A / B"), rows)
        found = {title: self.differences[name] or self._all_equal(name) for name, title in COMPARED.items()}
        ran = {f"steps of {side}": self._ran(side) for side in self.flags}
        sides = {f"flags of {side}": shlex.join(flags) for side, flags in self.flags.items()}
        title = f"# Complete fits, A against B: {'equal' if self.is_equal else 'different'}"
        return "\n\n".join((title, table, to_lines(found), to_lines({**sides, **ran, **header})))

    def _row(self, measure: str) -> list[object] | None:
        a, b = (self.values(side, measure) for side in "AB")
        if not a or not b:
            return None
        spans = [f"{statistics.median(v):.4g} ({min(v):.4g}-{max(v):.4g})" for v in (a, b)]
        return [MEASURES[measure], *spans, f"{statistics.median(a) / statistics.median(b):.3f}"]

    def _ran(self, side: str) -> str:
        return "; ".join(dict.fromkeys(run.ran for run in self.runs if run.name.startswith(side)))

    def _all_equal(self, name: str) -> str:
        return f"equal in all {len(self.runs)} runs, SHA-256 {self.runs[0].hashes[name]}"


def measure_pair(flags_a: Sequence[str], flags_b: Sequence[str], num_pairs: int = 5) -> PairResult:
    """Fit A and B in turns, the one that begins changing from pair to pair.

    Args:
        flags_a: Flags of ``lucid-yolo fit``.
        flags_b: The other side's.
        num_pairs: Fits of each, at least 1.

    Raises:
        FitFailedError: A fit failed.
        ValueError: No pair is asked for.
    """
    if num_pairs < 1:
        raise ValueError(f"pairs: expected at least 1, found {num_pairs}")
    flags = {"A": tuple(flags_a), "B": tuple(flags_b)}
    runs: list[FitRun] = []
    differences: dict[str, str | None] = dict.fromkeys(COMPARED)
    reference: _Numbers | None = None
    for side, number in alternation(num_pairs):
        with tempfile.TemporaryDirectory(prefix="lucid_bench_") as folder:
            run, numbers = run_fit(f"{side}{number}", flags[side], Path(folder))
        reference = reference or numbers
        runs.append(run)
        for name, text in _differences(reference, numbers).items():
            if text and not differences[name]:
                differences[name] = f"{run.name} differs from {runs[0].name}: {text}"
    return PairResult(flags, tuple(runs), {name: differences[name] for name in COMPARED})


def alternation(num_pairs: int) -> Iterator[tuple[str, int]]:
    """Yield (side, number): A B, B A, A B, ... so that a drift of the machine meets both."""
    for number in range(1, num_pairs + 1):
        for side in "AB" if number % 2 else "BA":
            yield side, number


def run_fit(name: str, flags: Sequence[str], folder: Path) -> tuple[FitRun, _Numbers]:
    """Run ``lucid-yolo fit`` in a process of its own.

    Args:
        name: Of the run.
        flags: Of the command.
        folder: For the files of the run.

    Raises:
        FitFailedError: It ended with an error, or left no checkpoint.
    """
    probe = {"class_path": f"{FitProbe.__module__}.{FitProbe.__name__}", "init_args": {"folder": str(folder)}}
    added = [f"--run_dir={folder / 'run'}", "--trainer.enable_progress_bar=false"]
    command = [sys.executable, "-m", "lucid_yolo.cli.main", "fit", *flags, *added]
    start = time.perf_counter()
    with (folder / "log.txt").open("wb") as log:
        probed = [*command, f"--trainer.callbacks+={json.dumps(probe)}"]
        code = subprocess.run(probed, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL).returncode
    process_s = time.perf_counter() - start
    ckpt_path = folder / "run/checkpoints/last.ckpt"
    if code or not ckpt_path.exists():
        lines = (folder / "log.txt").read_text(encoding="utf-8", errors="replace").splitlines()
        said = "\n".join(f"  {line}" for line in lines[-_NUM_LAST_LINES:])
        what = f"ended with exit code {code}" if code else "left no checkpoint"
        raise FitFailedError(f"fit {name} {what}: lucid-yolo fit {shlex.join(flags)}\nits last lines:\n{said}")
    summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    losses = torch.from_numpy(np.load(folder / LOSSES))
    numbers = _Numbers(
        summary["metric_names"], losses, summary["validations"], checkpoint_tensors(read_checkpoint(ckpt_path))
    )
    return _fit_run(name, process_s, summary, numbers), numbers


def checkpoint_tensors(checkpoint: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return every tensor of the training state in a checkpoint by name."""
    parts = {**checkpoint["state_dict"], **checkpoint[SECTION]["train_state"]}
    return dict(_named_tensors(parts, ""))


def _fit_run(name: str, process_s: float, summary: Mapping[str, Any], numbers: _Numbers) -> FitRun:
    counts = summary["counts"]
    ran = f"{counts['replayed']} replayed, {counts['eager']} eager, {counts['recorded']} recordings"
    options = ", ".join(summary["speed_options"]) or "none"
    return FitRun(
        name=name,
        fit_s=summary["fit_s"],
        process_s=process_s,
        step_ms=summary["step_ms"],
        peak_mib=summary["peak_mib"],
        hashes=numbers.hashes(),
        ran=f"{ran}; options: {options}",
        device=summary["device"],
    )


def _named_tensors(value: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _named_tensors(part, f"{name}.{key}" if name else str(key))


def _differences(first: _Numbers, second: _Numbers) -> dict[str, str | None]:
    """Return for each of :data:`COMPARED` the first difference in words."""
    state = first_difference(first.state, second.state)
    return {
        "losses": _losses_difference(first, second),
        "validations": _validations_difference(first.validations, second.validations),
        "state": str(state) if state else None,
    }


def _losses_difference(first: _Numbers, second: _Numbers) -> str | None:
    if first.metric_names != second.metric_names:
        return f"other loss terms: {', '.join(first.metric_names)} against {', '.join(second.metric_names)}"
    for step, (a, b) in enumerate(zip(first.losses, second.losses, strict=False), 1):
        if not has_same_bytes(a, b):
            found = (describe_difference(n, x, y) for n, x, y in zip(first.metric_names, a, b, strict=True))
            return f"step {step}, {next(difference for difference in found if difference)}"
    counts = [len(side.losses) for side in (first, second)]
    return f"number of steps: {counts[0]} against {counts[1]}" if counts[0] != counts[1] else None


def _validations_difference(first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]) -> str | None:
    for a, b in zip(first, second, strict=False):
        for name in {**a, **b}:
            sides = [_exact(row[name]) if name in row else "missing" for row in (a, b)]
            if sides[0] != sides[1]:
                return f"validation after step {a['step']}, {name}: {sides[0]} against {sides[1]}"
    if len(first) != len(second):
        return f"number of validations: {len(first)} against {len(second)}"
    return None


def _exact(value: float | int | None) -> str:
    """Return a number with every digit."""
    return "undefined" if value is None else repr(float(value))
