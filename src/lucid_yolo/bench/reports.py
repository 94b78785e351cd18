"""Tables and files of reports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


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
    for path, written in ((json_path, json.dumps(content, indent=1, ensure_ascii=False)), (report_path, text)):
        if path is not None:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(written + "\n", encoding="utf-8")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
