"""``lucid_yolo.train``: what ``lucid-yolo fit`` does, from Python."""

from __future__ import annotations

import json
import multiprocessing
from argparse import ArgumentError
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lucid_yolo.data.worker_server import start_worker_server, wants_workers

if TYPE_CHECKING:
    from lightning.pytorch import Callback

    from lucid_yolo.predict.predictor import Predictor

SECTIONS = ("trainer", "model", "data")
NOT_FOR_PYTHON = ("config", "print_config", "help")


@dataclass(frozen=True)
class TrainResult:
    """Where a finished run lies.

    Attributes:
        run_dir: Run folder, with curves, report and checkpoints.
        best_ckpt: Best checkpoint by the headline metric.
        last_ckpt: Latest checkpoint.
        metrics: COCO numbers and counts of the best checkpoint's deployed head, as ``map``; None where one is
            undefined; empty without validation.
    """

    run_dir: Path
    best_ckpt: Path
    last_ckpt: Path
    metrics: dict[str, float | None]

    @classmethod
    def of_folder(cls, run_dir: Path) -> TrainResult:
        """Read the result of a run from its folder."""
        report = run_dir / "report.json"
        deployed = json.loads(report.read_text("utf-8"))["metrics"]["one_to_one"] if report.is_file() else {}
        metrics = {name: value for name, value in deployed.items() if value is None or isinstance(value, int | float)}
        folder = run_dir / "checkpoints"
        return cls(run_dir, folder / "best.ckpt", folder / "last.ckpt", metrics)

    def load(self, device: str = "auto", **options: Any) -> Predictor:
        """Return :func:`lucid_yolo.load` of the best checkpoint.

        Args:
            device: Where to run it.
            **options: Further arguments of ``load``.
        """
        from lucid_yolo import load

        return load(self.best_ckpt, device, **options)


def train(recipe: str | None, callbacks: Sequence[Callback], overrides: Mapping[str, Any]) -> TrainResult:
    """Train as ``lucid-yolo fit`` does; see :func:`lucid_yolo.train`.

    Args:
        recipe: Name or file of a configuration; None for the default, or that of the run in ``ckpt_path``.
        callbacks: Lightning callbacks, besides the package's own.
        overrides: Values by the dotted name of their flag.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RuntimeError("train: a worker process runs this script again; put it under `if __name__ == '__main__':`")
    flags = [*([] if recipe is None else ["--config", recipe]), *to_flags(overrides)]
    if wants_workers(flags):
        start_worker_server()
    # Lightning takes seconds to import.
    from lucid_yolo.cli.trainer import start

    try:
        cli = start(["fit", *flags], callbacks)
    except ArgumentError as error:
        raise ValueError("train: " + " ".join(str(error).split())) from error
    return TrainResult.of_folder(cli.run_dir)


def to_flags(overrides: Mapping[str, Any]) -> list[str]:
    """Return values as flags of the command line.

    Args:
        overrides: Values by dotted name; a mapping under ``trainer``, ``model`` or ``data`` stands for its entries.

    Raises:
        ValueError: A name is a flag that makes no sense here, or a value has no text.
    """
    flat: dict[str, Any] = {}
    for name, value in overrides.items():
        if name in NOT_FOR_PYTHON:
            raise ValueError(f"train: {name} is for the command line only; the first argument names a configuration")
        is_section = name in SECTIONS and isinstance(value, Mapping)
        flat |= {f"{name}.{key}": entry for key, entry in value.items()} if is_section else {name: value}
    return [f"--{name}={_to_text(name, value)}" for name, value in flat.items()]


def _to_text(name: str, value: Any) -> str:
    if isinstance(value, str | Path):
        return str(value)
    try:
        return json.dumps(value, ensure_ascii=False)
    except TypeError as error:
        raise ValueError(
            f"train: {name}: expected numbers, texts, lists or mappings, found {type(value).__name__}; callbacks go "
            "into the argument callbacks, other objects into Lightning's own form, class_path and init_args"
        ) from error
