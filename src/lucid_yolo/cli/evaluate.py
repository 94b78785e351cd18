"""``lucid-eval``: score both heads of a checkpoint on a split."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from jsonargparse import ArgumentParser, Namespace

from lucid_yolo.cli.arguments import add_run_arguments, make_parser
from lucid_yolo.cli.errors import run_command
from lucid_yolo.cli.evaluation_tables import print_tables
from lucid_yolo.runtime.json_file import write_json


def main(argv: Sequence[str] | None = None) -> int:
    """Score a checkpoint; return the exit code.

    Args:
        argv: Arguments after the command's name; None takes those of the process.
    """
    return run_command(lambda: _run(_parser().parse_args(argv)))


def _parser() -> ArgumentParser:
    parser = make_parser("lucid-eval", "COCO average precision of both heads of a checkpoint, with their difference.")
    inputs = parser.add_argument_group("input")
    inputs.add_argument("--ckpt_path", type=str | None, default=None, help="checkpoint or exported file")
    inputs.add_argument("--data_root", type=str, required=True, help="data set: a folder or a data YAML")
    inputs.add_argument("--split", type=Literal["train", "val", "test"], default="val", help="which part of it")
    inputs.add_argument("--num_workers", type=int | None, default=None, help="reading processes; default: one per core")
    inputs.add_argument(
        "--compare", type=str, nargs=2, metavar=("A", "B"), help="two COCO results files, instead of a checkpoint"
    )
    more = parser.add_argument_group("more numbers")
    more.add_argument(
        "--size_buckets", type=list[float], default=[], help="sides in source pixels, such as [0,16,32,96]: AP of each"
    )
    more.add_argument("--bootstrap", type=int, default=0, help="draws of images for 95-percent intervals, such as 1000")
    output = parser.add_argument_group("output")
    output.add_argument("--json", type=str | None, default=None, help="write every number to this file")
    output.add_argument(
        "--save_predictions", type=str | None, default=None, help="write the deployed head's detections, COCO JSON"
    )
    output.add_argument("--report", type=str | None, default=None, help="write a page with numbers and pictures, HTML")
    add_run_arguments(parser)
    return parser


def _run(config: Namespace) -> int:
    if config.bootstrap < 0:
        raise ValueError(f"bootstrap: expected 0 or more draws, found {config.bootstrap}")
    if (config.ckpt_path is None) == (config.compare is None):
        found = "neither" if config.compare is None else "both"
        raise ValueError(f"expected either --ckpt_path or --compare A.json B.json, found {found}")
    if config.compare is not None:
        from lucid_yolo.cli.compare import run_comparison

        result = run_comparison(config)
        if config.json is not None:
            write_json(config.json, result)
        return 0
    return _evaluate(config)


def _evaluate(config: Namespace) -> int:
    from lucid_yolo.data.dataset import open_split
    from lucid_yolo.evaluate.coco_rows import to_coco_rows
    from lucid_yolo.models.head import DEPLOYED
    from lucid_yolo.predict.backends import open_detector
    from lucid_yolo.runtime.detector import choose_device
    from lucid_yolo.runtime.evaluation import evaluate_split
    from lucid_yolo.runtime.evaluation_extras import evaluation_extras

    choose_device(config.device)
    split = open_split(config.data_root, config.split)
    if not split.records:
        raise ValueError(
            f"split {config.split!r}: expected images, found none that can be used\n{split.account.to_table()}"
        )
    detector = open_detector(config.ckpt_path, config.device, config.precision)
    start = time.perf_counter()
    evaluation = evaluate_split(detector, split, config.batch_size, config.num_workers)
    seconds = time.perf_counter() - start
    extras = evaluation_extras(evaluation, split, config.size_buckets, config.bootstrap)
    print_tables(evaluation, f"{config.ckpt_path} on {config.data_root}, {config.split}", extras)
    if config.json is not None:
        report: dict[str, Any] = {key: config[key] for key in ("ckpt_path", "data_root", "split", "batch_size")}
        report |= {"device": str(detector.device), "precision": detector.precision, "model": detector.meta.to_dict()}
        report |= {"label_rows": split.account.to_dict()["rows"], **evaluation.report(), **extras.to_dict()}
        write_json(config.json, report)
    if config.save_predictions is not None:
        rows = to_coco_rows(evaluation.detections[DEPLOYED], split.class_map)
        write_json(config.save_predictions, rows, is_compact=True)
    if config.report is not None:
        from lucid_yolo.runtime.report import write_evaluation_report

        facts = {key: config[key] for key in ("ckpt_path", "data_root", "split", "batch_size")}
        facts |= {
            "precision": detector.precision,
            "images per second": f"{len(split.records) / seconds:.1f}",
        }
        write_evaluation_report(
            Path(config.report), evaluation, split, detector.meta, facts, str(detector.device), extras
        )
    return 0
