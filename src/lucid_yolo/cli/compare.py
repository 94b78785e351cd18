"""``lucid-eval --compare A.json B.json``: which of two prediction files is better, and whether that can be told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import Namespace

from lucid_yolo.runtime.metric_names import ROWS

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from lucid_yolo.evaluate.bootstrap import Interval
    from lucid_yolo.evaluate.comparison import Comparison

DEFAULT_DRAWS = 1000


def run_comparison(config: Namespace) -> dict[str, object]:
    """Compare two COCO results files on a split, print the result and return it as plain values.

    Args:
        config: Parsed arguments of ``lucid-eval``.

    Raises:
        ValueError: A file is no COCO results file of this data set, or the split has no images.
    """
    from lucid_yolo.data.dataset import open_split
    from lucid_yolo.evaluate.coco_rows import from_coco_rows
    from lucid_yolo.evaluate.comparison import compare_detections

    split = open_split(config.data_root, config.split)
    if not split.records:
        raise ValueError(f"split {config.split!r}: expected images, found none that can be used")
    first, second = (from_coco_rows(_read_json(path), split.records, split.class_map, path) for path in config.compare)
    found = compare_detections(split.records, first, second, split.class_map, config.bootstrap or DEFAULT_DRAWS)
    verdict = found.verdict()
    _print(found, config, verdict)
    header = {"a": config.compare[0], "b": config.compare[1], "data_root": config.data_root, "split": config.split}
    return {"files": header, "verdict": verdict, "num_images": len(split.records), **found.to_dict()}


def _read_json(path: str) -> object:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: expected a COCO results file, found no JSON ({error})") from error


def _print(found: Comparison, config: Namespace, verdict: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    for name, path in zip("AB", config.compare, strict=True):
        console.print(Text(f"{name}: {path}"))
    table = Table(title=f"{found.num_draws} draws of images, 95 % intervals")
    table.add_column("")
    for column in ("A", "B", "B - A", "from", "to"):
        table.add_column(column, justify="right")
    for name in ("map", "map50"):
        _add_row(table, Text(ROWS[name]), found.a[name].value, found.b[name].value, found.difference[name])
    table.add_section()
    for row in found.per_class:
        _add_row(table, Text(row.name), row.a, row.b, row.difference)
    console.print(table)
    if len(found.per_class) > 1:
        console.print("Of many classes some intervals miss 0 by chance: 1 in 20 where nothing differs.")
    console.print(Text(verdict, style="bold"))


def _add_row(table: Table, label: Text, a: float, b: float, difference: Interval) -> None:
    signed = (difference.value, difference.low, difference.high)
    table.add_row(label, _number(a), _number(b), *(_number(value, "+") for value in signed))


def _number(value: float, sign: str = "") -> str:
    return "-" if value != value else f"{value:{sign}z.4f}"
