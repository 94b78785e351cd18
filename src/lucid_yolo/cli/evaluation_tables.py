"""Tables of an evaluation for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lucid_yolo.runtime.metric_names import HEADS, ROWS

if TYPE_CHECKING:
    from rich.table import Table

    from lucid_yolo.runtime.evaluation import Evaluation
    from lucid_yolo.runtime.evaluation_extras import EvaluationExtras


def print_tables(evaluation: Evaluation, title: str, extras: EvaluationExtras | None = None) -> None:
    """Print the headline numbers and those of every class; "-" for the head that an exported file has not.

    Args:
        evaluation: Metrics of both heads.
        title: What was scored on what.
        extras: Further numbers.
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
    for more in _tables_of(extras) if extras is not None else []:
        console.print(more)
    console.print(classes)


def _tables_of(extras: EvaluationExtras) -> list[Table]:
    """Return the tables of intervals and of size buckets, as far as there are any."""
    from rich.table import Table

    tables = []
    if extras.intervals:
        tables.append(Table(title=f"95 % intervals, {extras.num_draws} draws of images"))
        for i, name in enumerate(("", "", "from", "to")):
            tables[-1].add_column(name, justify="right" if i > 1 else "left")
        sides = {**{name: HEADS[name] for name in HEADS if name in extras.intervals}, "": "difference"}
        for name, side in sides.items():
            for metric, interval in (extras.intervals.get(name) or extras.difference).items():
                numbers = [_number(v) for v in list(interval.to_dict().values())[1:]]
                tables[-1].add_row(" ".join(side.split()), ROWS[metric], *numbers)
    if extras.size_buckets:
        tables.append(Table(title="by size, side of a square in source pixels"))
        for name in ("", "objects", "deployed\nAP", "\nAP 0.50", "\nAR", "+ NMS\nAP"):
            tables[-1].add_column(name, justify="right" if name else "left")
        dense = extras.size_buckets.get("one_to_many")
        for i, bucket in enumerate(extras.size_buckets["one_to_one"]):
            row, other = bucket.to_dict(), {} if dense is None else dense[i].to_dict()
            cells = [_number(value) for value in (row["ap"], row["ap50"], row["ar"], other.get("ap"))]
            tables[-1].add_row(bucket.name, str(bucket.num_objects), *cells)
    return tables


def _cells(deployed: Mapping[str, Any], dense: Mapping[str, Any], name: str) -> tuple[str, str, str]:
    """Return both heads' number and their difference as text."""
    a, b = deployed[name], dense.get(name)
    return _number(a), _number(b), "-" if a is None or b is None else f"{a - b:+z.4f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
