"""``lucid-predict``: draw what a checkpoint finds in pictures and videos, and write it down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jsonargparse import ArgumentParser, Namespace

from lucid_yolo.cli.arguments import add_run_arguments, make_parser
from lucid_yolo.cli.errors import run_command

if TYPE_CHECKING:
    from lucid_yolo.predict.sources import VideoSource
    from lucid_yolo.structures import ClassMap

RUNS = Path("runs", "predict")


def main(argv: Sequence[str] | None = None, prog: str = "lucid-predict") -> int:
    """Predict pictures and videos; return the exit code.

    Args:
        argv: Arguments after the command's name; None takes those of the process.
        prog: The command as users type it.
    """
    return run_command(lambda: _run(_parser(prog).parse_args(argv)))


def _parser(prog: str) -> ArgumentParser:
    parser = make_parser(prog, "Find objects in pictures and videos: writes them drawn, and predictions.json.")
    inputs = parser.add_argument_group("input")
    inputs.add_argument("--ckpt_path", type=str, required=True, help="checkpoint or exported file")
    inputs.add_argument(
        "--source", type=str, nargs="+", default=None, help="files, folders, patterns, .txt lists, camera number, URLs"
    )
    inputs.add_argument("--data_root", type=str | None, default=None, help="instead: the pictures of this data set")
    inputs.add_argument("--split", type=Literal["train", "val", "test"], default="val", help="which part of it")
    inputs.add_argument("--vid_stride", type=int, default=1, help="take every n-th frame of videos")
    inputs.add_argument("--on_error", type=Literal["raise", "skip"], default="raise", help="at an undecodable file")
    found = parser.add_argument_group("detections")
    found.add_argument("--conf", type=float, default=0.25, help="least confidence of a detection")
    found.add_argument("--max_det", type=int, default=300, help="most detections per picture")
    found.add_argument("--classes", type=str, nargs="+", default=None, help="names or indices; default: all")
    found.add_argument(
        "--track",
        type=Literal["bytetrack", "ocsort", "botsort", "sort"] | None,
        nargs="?",
        const="bytetrack",
        default=None,
        help="follow objects through videos; without a name: bytetrack",
    )
    output = parser.add_argument_group("output")
    output.add_argument("--save_dir", type=str | None, default=None, help=f"default: the next {RUNS}/<n>")
    output.add_argument("--save_video", type=bool, default=True, help="drawn videos, <video>.mp4")
    output.add_argument("--save_json", type=bool, default=True, help="predictions.json, COCO rows with source ids")
    output.add_argument("--save_txt", action="store_true", help="also write labels/<picture>.txt in YOLO format")
    output.add_argument("--save_crop", action="store_true", help="also write crops/<class>/<picture>_<n>.png")
    add_run_arguments(parser)
    return parser


def _run(config: Namespace) -> int:
    from lucid_yolo.models.head import DEPLOYED
    from lucid_yolo.predict.backends import open_detector
    from lucid_yolo.predict.predictor import Predictor
    from lucid_yolo.predict.writers import Outputs, ResultsFolder
    from lucid_yolo.runtime.run_folder import next_run_folder

    sources, image_ids, class_map = _sources(config)
    _check_save_dir(config.save_dir, sources)
    detector = open_detector(config.ckpt_path, config.device, config.precision, (DEPLOYED,), is_fused=True)
    predictor = Predictor(detector, config.conf, config.batch_size, config.max_det)
    class_map = _common_classes(detector.meta.class_map, class_map)
    classes = _classes(config.classes, class_map)
    options = {"classes": classes, "vid_stride": config.vid_stride, "on_error": config.on_error}
    find = partial(predictor.track, tracker=config.track) if config.track else predictor.predict
    results = find(sources, **options)
    save_dir = next_run_folder(RUNS) if config.save_dir is None else Path(config.save_dir)
    outputs = Outputs(
        has_videos=config.save_video,
        has_json=config.save_json,
        has_texts=config.save_txt,
        has_crops=config.save_crop,
        vid_stride=config.vid_stride,
    )
    objects: Counter[str] = Counter()
    pictures: Counter[str] = Counter()
    total_ms = 0.0
    with ResultsFolder(save_dir, sources, class_map, outputs, image_ids) as folder:
        for result in results:
            folder.add(result)
            objects.update(row["name"] for row in result.summary())
            pictures["pictures" if result.frame_index is None else "frames"] += 1
            total_ms += result.speed["inference"]
    counts = ", ".join(f"{name} {count}" for name, count in objects.most_common())
    found = f"{objects.total()} objects" + (f" ({counts})" if counts else "")
    seen = ", ".join(f"{count} {kind}" for kind, count in pictures.items()) or "0 pictures"
    mean_ms = total_ms / max(pictures.total(), 1)
    print(f"{seen}, {found}, network {mean_ms:.1f} ms per picture, written to {save_dir}")
    return 0


def _sources(config: Namespace) -> tuple[list[Path | VideoSource], list[int | str] | None, ClassMap | None]:
    """Return what to predict; from a data set also the ids of its pictures and its classes."""
    from lucid_yolo.data.dataset import open_split
    from lucid_yolo.predict.sources import list_sources

    if (config.source is None) == (config.data_root is None):
        raise ValueError("expected one of --source and --data_root, found " + ("both" if config.source else "neither"))
    if config.source is not None:
        return list_sources(config.source), None, None
    split = open_split(config.data_root, config.split)
    if not split.records:
        raise ValueError(f"data_root: expected pictures in split {config.split} of {config.data_root}, found none")
    return [Path(r.path) for r in split.records], [r.image_id for r in split.records], split.class_map


def _common_classes(trained: ClassMap, found: ClassMap | None) -> ClassMap:
    """Return the classes whose ids are written: the data set's where one is given."""
    from lucid_yolo.runtime.evaluation import check_classes

    if found is None:
        return trained
    check_classes(trained, found)
    return found


def _classes(classes: Sequence[str] | None, class_map: ClassMap) -> list[int | str] | None:
    """Return names as they are and every other number as an index."""
    if classes is None:
        return None
    return [int(text) if text.isdecimal() and text not in class_map.names else text for text in classes]


def _check_save_dir(save_dir: str | None, sources: Sequence[Path | VideoSource]) -> None:
    """Refuse to write among the sources, where a drawn picture or video could replace one."""
    places = [source if isinstance(source, Path) else source.location for source in sources]
    parents = {place.parent for place in places if isinstance(place, Path)}
    if save_dir is not None and Path(save_dir).resolve() in {parent.resolve() for parent in parents}:
        raise ValueError(f"save_dir: expected a folder without source pictures, found {save_dir}; choose another one")
