"""``lucid-eval``: score both heads of a checkpoint on a split."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jsonargparse import ArgumentParser, Namespace

from lucid_yolo.cli.arguments import add_run_arguments, make_parser
from lucid_yolo.cli.errors import run_command

if TYPE_CHECKING:
    from lucid_yolo.evaluate.coco import ImageDetections
    from lucid_yolo.runtime.evaluation import Evaluation
    from lucid_yolo.structures import ClassMap

HEADS = {"one_to_one": "one-to-one\n(deployed)", "one_to_many": "one-to-many\n+ NMS"}
ROWS = {
    "map": "AP 0.50:0.95",
    "map50": "AP 0.50",
    "map75": "AP 0.75",
    "map_small": "AP small",
    "map_medium": "AP medium",
    "map_large": "AP large",
    "ar_1": "AR, 1 detection",
    "ar_10": "AR, 10 detections",
    "ar_max": "AR, {max_detections} detections",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Score a checkpoint; return the exit code.

    Args:
        argv: Arguments after the command's name; None takes those of the process.
    """
    return run_command(lambda: _run(_parser().parse_args(argv)))


def _parser() -> ArgumentParser:
    parser = make_parser("lucid-eval", "COCO average precision of both heads of a checkpoint, with their difference.")
    inputs = parser.add_argument_group("input")
    inputs.add_argument("--ckpt_path", type=str, required=True, help="checkpoint or exported file")
    inputs.add_argument("--data_root", type=str, required=True, help="data set: a folder or a data YAML")
    inputs.add_argument("--split", type=Literal["train", "val", "test"], default="val", help="which part of it")
    inputs.add_argument("--num_workers", type=int | None, default=None, help="reading processes; default: one per core")
    output = parser.add_argument_group("output")
    output.add_argument("--json", type=str | None, default=None, help="write every number to this file")
    output.add_argument(
        "--save_predictions", type=str | None, default=None, help="write the deployed head's detections, COCO JSON"
    )
    add_run_arguments(parser)
    return parser


def _run(config: Namespace) -> int:
    from lucid_yolo.data.dataset import open_split
    from lucid_yolo.predict.backends import open_detector
    from lucid_yolo.runtime.detector import choose_device
    from lucid_yolo.runtime.evaluation import evaluate_split

    choose_device(config.device)
    split = open_split(config.data_root, config.split)
    if not split.records:
        raise ValueError(
            f"split {config.split!r}: expected images, found none that can be used\n{split.account.to_table()}"
        )
    detector = open_detector(config.ckpt_path, config.device, config.precision)
    evaluation = evaluate_split(detector, split, config.batch_size, config.num_workers)
    print_tables(evaluation, f"{config.ckpt_path} on {config.data_root}, {config.split}")
    if config.json is not None:
        report: dict[str, Any] = {key: config[key] for key in ("ckpt_path", "data_root", "split", "batch_size")}
        report |= {"device": str(detector.device), "precision": detector.precision, "model": detector.meta.to_dict()}
        report |= {"label_rows": split.account.to_dict()["rows"], **evaluation.report()}
        _write_json(config.json, report, indent=2)
    if config.save_predictions is not None:
        _write_json(config.save_predictions, to_coco_rows(evaluation.detections["one_to_one"], split.class_map))
    return 0


def to_coco_rows(detections: Sequence[ImageDetections], class_map: ClassMap) -> list[dict[str, Any]]:
    """Return COCO detection rows with the data set's own image and category ids.

    Args:
        detections: Detections per image.
        class_map: Classes of the data set.
    """
    rows = []
    for found in detections:
        boxes = found.boxes_xyxy_src.tolist()
        for (x1, y1, x2, y2), score, label in zip(boxes, found.score.tolist(), found.label.tolist(), strict=True):
            category_id, bbox = class_map.source_ids[label], [x1, y1, x2 - x1, y2 - y1]
            rows.append({"image_id": found.image_id, "category_id": category_id, "bbox": bbox, "score": score})
    return rows


def print_tables(evaluation: Evaluation, title: str) -> None:
    """Print the headline numbers and those of every class; "-" for the head that an exported file has not.

    Args:
        evaluation: Metrics of both heads.
        title: What was scored on what.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    heads = evaluation.to_dict()
    deployed = heads["one_to_one"]
    dense = heads.get("one_to_many", {"per_class": [{} for _ in deployed["per_class"]]})
    table = Table(title=Text(f"{title}: {deployed['num_images']} images, {deployed['num_objects']} objects"))
    table.add_column("COCO metric")
    for head in (*HEADS.values(), "difference"):
        table.add_column(head, justify="right")
    for name, label in ROWS.items():
        table.add_row(label.format(**deployed), *_cells(deployed, dense, name))
    classes = Table(title="per class, AP 0.50:0.95")
    classes.add_column("class")
    for head in ("images", "objects", "deployed", "+ NMS", "difference", "deployed\nAP 0.50"):
        classes.add_column(head, justify="right")
    for row, other in zip(deployed["per_class"], dense["per_class"], strict=True):
        counts = (str(row["num_images"]), str(row["num_objects"]))
        classes.add_row(Text(row["name"]), *counts, *_cells(row, other, "ap"), _number(row["ap50"]))
    console = Console()
    console.print(table)
    console.print(classes)


def _cells(deployed: Mapping[str, Any], dense: Mapping[str, Any], name: str) -> tuple[str, str, str]:
    """Return both heads' number and their difference as text."""
    a, b = deployed[name], dense.get(name)
    return _number(a), _number(b), "-" if a is None or b is None else f"{a - b:+z.4f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _write_json(path: str, content: object, indent: int | None = None) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, ensure_ascii=False, indent=indent, allow_nan=False)
    Path(path).write_text(text + "\n", encoding="utf-8")
