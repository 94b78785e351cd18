"""What all plots share: look, class names in a font that has them, PNG and SVG."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, get_font
from matplotlib.text import Text
from matplotlib.transforms import ScaledTranslation

from lucid_yolo.viz.draw import class_color
from lucid_yolo.viz.fonts import default_font_path, drawable_text

DOTS_PER_INCH = 110
PNG_LEVEL = 3  # a third of the time of the default level 6, files a little larger
# Class colours are made for areas; thin lines on white need darker ones.
LINE_SHADE, MAX_LINE_LUMA = 0.8, 0.5
_MEASURED_DPI, _SUBPIXELS = 72, 64  # font units are 64ths of a pixel
INK, FAINT_LINE = "#111111", "#b8c4cf"
LINE_COLORS = ("#0b6fb8", "#e07b00", "#2a9d4a", "#b3328f", "#6b5bd2", "#777777")


@dataclass(frozen=True)
class Margins:
    """Room for texts around the panels of a figure, in inches.

    A layout engine would measure every text, several times, and draw the figure once more for it: most of the time of
    a plot. What these plots hold is known, so the room is given.

    Attributes:
        left: For the numbers, or the names, and the label of the axis.
        right: As much as half a number reaches out.
        bottom: For the numbers and the label of the axis.
        top: For the title.
        between_columns: Left and right of two neighbours.
        between_rows: Bottom and top of two neighbours.
    """

    left: float = 0.65
    right: float = 0.2
    bottom: float = 0.5
    top: float = 0.3
    between_columns: float = 0.75
    between_rows: float = 0.62


def new_figure(
    width_inches: float, height_inches: float, margins: Margins, num_rows: int = 1, num_columns: int = 1
) -> Figure:
    """Return an empty white figure that pyplot knows nothing of.

    Args:
        width_inches: Width.
        height_inches: Height.
        margins: Room around and between the panels.
        num_rows: Panels above each other.
        num_columns: Panels side by side.
    """
    figure = Figure(figsize=(width_inches, height_inches), dpi=DOTS_PER_INCH, facecolor="white")
    FigureCanvasAgg(figure)
    inner_width, inner_height = (
        width_inches - margins.left - margins.right,
        height_inches - margins.bottom - margins.top,
    )
    panel_width = (inner_width - (num_columns - 1) * margins.between_columns) / num_columns
    panel_height = (inner_height - (num_rows - 1) * margins.between_rows) / num_rows
    figure.subplots_adjust(
        left=margins.left / width_inches,
        right=1 - margins.right / width_inches,
        bottom=margins.bottom / height_inches,
        top=1 - margins.top / height_inches,
        wspace=margins.between_columns / panel_width,
        hspace=margins.between_rows / panel_height,
    )
    return figure


def clean(axes: Axes) -> None:
    """Give axes a faint grid and two sides."""
    axes.tick_params(labelsize=8, gridOn=True, grid_color="#e4e8ec", grid_linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def write_title(axes: Axes, title: str, note: str = "") -> None:
    """Write a title, and a note at the other end of its line; neither is read as math, nor makes way for anything."""
    axes.set_title(title, fontsize=10, fontweight="bold", loc="left", y=1.0, parse_math=False)
    if note:
        axes.set_title(note, fontsize=8, loc="right", y=1.0, parse_math=False)


def label_axes(axes: Axes, x: str, y: str, *, below_inches: float = 0.27, left_inches: float = 0.45) -> None:
    """Write what the axes are at fixed places.

    Args:
        axes: Axes of a plot.
        x: Text below.
        y: Text to the left, upright.
        below_inches: Room that it leaves for numbers or names.
        left_inches: The same.
    """
    scale = axes.get_figure(root=True).dpi_scale_trans  # type: ignore[union-attr]
    axes.set_xlabel(x, fontsize=8)
    axes.set_ylabel(y, fontsize=8)
    axes.xaxis.set_label_coords(0.5, 0.0, axes.transAxes + ScaledTranslation(0.0, -below_inches, scale))
    axes.yaxis.set_label_coords(0.0, 0.5, axes.transAxes + ScaledTranslation(-left_inches, 0.0, scale))


def widest_inches(entries: Sequence[tuple[str, str | None]], font_size: float) -> float:
    """Return the width of the widest of some texts.

    Args:
        entries: (text, font file or None for the default) for each.
        font_size: In points.
    """
    return max((_width_inches(text, path or default_font_path(), font_size) for text, path in entries), default=0.0)


def _width_inches(text: str, path: str, font_size: float) -> float:
    font = get_font(path)
    font.set_size(font_size, _MEASURED_DPI)
    font.set_text(text, 0.0)
    return float(font.get_width_height()[0]) / _SUBPIXELS / _MEASURED_DPI


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
    figure.savefig(output_png, format="png", pil_kwargs={"compress_level": PNG_LEVEL})


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
