"""``lucid-yolo sizes``: parameters and operations of every scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser, Namespace

from lucid_yolo.cli.arguments import make_parser
from lucid_yolo.cli.errors import run_command
from lucid_yolo.models.scales import STRIDES, VARIANTS, Variant
from lucid_yolo.runtime.json_file import to_json

if TYPE_CHECKING:
    from lucid_yolo.models.sizes import NetworkSize


def main(argv: Sequence[str] | None = None) -> int:
    """Print the sizes.

    Args:
        argv: Arguments after the command's name; None takes those of the process.
    """
    return run_command(lambda: _run(_parser().parse_args(argv)))


def _parser() -> ArgumentParser:
    parser = make_parser(
        "lucid-yolo sizes", "Parameters and operations of the networks. One multiply-add counts as two operations."
    )
    group = parser.add_argument_group("network")
    group.add_argument("--task", type=str, default="detect", help="the task")
    group.add_argument("--variant", choices=("all", *VARIANTS), default="all", help="the scale")
    group.add_argument("--num_classes", type=int, default=80, help="number of classes")
    group.add_argument("--image_size", type=int, default=640, help="side of the square input in pixels")
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _run(config: Namespace) -> int:
    variants = VARIANTS if config.variant == "all" else [config.variant]
    sizes = measure_variants(variants, config.task, config.num_classes, config.image_size)
    if config.json:
        header = {"task": config.task, "num_classes": config.num_classes, "image_size_px": config.image_size}
        print(to_json({**header, "variants": {name: asdict(size) for name, size in sizes.items()}}))
    else:
        _print_table(sizes, f"{config.task}, {config.num_classes} classes, {config.image_size} px")
    return 0


def measure_variants(
    variants: Sequence[Variant], task: str, num_classes: int, image_size_px: int
) -> dict[Variant, NetworkSize]:
    """Return the size of each scale; nothing is allocated.

    Args:
        variants: The scales.
        task: Task name.
        num_classes: Number of classes, at least 1.
        image_size_px: Side of the square input, a multiple of 32.

    Raises:
        ValueError: An argument is out of range.
    """
    from lucid_yolo.models.network import Network
    from lucid_yolo.models.sizes import measure_size
    from lucid_yolo.runtime.checkpoint_file import ModelMeta
    from lucid_yolo.structures import ClassMap

    if num_classes < 1:
        raise ValueError(f"num_classes: expected at least 1, found {num_classes}")
    if image_size_px < 1 or image_size_px % STRIDES[-1]:
        raise ValueError(f"image_size: expected a multiple of {STRIDES[-1]}, found {image_size_px}")
    class_map = ClassMap.from_names([str(i) for i in range(num_classes)])
    sizes = {}
    for variant in variants:
        stems = ModelMeta(task, variant, class_map, image_size_px).build_task().stems
        sizes[variant] = measure_size(lambda v=variant, s=stems: Network(v, s), image_size_px)  # type: ignore[misc]
    return sizes


def _print_table(sizes: Mapping[Variant, NetworkSize], title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, caption="Deployed, as for GFLOPs: one branch, batch normalisation folded.")
    table.add_column("variant")
    for name in ("parameters\nin training", "parameters\ndeployed", "GFLOPs\nconvolutions", "GFLOPs\nwith attention"):
        table.add_column(name, justify="right")
    for variant, size in sizes.items():
        counts = (f"{size.train_parameters:,}", f"{size.deploy_parameters:,}")
        table.add_row(variant, *counts, f"{size.conv_gflops:.2f}", f"{size.total_gflops:.2f}")
    Console().print(table)
