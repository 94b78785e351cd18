"""Where the wall time of a complete fit goes, from the start of the process to its end.

``python benchmarks/fit_phases.py --config detect --data.data_root DATA`` takes the flags of ``lucid-yolo fit`` and
prints JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def process_start() -> float:
    """Return when this process began, on ``time.time``'s clock."""
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / CLOCK_TICKS
    return time.time() - float(Path("/proc/uptime").read_text().split()[0]) + started


START = process_start()


def now() -> float:
    """Return the seconds since the process began."""
    return round(time.time() - START, 3)


def timed(owner: Any, name: str, seconds: list[float]) -> None:
    """Wrap a method so that the duration of every call is kept."""
    plain: Callable[..., Any] = getattr(owner, name)

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return plain(*args, **kwargs)
        finally:
            seconds.append(round(time.perf_counter() - start, 3))

    setattr(owner, name, wrapper)


def main() -> int:
    flags = sys.argv[1:]
    from lucid_yolo.data.worker_server import start_worker_server, wants_workers

    if wants_workers(flags):
        start_worker_server()
    stages: dict[str, float] = {}
    import torch

    stages["torch imported"] = now()
    from lightning.pytorch import Callback, Trainer

    stages["lightning imported"] = now()
    from lucid_yolo.cli.errors import run_command
    from lucid_yolo.cli.trainer import start
    from lucid_yolo.engine.datamodule import DetectorDataModule
    from lucid_yolo.engine.module import DetectorModule
    from lucid_yolo.graphs.runner import ReplayRunner
    from lucid_yolo.runtime.evaluation import SplitEvaluator

    stages["package imported"] = now()
    spans: dict[str, list[float]] = {name: [] for name in ("warm-up", "recording", "scoring", "fetching")}
    timed(ReplayRunner, "_warm_up", spans["warm-up"])
    timed(ReplayRunner, "_record", spans["recording"])
    timed(SplitEvaluator, "compute", spans["scoring"])
    timed(SplitEvaluator, "_fetch", spans["fetching"])
    read_labels = DetectorDataModule.setup

    def setup(data: Any, stage: str) -> None:
        stages["labels begin"] = now()
        read_labels(data, stage)
        stages["labels end"] = now()

    DetectorDataModule.setup = setup  # type: ignore[method-assign]
    timed(DetectorModule, "configure_model", spans.setdefault("building the network", []))
    timed(DetectorModule, "on_fit_start", spans.setdefault("laying out the state", []))

    class Phases(Callback):
        """Notes when each part of the fit is reached; the last of the callbacks."""

        def __init__(self) -> None:
            self.epochs: list[dict[str, float]] = []

        def on_train_start(self, *_: Any) -> None:
            stages["recorded, training begins"] = now()

        def on_train_epoch_start(self, *_: Any) -> None:
            self.epochs.append({"begin": now()})

        def on_train_batch_start(self, *_: Any) -> None:
            self.epochs[-1].setdefault("first batch", now())

        def on_validation_start(self, trainer: Trainer, *_: Any) -> None:
            if not trainer.sanity_checking:
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                self.epochs[-1]["trained"] = now()

        def on_validation_end(self, trainer: Trainer, *_: Any) -> None:
            if not trainer.sanity_checking:
                self.epochs[-1]["validated"] = now()

        def on_train_epoch_end(self, *_: Any) -> None:
            self.epochs[-1]["end"] = now()

        def on_train_end(self, *_: Any) -> None:
            stages["training ends"] = now()

    phases = Phases()
    code = run_command(lambda: bool(start(["fit", *flags], [phases]).trainer.interrupted))
    stages["fit ends"] = now()
    if not phases.epochs:
        return code
    epochs = [{k: round(v - e["begin"], 3) for k, v in e.items() if k != "begin"} for e in phases.epochs]
    later = epochs[1:] or epochs
    gaps = [b["begin"] - a["end"] for a, b in zip(phases.epochs, phases.epochs[1:], strict=False)]
    summary = {name: round(median(e[name] for e in later), 3) for name in later[0]}
    report = {
        "stages": stages,
        "spans": {name: {"count": len(s), "sum": round(sum(s), 3), "first": s[:4]} for name, s in spans.items()},
        "first epoch": epochs[0],
        "median of later epochs": summary | {"between epochs": round(median(gaps), 3) if gaps else 0.0},
    }
    print(json.dumps(report, indent=1), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
