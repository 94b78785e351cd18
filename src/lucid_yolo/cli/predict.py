"""``lucid-predict``: draw what a checkpoint finds in pictures, and write it down."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, Namespace

from lucid_yolo.cli.arguments import add_run_arguments, make_parser
from lucid_yolo.cli.errors import run_command

if TYPE_CHECKING:
    from lucid_yolo.predict.results import Results
    from lucid_yolo.structures import ClassMap

RUNS = Path("runs", "predict")


def main(argv: Sequence[str] | None = None, prog: str = "lucid-predict") -> int:
    """Predict pictures; return the exit code.

    Args:
        argv: Arguments after the command's name; None takes those of the process.
        prog: The command as users type it.
    """
    return run_command(lambda: _run(_parser(prog).parse_args(argv)))


def _parser(prog: str) -> ArgumentParser:
    parser = make_parser(prog, "Find objects in pictures: writes drawn pictures and predictions.json.")
    inputs = parser.add_argument_group("input")
    inputs.add_argument("--ckpt_path", type=str, required=True, help="checkpoint or exported file")
    inputs.add_argument("--source", type=str, nargs="+", required=True, help="files, folders or patterns")
    inputs.add_argument("--conf", type=float, default=0.25, help="least confidence of a detection")
    output = parser.add_argument_group("output")
    output.add_argument("--save_dir", type=str | None, default=None, help=f"default: the next {RUNS}/<n>")
    output.add_argument("--save_txt", action="store_true", help="also write labels/<picture>.txt in YOLO format")
    add_run_arguments(parser)
    return parser


def _run(config: Namespace) -> int:
    from lucid_yolo.predict.backends import open_detector
    from lucid_yolo.predict.predictor import Predictor
    from lucid_yolo.predict.sources import list_images
    from lucid_yolo.runtime.run_folder import next_run_folder

    paths = list_images(config.source)
    _check_save_dir(config.save_dir, paths)
    branches = ("one_to_one",)
    detector = open_detector(config.ckpt_path, config.device, config.precision, branches, is_fused=True)
    predictor = Predictor(detector, config.conf, config.batch_size)
    save_dir = next_run_folder(RUNS) if config.save_dir is None else Path(config.save_dir)
    objects: Counter[str] = Counter()
    total_ms = 0.0
    with PredictionsWriter(save_dir / "predictions.json", detector.meta.class_map) as predictions:
        for stem, result in zip(unique_stems(paths), predictor.predict(paths), strict=True):
            result.save(save_dir / f"{stem}.jpg")
            if config.save_txt:
                result.save_txt(save_dir / "labels" / f"{stem}.txt")
            predictions.add(stem, result)
            objects.update(row["name"] for row in result.summary())
            total_ms += result.speed["inference"]
    counts = ", ".join(f"{name} {count}" for name, count in objects.most_common())
    found = f"{objects.total()} objects" + (f" ({counts})" if counts else "")
    print(f"{len(paths)} pictures, {found}, network {total_ms / len(paths):.1f} ms per picture, written to {save_dir}")
    return 0


def _check_save_dir(save_dir: str | None, paths: Sequence[Path]) -> None:
    """Refuse to write among the source pictures, where a drawn picture could replace one."""
    if save_dir is not None and Path(save_dir).resolve() in {parent.resolve() for parent in {p.parent for p in paths}}:
        raise ValueError(f"save_dir: expected a folder without source pictures, found {save_dir}; choose another one")


def unique_stems(paths: Sequence[Path]) -> list[str]:
    """Return one file stem per picture, numbered from the second of its kind, also where case does not count."""
    taken: set[str] = set()
    numbers: Counter[str] = Counter()
    stems = []
    for path in paths:
        stem = path.stem
        while stem.casefold() in taken:
            numbers[path.stem] += 1
            stem = f"{path.stem}_{numbers[path.stem] + 1}"
        taken.add(stem.casefold())
        stems.append(stem)
    return stems


class PredictionsWriter:
    """Writes detections as they come: a COCO detection list that every COCO tool reads, whole also after an error.

    Each row has COCO's ``image_id`` (the stem of the drawn picture), ``category_id`` (the id of the training data),
    ``bbox`` and ``score``, and, for readers, ``category_name`` and ``file_name`` (the source).

    Args:
        path: File to write; missing folders are made.
        class_map: Classes of the detector.
    """

    def __init__(self, path: Path, class_map: ClassMap) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._class_map = class_map
        self._names = dict(zip(class_map.source_ids, class_map.names, strict=True))
        self._file = path.open("w", encoding="utf-8")
        self._separator = "[\n"

    def __enter__(self) -> PredictionsWriter:
        return self

    def add(self, image_id: str, result: Results) -> None:
        """Write the detections of one picture."""
        from dataclasses import replace

        from lucid_yolo.predict.results import to_coco

        for row in to_coco([replace(result, image_id=image_id)], self._class_map):
            extra: dict[str, Any] = {"category_name": self._names[row["category_id"]], "file_name": result.path}
            self._file.write(self._separator + json.dumps(row | extra, ensure_ascii=False))
            self._separator = ",\n"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.write(("[" if self._separator == "[\n" else "\n") + "]\n")
        self._file.close()
