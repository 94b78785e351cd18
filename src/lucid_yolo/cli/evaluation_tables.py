"""Tables of an evaluation for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lucid_yolo.runtime.metric_names import HEADS, ROWS

if TYPE_CHECKING:
    from lucid_yolo.runtime.evaluation import Evaluation


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
