"""``lucid-bench``: proves that fast steps equal plain ones, compares complete fits, and times steps and loaders."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Literal

from jsonargparse import ArgumentParser, Namespace

from lucid_yolo.cli.arguments import CommandParser, make_parser
from lucid_yolo.cli.errors import USER_ERROR, run_command

HELP = """\
usage: lucid-bench COMMAND [arguments]

Proofs and measurements on your own GPU and data.

  prove    run plain and accelerated training steps side by side; compare every byte after each
  pair     time complete fits of two configurations in alternating processes; compare every byte
  step     time a training step: loader alone, computation alone, both together
  loader   time the making of training images, stage by stage

lucid-bench COMMAND --help lists the arguments of a command.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments after the program's name; None takes those of the process.

    Returns:
        The exit code: 0 done, and equal where bytes were compared; 1 different, or a fit that failed; 2 wrong use.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    commands: dict[str, Callable[[list[str]], int]] = {"prove": _prove, "pair": _pair, "step": _step, "loader": _loader}
    command = arguments[0] if arguments else ""
    if command in ("-h", "--help"):
        print(HELP, end="")
        return 0
    if command not in commands:
        found = f"unknown command {command!r}" if command else "no command"
        print(f"error: {found}; expected one of {', '.join(commands)}, or --help", file=sys.stderr)
        return USER_ERROR
    return run_command(lambda: commands[command](arguments[1:]))


def take_flags(parser: ArgumentParser, arguments: Sequence[str]) -> tuple[Namespace, list[str]]:
    """Parse a command's own flags and leave those of ``lucid-yolo fit``.

    Args:
        parser: Knows the command's own flags.
        arguments: Own flags and others, in any order.

    Returns:
        (own values, with words before the first other flag as ``words``; the rest)
    """
    own = {f"--{action.dest}" for action in parser._actions if action.dest != "help"}
    taken: list[str] = []
    words: list[str] = []
    rest: list[str] = []
    left = iter(arguments)
    for word in left:
        if word in ("-h", "--help"):
            taken.append(word)
        elif word in own:  # its value may look like a flag
            taken.append(f"{word}={next(left, '')}")
        elif word.partition("=")[0] in own:
            taken.append(word)
        elif word.startswith("-") or rest:
            rest.append(word)
        else:
            words.append(word)
    values = parser.parse_args(taken)
    values.words = words
    return values, rest


def _prove_parser() -> ArgumentParser:
    parser = CommandParser(
        prog="lucid-bench prove",
        description="Run training batches of your configuration through the plain step and the accelerated step, from "
        "equal states, and compare the training state and the losses byte for byte after every batch. Exit code 0 for "
        "equal, 1 for different: then the first differing tensor and the place where it arises are named. All other "
        "flags are those of `lucid-yolo fit`: --config, --data.data_root, --model.variant, --ckpt_path, ... Options of "
        "--model.speed that are set to true are compared; without any, whatever can be used here.",
    )
    parser.add_argument("--steps", type=int, default=50, help="Training batches to compare.")
    parser.add_argument("--fault", type=str | None, help="Spoil one bit in this module, or in `update`, on purpose.")
    _add_outputs(parser)
    return parser


def _prove(arguments: list[str]) -> int:
    own, flags = take_flags(_prove_parser(), arguments)
    flags = [*(f"--config={word}" for word in own.words), *flags]
    from lucid_yolo.bench.fault import plant_fault
    from lucid_yolo.bench.prove import prove
    from lucid_yolo.bench.reports import write_reports
    from lucid_yolo.cli.trainer import build_unstarted
    from lucid_yolo.engine.arms import build_arms
    from lucid_yolo.runtime.environment import environment

    cli = build_unstarted(flags)
    config = cli.config["fit"]
    plant = (lambda step: plant_fault(step, own.fault)) if own.fault else None
    arms = build_arms(cli.trainer, cli.model, cli.datamodule, config.ckpt_path, before_recording=plant)
    try:
        proof = prove(arms, own.steps)
        step = arms.plain.step
    finally:
        arms.close()
    header = {
        "command": _command("prove", arguments),
        "data": f"{config.data.data_root}, {len(cli.datamodule.splits['train'].records)} training images",
        "network": f"{cli.model.meta.task} {cli.model.meta.variant}, {step.config.image_size_px[0]} px",
        "images per batch": cli.datamodule.batch_size,
        "batches per update": step.config.accumulate,
        "precision": step.config.precision,
        "starts from": config.ckpt_path or f"new weights, seed {cli.model.seed}",
        **({"one bit is spoiled on purpose in": own.fault} if own.fault else {}),
        **environment(str(step.state.device)),
    }
    text = proof.to_markdown(header)
    print(text)
    write_reports({**header, **proof.to_dict(), "config": cli.config_dump}, text, own.json, own.report)
    return 0 if proof.is_equal else 1


def _pair_parser() -> ArgumentParser:
    parser = CommandParser(
        prog="lucid-bench pair",
        description="Fit two configurations in alternating fresh processes through `lucid-yolo fit`; compare times, "
        "memory, and every byte of the losses, the validation metrics and the final state. Give what differs as --a "
        "and --b, or as two configuration files in front; all other flags are those of `lucid-yolo fit` and go to "
        "both. Exit code 0 for equal, 1 for different or a failed fit.",
    )
    parser.add_argument("--a", type=str, default="", help="Flags of A alone, in one word: '--config a.yaml'.")
    parser.add_argument("--b", type=str, default="", help="Flags of B alone.")
    parser.add_argument("--pairs", type=int, default=5, help="Fits of each.")
    _add_outputs(parser)
    return parser


def _pair(arguments: list[str]) -> int:
    own, shared = take_flags(_pair_parser(), arguments)
    if any(word.partition("=")[0] == "--print_config" for word in shared):
        raise ValueError("pair: --print_config is for one configuration; ask `lucid-yolo fit` with the flags of a side")
    from lucid_yolo.bench.pair import FitFailedError, measure_pair
    from lucid_yolo.bench.reports import write_reports
    from lucid_yolo.runtime.environment import environment

    flags = {"a": shlex.split(own.a), "b": shlex.split(own.b)}
    if len(own.words) == 2:
        flags = {side: ["--config", word, *flags[side]] for side, word in zip("ab", own.words, strict=True)}
    elif own.words:
        raise ValueError(f"pair: expected no configuration in front or two, A and B, found {len(own.words)}")
    if flags["a"] == flags["b"]:
        print("A and B are the same: this measures the noise", file=sys.stderr)
    try:
        result = measure_pair([*shared, *flags["a"]], [*shared, *flags["b"]], own.pairs)
    except FitFailedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    header = {"command": _command("pair", arguments), **environment(result.runs[0].device)}
    text = result.to_markdown(header)
    print(text)
    write_reports({**header, **result.to_dict()}, text, own.json, own.report)
    return 0 if result.is_equal else 1


def _step(arguments: list[str]) -> int:
    args = _step_parser().parse_args(arguments)
    from dataclasses import replace

    from lucid_yolo.bench.reports import to_lines, to_table, write_reports
    from lucid_yolo.bench.step import StepBench, measure_step
    from lucid_yolo.runtime.environment import environment

    names = ["variant", "num_classes", "image_size", "precision", "device", "num_steps"]
    names += ["data_root", "num_workers", "augment_device", "fused_norm"]
    bench = StepBench(**{{"image_size": "image_size_px"}.get(name, name): args[name] for name in names})
    sizes = [
        (batch_size, capacity) for batch_size in _as_list(args.batch_sizes) for capacity in _as_list(args.capacity)
    ]
    timings = [measure_step(replace(bench, capacity=capacity), size, args.floor).to_dict() for size, capacity in sizes]
    header = {"command": _command("step", arguments), **environment(args.device)}
    columns = [name for name in timings[0] if any(timing[name] is not None for timing in timings)]
    table = to_table(columns, [[timing[name] for name in columns] for timing in timings])
    settings = {name: value for name, value in vars(bench).items() if name not in ("device", "capacity")}
    text = f"# Time of a training step\n\n{table}\n\n{to_lines({**header, **settings})}"
    print(text)
    write_reports({**header, "settings": settings, "timings": timings}, text, args.json, args.report)
    return 1 if any(timing["is_equal"] is False for timing in timings) else 0


def _as_list(value: int | list[int]) -> list[int]:
    return value if isinstance(value, list) else [value]


def _step_parser() -> ArgumentParser:
    parser = make_parser(
        "lucid-bench step",
        "Time the training step: loader alone, computation alone (eager, and recorded on a GPU), end to end. Exit code "
        "1 if the recorded step ends in other bytes than the eager one.",
    )
    parser.add_argument("--batch_sizes", type=int | list[int], default=[16], help="Images per step, one or several.")
    parser.add_argument("--floor", type=bool, default=False, nargs="?", const=True, help="Time the network alone too.")
    parser.add_argument("--variant", type=str, default="n", help="Scale: n s m l x.")
    parser.add_argument("--num_classes", type=int, default=80, help="Classes, where no data set says it.")
    parser.add_argument("--image_size", type=int, default=640, help="Side of the input in pixels.")
    parser.add_argument("--precision", type=str, default="auto", help="auto, fp32, bf16 or fp16.")
    parser.add_argument(
        "--capacity", type=int | list[int], default=[64], help="Padded targets of the resident batch, one or several."
    )
    parser.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda, cuda:1, ...")
    parser.add_argument("--num_steps", type=int, default=30, help="Timed steps.")
    parser.add_argument("--data_root", type=str | None, default=None, help="Data set for the loader rates.")
    parser.add_argument("--num_workers", type=int | None, default=None, help="Loader processes; default one per core.")
    parser.add_argument(
        "--augment_device", type=Literal["cpu", "gpu"], default="cpu", help="Where the loader's images are varied."
    )
    parser.add_argument(
        "--fused_norm", type=bool, default=False, nargs="?", const=True, help="Use the normalisation kernels."
    )
    _add_outputs(parser)
    return parser


def _loader(arguments: list[str]) -> int:
    args = _loader_parser().parse_args(arguments)
    from lucid_yolo.bench.loader import measure_loader
    from lucid_yolo.bench.reports import to_lines, write_reports
    from lucid_yolo.runtime.environment import commit

    speed = measure_loader(
        args.data_root,
        image_size_px=args.image_size,
        batch_size=args.batch_size,
        cache=args.cache,
        is_cache_prepared=args.cache_prepared,
        num_workers=args.num_workers,
        max_images=args.max_images,
        repeats=args.repeats,
    )
    header = {"command": _command("loader", arguments), "commit": commit()}
    text = f"# Making training images\n\n{speed.to_markdown()}\n\n{to_lines(header)}"
    print(text)
    write_reports({**header, **speed.to_dict()}, text, args.json, args.report)
    return 0


def _loader_parser() -> ArgumentParser:
    parser = make_parser("lucid-bench loader", "Time the making of training images, stage by stage and as a whole.")
    parser.add_argument("--data_root", type=str, required=True, help="Folder or data YAML with a training split.")
    parser.add_argument("--image_size", type=int, default=640, help="Side of the input in pixels.")
    parser.add_argument("--batch_size", type=int, default=16, help="Images per batch.")
    parser.add_argument("--cache", choices=["none", "ram", "disk"], default="ram", help="Where images are kept.")
    parser.add_argument(
        "--cache_prepared", type=bool, default=False, nargs="?", const=True, help="Keep images after the resize."
    )
    parser.add_argument("--num_workers", type=int | None, default=None, help="Loader processes; default one per core.")
    parser.add_argument("--max_images", type=int, default=512, help="Images taken from the start of the split.")
    parser.add_argument("--repeats", type=int, default=5, help="Times each stage is measured; the best counts.")
    _add_outputs(parser)
    return parser


def _add_outputs(parser: ArgumentParser) -> None:
    parser.add_argument("--json", type=str | None, default=None, help="Write the result to this file as JSON.")
    parser.add_argument("--report", type=str | None, default=None, help="Write the result to this file as Markdown.")


def _command(name: str, arguments: Sequence[str]) -> str:
    return shlex.join(["lucid-bench", name, *arguments])
