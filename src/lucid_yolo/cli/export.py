"""``lucid-export``: write a checkpoint in another format and compare it with eager."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, Namespace

from lucid_yolo.cli.arguments import make_parser
from lucid_yolo.cli.errors import run_command
from lucid_yolo.runtime.json_file import write_json

if TYPE_CHECKING:
    from lucid_yolo.export.verify import GateResult, Picture
    from lucid_yolo.models.network import Network
    from lucid_yolo.runtime.deployed_meta import DeployedMeta

DIFFERENT = 1
NUM_SHOWN = 5


def main(argv: Sequence[str] | None = None) -> int:
    """Export a checkpoint.

    Args:
        argv: Arguments after the command's name; None takes those of the process.

    Returns:
        The exit code: 0 written and, unless told not to, equal to eager within the tolerance; 1 different; 2 wrong use.
    """
    return run_command(lambda: _run(_parser().parse_args(argv)))


def _parser() -> ArgumentParser:
    parser = make_parser("lucid-export", "Write the deployed network in another format, and compare it with eager.")
    inputs = parser.add_argument_group("input")
    inputs.add_argument("--ckpt_path", type=str, required=True, help="checkpoint")
    output = parser.add_argument_group("output")
    output.add_argument(
        "--format", type=str, default="onnx", help="onnx, web, openvino, torchscript, executorch, litert, safetensors"
    )
    output.add_argument("--output", type=str | None, default=None, help="file to write; default: beside the checkpoint")
    output.add_argument(
        "--image_size", type=int, nargs="+", default=None, help="side, or height and width; default: as trained"
    )
    output.add_argument(
        "--dynamic_size", action="store_true", help="accept any multiple of 32; image_size is a default"
    )
    output.add_argument("--half", action="store_true", help="float16 but for the last layers; input and output float32")
    output.add_argument("--max_det", type=int, default=300, help="detections per picture")
    output.add_argument(
        "--web_runtime",
        type=str | None,
        default=None,
        help="web: folder of the npm package onnxruntime-web to copy from",
    )
    gate = parser.add_argument_group("gate")
    gate.add_argument("--verify", type=bool, default=True, help="compare the file with eager after writing it")
    gate.add_argument("--source", type=str, nargs="+", default=None, help="compare on these pictures, files or folders")
    gate.add_argument("--data_root", type=str | None, default=None, help="compare on pictures of its split val")
    gate.add_argument("--num_pictures", type=int, default=16, help="how many of them")
    return parser


def _run(config: Namespace) -> int:
    from lucid_yolo.export import web
    from lucid_yolo.export.formats import find_format, write
    from lucid_yolo.runtime.detector import read_network

    target = find_format(config.format, is_half=config.half, has_dynamic_size=config.dynamic_size)
    network, model = read_network(config.ckpt_path)
    meta = _deployed_meta(config, model)
    source = Path(config.ckpt_path)
    path = source.with_suffix(target.suffix) if config.output is None else Path(config.output)
    if path.suffix != target.suffix:
        raise ValueError(f"output: expected a name that ends in {target.suffix or 'no suffix'}, found {path.name}")
    if config.web_runtime is not None and config.format != "web":
        raise ValueError(f"web_runtime: belongs to format web, found format {config.format}")
    if path.resolve() == source.resolve():
        raise ValueError(f"output: expected another file than the checkpoint, found {path}")
    pictures = _pictures(config, meta) if config.verify else []
    write(config.format, network, meta, path)
    if config.web_runtime is not None:
        web.vendor(path, Path(config.web_runtime))
    print(f"written: {path} ({_mebibytes(path):.1f} MiB, {config.format}, {meta.precision})")
    return _verify(config.format, network, meta, target.opened(path), pictures) if config.verify else 0


def _deployed_meta(config: Namespace, model: Any) -> DeployedMeta:
    from lucid_yolo.models.scales import STRIDES
    from lucid_yolo.runtime.deployed_meta import DeployedMeta

    sides = config.image_size or [model.image_size_px]
    if len(sides) > 2 or any(side < STRIDES[-1] or side % STRIDES[-1] for side in sides):
        raise ValueError(f"image_size: expected a side, or height and width, multiples of {STRIDES[-1]}, found {sides}")
    if not 1 <= config.max_det <= 300:
        raise ValueError(f"max_det: expected 1 to 300, found {config.max_det}")
    meta = DeployedMeta(model, (0, 0), config.dynamic_size, config.max_det, config.half)
    return meta.at_size(sides[0], sides[-1])


def _mebibytes(path: Path) -> float:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files) / 2**20


def _verify(format_name: str, network: Network, meta: DeployedMeta, path: Path, pictures: Sequence[Picture]) -> int:
    """Compare, write what was found, and return the exit code."""
    from lucid_yolo.export.pictures import save_pair
    from lucid_yolo.export.verify import FP16, FP32, EagerReference, run_gate
    from lucid_yolo.models.head import DEPLOYED
    from lucid_yolo.predict.backends import open_detector

    reference = EagerReference(network, meta.model.build_task(), meta.max_detections)
    exported = open_detector(path, "cpu", branches=(DEPLOYED,))
    result, found = run_gate(reference, exported, pictures, FP16 if meta.is_half else FP32)
    report = path.with_name(f"{path.stem}.{format_name}.gate.json")
    drawing = path.with_name(f"{path.stem}.{format_name}.worst.png")
    content = {"file": str(path), "format": format_name, "entries": meta.to_strings(), **result.to_dict()}
    write_json(report, content)
    worst = next(picture for picture in pictures if picture.name == result.worst.name)
    least = 0.0 if result.only_best else result.min_score
    save_pair(worst, found[worst.name], meta.model.class_map.names, least, drawing)
    _print_table(result)
    print(f"gate: {report}, worst picture (left eager, right exported): {drawing}")
    return 0 if result.is_passed else DIFFERENT


def _pictures(config: Namespace, meta: DeployedMeta) -> list[Picture]:
    from lucid_yolo.data.dataset import open_split
    from lucid_yolo.export.pictures import draw_pictures, load_pictures, spread
    from lucid_yolo.predict.sources import list_sources

    if config.source is None and config.data_root is None:
        print("gate: no --source or --data_root given, so the pictures are a few drawn ones")
        return draw_pictures(meta.size_px, has_dynamic_size=meta.has_dynamic_size)
    if config.num_pictures < 1:
        raise ValueError(f"num_pictures: expected at least 1, found {config.num_pictures}")
    if config.source is not None:
        paths = [entry for entry in list_sources(config.source) if isinstance(entry, Path)]  # no videos
    else:
        paths = [Path(record.path) for record in open_split(config.data_root, "val").records]
    chosen = spread(paths, config.num_pictures)
    pictures = load_pictures(chosen, meta.size_px, has_dynamic_size=meta.has_dynamic_size)
    if not pictures:
        raise ValueError(f"gate: expected pictures, found none that can be decoded among {len(chosen)} files")
    return pictures


def _print_table(result: GateResult) -> None:
    """Print the pictures that differ most, and the whole."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    what = "the best of each picture" if result.only_best else f"above {result.min_score}"
    state = "passed" if result.is_passed else "FAILED"
    allowed = f"IoU > {result.tolerance.iou}, score within {result.tolerance.score:g}"
    table = Table(title=Text(f"{state}: {result.num_compared} detections {what}, allowed: same class, {allowed}"))
    table.add_column("picture")
    for head in ("compared", "missing", "least IoU", "most score\ndifference", "same\norder"):
        table.add_column(head, justify="right")
    for row in sorted(result.rows, key=lambda row: row.badness, reverse=True)[:NUM_SHOWN]:
        cells = (str(row.num_compared), str(row.num_missing), f"{row.worst_iou:.6f}", f"{row.worst_score:.1e}")
        table.add_row(Text(Path(row.name).name), *cells, "yes" if row.is_same_order else "no")
    Console().print(table)
