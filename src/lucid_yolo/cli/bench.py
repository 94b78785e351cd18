"""``lucid-bench``: how fast a training step is, and where its time goes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, Namespace

from lucid_yolo.cli.arguments import make_parser
from lucid_yolo.cli.errors import run_command

if TYPE_CHECKING:
    from lucid_yolo.bench.step import StepTiming


def build_parser() -> ArgumentParser:
    """Return the parser of all sub-commands."""
    parser = ArgumentParser(prog="lucid-bench", description="Measure the training step.", exit_on_error=False)
    commands = parser.add_subcommands(dest="command")
    commands.add_subcommand("step", _step_parser(), help="loader alone, computation alone, both together")
    return parser


def _step_parser() -> ArgumentParser:
    parser = make_parser("lucid-bench step", "Time the training step: loader alone, computation alone, end to end.")
    parser.add_argument("--batch_sizes", type=list[int], default=[16], help="Images per step, one or several.")
    parser.add_argument("--floor", type=bool, default=False, nargs="?", const=True, help="Time the network alone too.")
    parser.add_argument("--variant", type=str, default="n", help="Scale: n s m l x.")
    parser.add_argument("--num_classes", type=int, default=80, help="Classes, where no data set says it.")
    parser.add_argument("--image_size", type=int, default=640, help="Side of the input in pixels.")
    parser.add_argument("--precision", type=str, default="auto", help="auto, fp32, bf16 or fp16.")
    parser.add_argument("--capacity", type=int, default=64, help="Padded targets of the resident batch.")
    parser.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda, cuda:1, ...")
    parser.add_argument("--num_steps", type=int, default=30, help="Timed steps.")
    parser.add_argument("--data_root", type=str | None, default=None, help="Data set for the loader rates.")
    parser.add_argument("--num_workers", type=int | None, default=None, help="Loader processes; default one per core.")
    parser.add_argument("--json", type=str | None, default=None, help="Write the numbers here too.")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    return run_command(lambda: _step(build_parser().parse_args(argv).step))


def _step(args: Namespace) -> int:
    from lucid_yolo.bench.step import StepBench, measure_step

    bench = StepBench(
        variant=args.variant,
        num_classes=args.num_classes,
        image_size_px=args.image_size,
        precision=args.precision,
        capacity=args.capacity,
        device=args.device,
        num_steps=args.num_steps,
        data_root=args.data_root,
        num_workers=args.num_workers,
    )
    timings = [measure_step(bench, size, args.floor) for size in args.batch_sizes]
    report = {"environment": environment(args.device), "bench": vars(bench), "timings": [t.to_dict() for t in timings]}
    print(_table(timings))
    if args.json:
        Path(args.json).write_text(json.dumps(report, indent=1), encoding="utf-8")
    return 0


def environment(device: str) -> dict[str, Any]:
    """Return hardware and versions, to stand beside every figure."""
    import os
    import platform

    import torch

    from lucid_yolo import __version__
    from lucid_yolo.runtime.detector import choose_device

    chosen = choose_device(device)
    name = torch.cuda.get_device_name(chosen) if chosen.type == "cuda" else platform.processor() or platform.machine()
    return {
        "device": name,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "lucid_yolo": __version__,
    }


def _table(timings: Sequence[StepTiming]) -> str:
    columns = ("batch_size", "floor_ms", "compute_ms", "loader_ms", "end_to_end_ms", "images_per_s", "peak_mib")
    rows = [[_cell(getattr(t, c)) for c in columns] for t in timings]
    return "\n".join("  ".join(f"{cell:>13}" for cell in row) for row in ([list(columns), *rows]))


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.2f}"
