"""What all plots share: look, class names in a font that has them, PNG and SVG."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.text import Text

from lucid_yolo.viz.draw import class_color
from lucid_yolo.viz.fonts import drawable_text

DOTS_PER_INCH = 110
# Class colours are made for areas; thin lines on white need darker ones.
LINE_SHADE, MAX_LINE_LUMA = 0.8, 0.5
INK, FAINT_LINE = "#111111", "#b8c4cf"
LINE_COLORS = ("#0b6fb8", "#e07b00", "#2a9d4a", "#b3328f", "#6b5bd2", "#777777")


def new_figure(width_inches: float, height_inches: float) -> Figure:
    """Return an empty white figure that pyplot knows nothing of."""
    figure = Figure(figsize=(width_inches, height_inches), dpi=DOTS_PER_INCH, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def clean(axes: Axes) -> None:
    """Give axes a faint grid and two sides."""
    axes.grid(visible=True, color="#e4e8ec", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def line_color(label: int) -> tuple[float, ...]:
    """Return the colour of a class, dark enough for a line on white; parts in [0, 1]."""
    red, green, blue = (LINE_SHADE * c / 255 for c in class_color(label))
    shade = min(1.0, MAX_LINE_LUMA / max(0.299 * red + 0.587 * green + 0.114 * blue, 1e-9))
    return red * shade, green * shade, blue * shade


def short_name(name: str, label: int, max_length: int = 28) -> tuple[str, str]:
    """Return (class name cut to ``max_length``, font file that can draw it); ``#label`` when no font can.

    Args:
        name: Class name.
        label: Class index.
        max_length: Characters, at least 2.
    """
    text, path = drawable_text(name, f"#{label}")
    return (text if len(text) <= max_length else f"{text[: max_length - 1]}…"), path


def name_ticks(
    axis: Axis, entries: Sequence[tuple[str, str | None]], font_size: float = 8.0, rotation: int = 0
) -> None:
    """Write a text at each of the places 0, 1, 2, ... of an axis, literally.

    Args:
        axis: Axis of a plot.
        entries: (text, font file or None for the default) for each place.
        font_size: In points.
        rotation: In degrees.
    """
    texts = [text for text, _ in entries]
    axis.set_ticks(range(len(texts)), texts, parse_math=False, fontsize=font_size, rotation=rotation)
    for label, (_, path) in zip(axis.get_majorticklabels(), entries, strict=True):
        if path:
            label.set_fontproperties(FontProperties(fname=path, size=font_size))


def write_texts(texts: Sequence[Text], entries: Sequence[tuple[str, str | None]]) -> None:
    """Set the texts of a legend and their fonts, literally: no math, nothing hidden for names that start with "_".

    Args:
        texts: Of a legend.
        entries: (text, font file or None for the default) for each.
    """
    for text, (entry, path) in zip(texts, entries, strict=True):
        text.set_parse_math(False)
        text.set_text(entry)
        if path:
            text.set_fontproperties(FontProperties(fname=path, size=text.get_fontsize()))


def save_png(figure: Figure, output_png: Path) -> None:
    """Write a figure as PNG; missing folders are made."""
    output_png.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output_png, format="png")


def to_svg(figure: Figure, key: str) -> str:
    """Return a figure as an SVG element for an HTML page: transparent, text as text, the same bytes every time.

    Args:
        figure: The figure.
        key: Differs between the figures of one page, so that their inner references do, too.
    """
    stream = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": key}):
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    svg = stream.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)  # it would hold for the whole page
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns:?\w*="[^"]*"', "", svg)  # HTML knows both; nothing in the page shall look like an address
    svg = re.sub(r' id="(figure|axes|patch|line2d|text|xtick|ytick|legend|matplotlib\.axis)_\w+"', "", svg)
    return re.sub(r' (d|x|y|transform)="([^"]*)"', _shorten, svg)


def _shorten(match: re.Match[str]) -> str:
    """Round the numbers of an attribute to hundredths of a point."""
    numbers = re.sub(r"-?\d+\.\d+(?!\d*e)", lambda m: f"{float(m.group()):.2f}".rstrip("0").rstrip("."), match.group(2))
    return f' {match.group(1)}="{numbers}"'
