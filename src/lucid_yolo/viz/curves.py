"""Plots of a training run and of precision against recall."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.legend import Legend
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from lucid_yolo.viz.draw import class_color
from lucid_yolo.viz.fonts import drawable_text

Points = tuple[list[float], list[float]]

BOOKKEEPING_COLUMNS = ("steps/", "train/is_finite")
POSITION_COLUMNS = ("step", "epoch")
PANEL_INCHES, PANEL_COLUMNS, DOTS_PER_INCH = (3.9, 2.8), 4, 110
LINE_COLORS = ("#0b6fb8", "#e07b00", "#2a9d4a", "#b3328f", "#6b5bd2", "#777777")
LINE_SHADE = 0.8  # class colours are made for areas; on white, thin lines need darker ones
MAX_LEGEND_LINES, MAX_LEGEND_CLASSES = 8, 20
# Longer series of a measured quantity (one with a prefix) are drawn faintly, with their running mean on top.
SMOOTHED_POINTS = 60


def plot_training(metrics_csv: Path, output_png: Path) -> None:
    """Draw every column of a run's metrics file, one panel per quantity.

    A column ``prefix/name`` is the line ``prefix`` in the panel ``name``, so that ``train/loss`` and ``val/loss``, or
    ``val/map`` and ``val_o2m/map`` (both heads), share one. Empty cells, texts and non-finite numbers are skipped.

    Args:
        metrics_csv: Table with a header; drawn against its column ``step``, else ``epoch``, else the row number.
        output_png: Picture to write.

    Raises:
        ValueError: The file holds no number to draw.
    """
    with metrics_csv.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    position = next((c for c in POSITION_COLUMNS if rows and c in rows[0]), None)
    panels = _panels(rows, position)
    if not panels:
        raise ValueError(f"{metrics_csv}: expected numbers beside step and epoch, found none in {len(rows)} rows")
    num_columns = min(PANEL_COLUMNS, len(panels))
    num_rows = math.ceil(len(panels) / num_columns)
    figure = _figure(num_columns * PANEL_INCHES[0], num_rows * PANEL_INCHES[1])
    for i, (title, lines) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(num_rows, num_columns, i)
        _draw_panel(axes, title, lines)
        if i > len(panels) - num_columns:
            axes.set_xlabel(position or "row")
    _save(figure, output_png)


def plot_precision_recall(
    recall: NDArray[Any],
    precision: NDArray[Any],
    names: Sequence[str],
    average_precision: Sequence[float],
    output_png: Path,
) -> None:
    """Draw precision (its envelope: the best at this recall or beyond) against recall, per class and as the mean.

    Args:
        recall: ``[K, N]`` per class at falling or rising confidence; NaN is skipped.
        precision: ``[K, N]`` at the same confidences.
        names: Class names.
        average_precision: AP of each class as the evaluator gives it, for the legend; NaN for classes without objects.
        output_png: Picture to write.

    Raises:
        ValueError: The arrays differ in shape.
    """
    if not recall.shape == precision.shape or not len(recall) == len(names) == len(average_precision):
        raise ValueError(
            "recall, precision, names, average_precision: expected [K, N], [K, N], K and K, "
            f"found {recall.shape}, {precision.shape}, {len(names)} and {len(average_precision)}"
        )
    figure = _figure(8.2, 5.4)
    axes = figure.add_subplot()
    grid = np.linspace(0.0, 1.0, 101)
    has_objects = np.isfinite(average_precision)
    shown = [k for k in range(len(names)) if has_objects[k]]
    is_listed = len(shown) <= MAX_LEGEND_CLASSES
    envelopes, handles, entries = [], [], []
    for k in shown:
        envelopes.append(_envelope(recall[k], precision[k], grid))
        color = tuple(LINE_SHADE * c / 255 for c in class_color(k)) if is_listed else "#b8c4cf"
        handles += axes.plot(grid, envelopes[-1], color=color, linewidth=1.4 if is_listed else 0.8)
        entries.append(_entry(names[k], k, average_precision[k]))
    if not is_listed:
        handles, entries = handles[:1], [(f"each of {len(shown)} classes", None)]
    if shown:
        mean = float(np.mean([average_precision[k] for k in shown]))
        handles += axes.plot(grid, np.mean(envelopes, axis=0), color="#111111", linewidth=3.0)
        entries.append((f"all classes  {mean:.3f}", None))
        legend = axes.legend(handles, [""] * len(handles), loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
        _write_entries(legend, entries)
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="recall", ylabel="precision")
    axes.set_title("Precision against recall, IoU 0.50")
    _clean(axes)
    _save(figure, output_png)


def _panels(rows: Sequence[dict[str, str]], position: str | None) -> dict[str, dict[str, Points]]:
    """Return panel title -> line label -> points, in the order of the columns; those without a prefix last."""
    panels: dict[str, dict[str, Points]] = {}
    header = [c for c in (rows[0] if rows else ()) if c and c not in POSITION_COLUMNS]
    columns = [c for c in header if not c.startswith(BOOKKEEPING_COLUMNS)]
    for column in sorted(columns, key=lambda c: "/" not in c):
        places = [_number(row.get(position)) if position else float(i) for i, row in enumerate(rows)]
        values = [_number(row.get(column)) for row in rows]
        points = [(x, y) for x, y in zip(places, values, strict=True) if math.isfinite(x) and math.isfinite(y)]
        if points:
            prefix, _, name = column.partition("/")
            title, _, rest = (name or prefix).partition("/")
            label = "/".join(part for part in (prefix if name else "", rest) if part)
            xs, ys = zip(*sorted(points, key=lambda p: p[0]), strict=True)
            panels.setdefault(title, {})[label] = (list(xs), list(ys))
    return panels


def _number(cell: str | None) -> float:
    try:
        return float(cell) if cell else math.nan
    except ValueError:
        return math.nan


def _draw_panel(axes: Axes, title: str, lines: dict[str, Points]) -> None:
    handles = []
    for i, (label, (xs, ys)) in enumerate(lines.items()):
        color = LINE_COLORS[i % len(LINE_COLORS)]
        is_long = bool(label) and len(xs) > SMOOTHED_POINTS
        marker = "o" if len(xs) <= 20 else None
        if is_long:
            axes.plot(xs, ys, color=color, linewidth=0.7, alpha=0.3)
        shown = _running_mean(ys, len(ys) // 30) if is_long else ys
        handles += axes.plot(xs, shown, color=color, linewidth=1.6, marker=marker, markersize=3)
    axes.set_title(title, fontsize=10, fontweight="bold", loc="left", parse_math=False)
    if len(lines) <= MAX_LEGEND_LINES and any(lines):
        legend = axes.legend(handles, [""] * len(handles), fontsize=8, frameon=False, loc="best")
        _write_entries(legend, [(f"{label} (last {ys[-1]:.4g})", None) for label, (_, ys) in lines.items()])
    elif len(lines) == 1:
        last = next(iter(lines.values()))[1][-1]
        axes.set_title(f"last {last:.4g}", fontsize=8, loc="right")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    _clean(axes)


def _running_mean(values: Sequence[float], radius: int) -> NDArray[np.float64]:
    """Return the mean over the neighbours up to ``radius`` places away."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    place = np.arange(len(values))
    low, high = np.maximum(place - radius, 0), np.minimum(place + radius + 1, len(values))
    mean: NDArray[np.float64] = (total[high] - total[low]) / (high - low)
    return mean


def _envelope(recall: NDArray[Any], precision: NDArray[Any], grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the highest precision at recall of at least each grid value, 0 beyond the last."""
    is_defined = np.isfinite(recall) & np.isfinite(precision)
    order = np.argsort(recall[is_defined])
    reached = recall[is_defined][order]
    best = np.maximum.accumulate(precision[is_defined][order][::-1])[::-1]
    return np.concatenate([best, [0.0]])[np.searchsorted(reached, grid, side="left")].astype(np.float64)


def _entry(name: str, label: int, value: float) -> tuple[str, str | None]:
    text, path = drawable_text(name, f"#{label}")
    text = text if len(text) <= 28 else f"{text[:27]}…"
    return f"{text}  {value:.3f}", path


def _write_entries(legend: Legend, entries: Sequence[tuple[str, str | None]]) -> None:
    """Set legend texts and their fonts, literally: no math, no hidden entries for names that start with "_"."""
    for text, (entry, path) in zip(legend.get_texts(), entries, strict=True):
        text.set_parse_math(False)
        text.set_text(entry)
        if path:
            text.set_fontproperties(FontProperties(fname=path, size=text.get_fontsize()))


def _figure(width_inches: float, height_inches: float) -> Figure:
    figure = Figure(figsize=(width_inches, height_inches), dpi=DOTS_PER_INCH, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _clean(axes: Axes) -> None:
    axes.grid(visible=True, color="#e4e8ec", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def _save(figure: Figure, output_png: Path) -> None:
    output_png.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output_png, format="png")
