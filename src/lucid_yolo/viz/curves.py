"""Plots of a training run, of precision against recall and of both against confidence."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from lucid_yolo.viz.figures import (
    FAINT_LINE,
    INK,
    LINE_COLORS,
    Margins,
    clean,
    label_axes,
    line_color,
    new_figure,
    short_name,
    widest_inches,
    write_texts,
    write_title,
)

Points = tuple[list[float], list[float]]

BOOKKEEPING_COLUMNS = ("steps/", "train/is_finite")
POSITION_COLUMNS = ("step", "epoch")
PANEL_INCHES, PANEL_COLUMNS = (3.9, 2.8), 4
# More classes than the second number are drawn alike, more than the third as a band.
MAX_LEGEND_LINES, MAX_LEGEND_CLASSES, MAX_DRAWN_CLASSES = 8, 20, 100
LEGEND_POINTS, LEGEND_KEY_INCHES = 8.0, 0.65
BAND = (0.1, 0.9)
# Longer series of a measured quantity (one with a prefix) are drawn faintly, with their moving average on top.
SMOOTHED_POINTS = 60
MAX_STRETCHES = 250


def plot_training(metrics_csv: Path) -> Figure:
    """Return every column of a run's metrics file, one panel per quantity.

    A column ``prefix/name`` is the line ``prefix`` in the panel ``name``, so that ``train/loss`` and ``val/loss``, or
    ``val/map`` and ``val_o2m/map`` (both heads), share one. Empty cells, texts and non-finite numbers are skipped.

    Args:
        metrics_csv: Table with a header; drawn against its column ``step``, else ``epoch``, else the row number.

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
    size = num_columns * PANEL_INCHES[0], num_rows * PANEL_INCHES[1]
    figure = new_figure(*size, Margins(), num_rows, num_columns)
    for i, (title, lines) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(num_rows, num_columns, i)
        _draw_panel(axes, title, lines)
        label_axes(axes, (position or "row") if i > len(panels) - num_columns else "", "")
    return figure


def plot_precision_recall(
    recall: NDArray[Any],
    precision: NDArray[Any],
    names: Sequence[str],
    average_precision: Sequence[float],
) -> Figure:
    """Return precision (its envelope: the best at this recall or beyond) against recall, per class and as the mean.

    Args:
        recall: ``[K, N]`` per class at falling or rising confidence; NaN is skipped.
        precision: ``[K, N]`` at the same confidences.
        names: Class names.
        average_precision: AP of each class as the evaluator gives it, for the legend; NaN for classes without objects.

    Raises:
        ValueError: The arrays differ in shape.
    """
    if not recall.shape == precision.shape or not len(recall) == len(names) == len(average_precision):
        raise ValueError(
            "recall, precision, names, average_precision: expected [K, N], [K, N], K and K, "
            f"found {recall.shape}, {precision.shape}, {len(names)} and {len(average_precision)}"
        )
    grid = np.linspace(0.0, 1.0, 101)
    has_objects = np.isfinite(average_precision)
    shown = [k for k in range(len(names)) if has_objects[k]]
    is_listed = len(shown) <= MAX_LEGEND_CLASSES
    envelopes = []
    entries: list[tuple[str, str | None]] = []
    for k in shown:
        envelopes.append(_envelope(recall[k], precision[k], grid))
        name, path = short_name(names[k], k)
        entries.append((f"{name}  {average_precision[k]:.3f}", path))
    if not is_listed:
        entries = [(_many(len(shown)), None)]
    if shown:
        entries.append((f"all classes  {np.mean([average_precision[k] for k in shown]):.3f}", None))
    legend_inches = widest_inches(entries, LEGEND_POINTS) + LEGEND_KEY_INCHES if entries else 0.2
    figure = new_figure(7.6, 4.6, Margins(right=legend_inches))
    axes = figure.add_subplot()
    handles = _draw_classes(axes, grid, shown, np.array(envelopes))
    if shown:
        mean = axes.plot(grid, np.mean(envelopes, axis=0), color=INK, linewidth=3.0)
        _list_beside(axes, axes, [*(handles if is_listed else handles[:1]), *mean], entries)
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    label_axes(axes, "recall", "precision")
    write_title(axes, "Precision against recall, IoU 0.50")
    clean(axes)
    return figure


def plot_confidence(
    confidence: NDArray[Any],
    curves: Mapping[str, tuple[NDArray[Any], NDArray[Any]]],
    names: Sequence[str],
    best_confidence: float,
) -> Figure:
    """Return quantities against the confidence threshold, a panel each, per class and as the mean.

    Args:
        confidence: ``[N]`` thresholds, rising.
        curves: Name of a quantity in [0, 1] to (``[K, N]`` per class, ``[N]`` mean); NaN is skipped, and so are
            classes that are NaN throughout.
        names: Class names.
        best_confidence: Threshold to mark; NaN for none.

    Raises:
        ValueError: The arrays differ in shape.
    """
    shape = (len(names), len(confidence))
    if wrong := {n: (c.shape, m.shape) for n, (c, m) in curves.items() if (c.shape, m.shape) != (shape, shape[1:])}:
        raise ValueError(f"curves: expected {shape} and {shape[1:]} for every quantity, found {wrong}")
    stride = max(1, len(confidence) // 200)
    places = confidence[::stride]
    shown = [k for k in range(len(names)) if any(np.isfinite(c[k]).any() for c, _ in curves.values())]
    is_listed = len(shown) <= MAX_LEGEND_CLASSES
    entries: list[tuple[str, str | None]] = [short_name(names[k], k) for k in shown]
    if not is_listed:
        entries = [(_many(len(shown)), None)]
    if len(shown) > 1:
        entries.append(("mean", None))
    legend_inches = widest_inches(entries, LEGEND_POINTS) + LEGEND_KEY_INCHES if entries else 0.2
    figure = new_figure(3.6 * len(curves) + 2.4, 3.6, Margins(right=legend_inches), 1, len(curves))
    for i, (quantity, (per_class, mean)) in enumerate(curves.items(), start=1):
        axes = figure.add_subplot(1, len(curves), i)
        handles = _draw_classes(axes, places, shown, per_class[shown, ::stride])
        if len(shown) > 1:
            handles += axes.plot(places, mean[::stride], color=INK, linewidth=2.4)
        write_title(axes, quantity, _mark_best(axes, confidence, mean, best_confidence))
        axes.set(xlim=(0, 1), ylim=(0, 1.02))
        label_axes(axes, "confidence threshold", "")
        clean(axes)
        if handles and i == len(curves):
            _list_beside(figure, axes, handles if is_listed else [handles[0], handles[-1]], entries)
    return figure


def _list_beside(
    owner: Axes | Figure, axes: Axes, handles: Sequence[Any], entries: Sequence[tuple[str, str | None]]
) -> None:
    """Write the legend of a panel, or of the whole figure, to the right of the panel."""
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "bbox_transform": axes.transAxes}
    legend = owner.legend(handles, [""] * len(handles), fontsize=LEGEND_POINTS, frameon=False, **place)
    write_texts(legend.get_texts(), entries)


def _draw_classes(axes: Axes, places: NDArray[Any], labels: Sequence[int], values: NDArray[Any]) -> list[Any]:
    """Draw a line for each class, or a band where there are too many; return what a legend needs.

    Args:
        axes: Where.
        places: ``[N]``.
        labels: Class index of each row.
        values: ``[n, N]``; NaN is skipped.
    """
    if len(labels) > MAX_DRAWN_CLASSES:
        is_defined = np.isfinite(values).any(axis=0)
        low, high = np.nanquantile(values[:, is_defined], BAND, axis=0)
        return [axes.fill_between(places[is_defined], low, high, color=FAINT_LINE, linewidth=0)]
    is_listed = len(labels) <= MAX_LEGEND_CLASSES
    handles: list[Any] = []
    for label, row in zip(labels, values, strict=True):
        color = line_color(label) if is_listed else FAINT_LINE
        handles += axes.plot(places, row, color=color, linewidth=1.3 if is_listed else 0.7)
    return handles


def _many(num_classes: int) -> str:
    if num_classes > MAX_DRAWN_CLASSES:
        return f"{BAND[1] - BAND[0]:.0%} of {num_classes} classes".replace("%", " %")
    return f"each of {num_classes} classes"


def _mark_best(axes: Axes, confidence: NDArray[Any], mean: NDArray[Any], best_confidence: float) -> str:
    """Mark a threshold; return what the mean is there."""
    if math.isnan(best_confidence):
        return ""
    value = float(np.interp(best_confidence, confidence, mean))
    axes.axvline(best_confidence, color="#777777", linewidth=1.0, linestyle="--")
    return f"{value:.3f} at {best_confidence:.3f}"


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
            axes.plot(*_thinned(xs, ys), color=color, linewidth=0.7, alpha=0.3)
        shown = _moving_average(ys, len(ys) / 30).tolist() if is_long else ys
        handles += axes.plot(*_thinned(xs, shown), color=color, linewidth=1.6, marker=marker, markersize=3)
    note = ""
    if len(lines) <= MAX_LEGEND_LINES and any(lines):
        legend = axes.legend(handles, [""] * len(handles), fontsize=8, frameon=False, loc="best")
        write_texts(legend.get_texts(), [(f"{label} (last {ys[-1]:.4g})", None) for label, (_, ys) in lines.items()])
    elif len(lines) == 1:
        last = next(iter(lines.values()))[1][-1]
        note = f"last {last:.4g}"
    write_title(axes, title, note)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    clean(axes)


def _thinned(xs: list[float], ys: list[float]) -> Points:
    """Return the lowest and highest point of every stretch, so that a long line looks the same and is small."""
    stretch = -(-len(xs) // MAX_STRETCHES)
    if stretch <= 2:
        return xs, ys
    kept = set[int]()
    for start in range(0, len(xs), stretch):
        places = range(start, min(start + stretch, len(xs)))
        kept |= {min(places, key=ys.__getitem__), max(places, key=ys.__getitem__)}
    order = sorted(kept | {0, len(xs) - 1})
    return [xs[i] for i in order], [ys[i] for i in order]


def _moving_average(values: Sequence[float], span: float) -> NDArray[np.float64]:
    """Return the exponential moving average that weighs the last ``span`` values most, unbiased."""
    decay = 1.0 - 1.0 / max(span, 1.0)
    total = weight = 0.0
    averages = []
    for value in values:
        total, weight = decay * total + value, decay * weight + 1.0
        averages.append(total / weight)
    return np.array(averages)


def _envelope(recall: NDArray[Any], precision: NDArray[Any], grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the highest precision at recall of at least each grid value, 0 beyond the last."""
    is_defined = np.isfinite(recall) & np.isfinite(precision)
    order = np.argsort(recall[is_defined])
    reached = recall[is_defined][order]
    best = np.maximum.accumulate(precision[is_defined][order][::-1])[::-1]
    return np.concatenate([best, [0.0]])[np.searchsorted(reached, grid, side="left")].astype(np.float64)
