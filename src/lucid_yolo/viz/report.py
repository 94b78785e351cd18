"""One self-contained HTML page: tables, drawings and pictures. It asks for nothing but itself."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from lucid_yolo.viz.figures import to_svg

Cell = str | int | float | None

TEMPLATE = "report.html.jinja"
MAX_PICTURE_BYTES = 70_000
QUALITIES = (85, 75, 60, 45, 30)
WIDE_INCHES = 6.0

# Sorts a table by the column whose heading is pressed: numbers by value, largest first, empty cells last.
SORT_SCRIPT = """
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const key = (row) => {
      const cell = row.cells[column];
      return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
    };
    const rows = [...table.tBodies[0].rows];
    const isNumeric = rows.some((row) => key(row) !== null);
    const before = head.getAttribute("aria-sort");
    const first = isNumeric ? "descending" : "ascending";
    const order = before === null ? first : before === "ascending" ? "descending" : "ascending";
    const sign = order === "ascending" ? 1 : -1;
    rows.sort((a, b) => {
      if (!isNumeric) return sign * a.cells[column].textContent.localeCompare(b.cells[column].textContent);
      const [x, y] = [key(a), key(b)];
      if (x === null || y === null) return (x === null) - (y === null);
      return sign * (x - y);
    });
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", order);
    table.tBodies[0].append(...rows);
  }));
}
"""


@dataclass(frozen=True)
class Card:
    """A number to see first.

    Attributes:
        name: What it is.
        value: The number as text.
        note: Small print.
    """

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A table; the first column and columns of text stand left, numbers right.

    Attributes:
        columns: Headings; empty for a table without.
        rows: Cells; None is shown as a dash, floats with four decimals.
        title: Heading above it.
        is_sortable: The reader can sort it by a column.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    is_sortable: bool = False

    @property
    def text_columns(self) -> frozenset[int]:
        """Columns that hold text somewhere."""
        return frozenset(i for row in self.rows for i, cell in enumerate(row) if isinstance(cell, str))


@dataclass(frozen=True)
class Drawing:
    """A plot.

    Attributes:
        figure: The plot.
        caption: Text below it.
        may_shrink: On a narrow page it shrinks; otherwise the reader scrolls it.
    """

    figure: Figure
    caption: str = ""
    may_shrink: bool = True


@dataclass(frozen=True)
class Picture:
    """A photograph with something drawn on it.

    Attributes:
        pixels_rgb: ``[H, W, 3]`` uint8, no larger than it should be shown.
        caption: Text below it.
    """

    pixels_rgb: NDArray[np.uint8]
    caption: str


@dataclass(frozen=True)
class Section:
    """A part of the page, shown in the order of the attributes.

    Attributes:
        title: Heading.
        text: A paragraph.
        tables: Tables.
        drawings: Plots.
        pictures: Photographs, in columns.
        details: Longer texts by title, folded.
    """

    title: str
    text: str = ""
    tables: tuple[Table, ...] = ()
    drawings: tuple[Drawing, ...] = ()
    pictures: tuple[Picture, ...] = ()
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """A page.

    Attributes:
        title: Heading.
        subtitle: Line below it.
        cards: Numbers to see first.
        sections: Parts.
    """

    title: str
    subtitle: str
    cards: tuple[Card, ...]
    sections: tuple[Section, ...]


def write_report(report: Report, path: Path) -> None:
    """Write a page as one HTML file without references to any other; every text in it is escaped.

    Args:
        report: What it shows.
        path: File; missing folders are made.
    """
    script_sha256 = base64.b64encode(hashlib.sha256(SORT_SCRIPT.encode()).digest()).decode()
    template = _environment().get_template(TEMPLATE)
    sections = [_rendered(section, f"s{i}") for i, section in enumerate(report.sections)]
    page = {"title": report.title, "subtitle": report.subtitle, "cards": report.cards, "sections": sections}
    text = template.render(report=page, script=Markup(SORT_SCRIPT), script_sha256=script_sha256)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _environment() -> Environment:
    loader = PackageLoader("lucid_yolo.viz", ".")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["shown"] = _shown
    return environment


def _rendered(section: Section, key: str) -> dict[str, Any]:
    """Return a section with its plots as SVG and its pictures as JPEG."""
    drawings = [
        {
            "svg": Markup(to_svg(drawing.figure, f"{key}d{i}")),
            "caption": drawing.caption,
            "kind": _kind(drawing),
        }
        for i, drawing in enumerate(section.drawings)
    ]
    pictures = []
    for picture in section.pictures:
        height, width = picture.pixels_rgb.shape[:2]
        content = base64.b64encode(_jpeg(picture.pixels_rgb)).decode()
        pictures.append({"base64": content, "width": width, "height": height, "caption": picture.caption})
    parts = {"title": section.title, "text": section.text, "tables": section.tables, "details": section.details}
    return parts | {"drawings": drawings, "pictures": pictures}


def _kind(drawing: Drawing) -> str:
    if not drawing.may_shrink:
        return "huge"
    return "wide" if drawing.figure.get_figwidth() > WIDE_INCHES else "small"


def _jpeg(pixels_rgb: NDArray[np.uint8]) -> bytes:
    """Return a JPEG of the best quality that keeps it small."""
    content = b""
    for quality in QUALITIES:
        stream = io.BytesIO()
        Image.fromarray(pixels_rgb).save(stream, format="JPEG", quality=quality, optimize=True)
        content = stream.getvalue()
        if len(content) <= MAX_PICTURE_BYTES:
            break
    return content


def _shown(cell: Cell) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return f"{cell:z.4f}"
    return f"{cell:,}" if isinstance(cell, int) else cell
