"""Tables and files of reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lucid_yolo.runtime.json_file import write_json


def to_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table; None is shown as a dash, floats with four significant digits."""
    lines = [columns, ["---"] * len(columns), *([_cell(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def to_lines(values: Mapping[str, object]) -> str:
    """Return a Markdown list of names and values."""
    return "\n".join(f"* {name}: {value}" for name, value in values.items())


def write_reports(content: Mapping[str, Any], text: str, json_path: str | None, report_path: str | None) -> None:
    """Write a result where the user asked for it.

    Args:
        content: For the JSON file.
        text: For the Markdown file.
        json_path: None for no JSON.
        report_path: None for no Markdown.
    """
    if json_path is not None:
        write_json(json_path, content)
    if report_path is not None:
        Path(report_path).parent.mkdir(parents=True, exist_ok=True)
        Path(report_path).write_text(text + "\n", encoding="utf-8")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
