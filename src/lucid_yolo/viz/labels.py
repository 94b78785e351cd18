"""Statistics of a data set's labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from lucid_yolo.structures import ImageRecord
from lucid_yolo.viz.figures import (
    LINE_COLORS,
    Margins,
    clean,
    label_axes,
    line_color,
    name_ticks,
    new_figure,
    short_name,
    widest_inches,
    write_title,
)

Bar = tuple[tuple[str, str | None], int, tuple[float, ...]]
"""((name, font file), objects, colour)."""

MAX_BARS, MIN_PLACES = 24, 10
SIDE_TICKS = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
SIZE_BORDERS = (32, 96)


def plot_labels(records: Sequence[ImageRecord], names: Sequence[str]) -> Figure:
    """Return class counts, and where objects lie, how large they are and how many an image has.

    Ignored regions are left out.

    Args:
        records: Images of a split.
        names: Class names.
    """
    labels = np.concatenate([np.zeros(0, np.int64), *(r.labels[~r.is_ignored] for r in records)]).astype(np.int64)
    boxes = np.concatenate([np.zeros((0, 4)), *(r.boxes_xyxy_src[~r.is_ignored] for r in records)])
    sizes = [np.tile([r.width_src, r.height_src], (int((~r.is_ignored).sum()), 1)) for r in records]
    size_src = np.concatenate([np.ones((0, 2)), *sizes])
    wh_src = boxes[:, 2:] - boxes[:, :2]
    num_bars = min(len(names), MAX_BARS + 1)
    bars = _bars(np.bincount(labels, minlength=len(names)), names)
    room = max(0.65, widest_inches([entry for entry, _, _ in bars], 8.0) + 0.15)
    figure = new_figure(11.95 + room, max(6.0, 0.9 + 0.26 * num_bars), Margins(left=room, between_rows=0.75), 2, 3)
    grid = figure.add_gridspec(2, 3)
    _draw_counts(figure.add_subplot(grid[:, 0]), bars, len(labels))
    center = (boxes[:, :2] + boxes[:, 2:]) / 2 / size_src
    _draw_density(figure.add_subplot(grid[0, 1]), center, "Box centres", ("x / image width", "y / image height"))
    shape = wh_src / size_src
    limit = min(1.0, max(0.05, float(shape.max(initial=0.0))))
    fractions = ("width / image width", "height / image height")
    _draw_density(figure.add_subplot(grid[0, 2]), shape, "Box sizes", fractions, limit)
    _draw_sides(figure.add_subplot(grid[1, 1]), np.sqrt(np.maximum(wh_src.prod(axis=1), 1.0)))
    _draw_objects(figure.add_subplot(grid[1, 2]), np.array([int((~r.is_ignored).sum()) for r in records], np.int64))
    return figure


def _bars(counts: NDArray[Any], names: Sequence[str]) -> list[Bar]:
    """Return a bar per class, in the order of the classes; of many, the most frequent ones and one for the rest."""
    shown = sorted(np.argsort(-counts, kind="stable")[:MAX_BARS].tolist())
    bars: list[Bar] = [(short_name(names[k], k, 22), int(counts[k]), line_color(k)) for k in shown]
    if len(counts) > len(shown):
        rest = int(counts.sum()) - sum(value for _, value, _ in bars)
        bars.append(((f"{len(counts) - len(shown)} rarer classes", None), rest, (0.6, 0.6, 0.6)))
    return bars


def _draw_counts(axes: Axes, shown: Sequence[Bar], num_objects: int) -> None:
    values, colors = [value for _, value, _ in shown], [color for _, _, color in shown]
    bars = axes.barh(range(len(values)), values, color=colors, height=0.72)
    axes.bar_label(bars, [f"{value:,}" for value in values], padding=3, fontsize=8)
    _finish(axes, f"Objects per class, {num_objects:,} in all", ("", ""))
    name_ticks(axes.yaxis, [entry for entry, _, _ in shown])
    axes.set_ylim(max(len(values), MIN_PLACES) - 0.4, -0.6)
    axes.margins(x=0.14)
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.grid(visible=False, axis="y")


def _draw_density(axes: Axes, points: NDArray[Any], title: str, labels: tuple[str, str], limit: float = 1.0) -> None:
    """Draw how many of the points between 0 and ``limit`` fall into each cell; y grows downwards."""
    inside = np.clip(points, 0.0, limit)
    counts, _, _ = np.histogram2d(inside[:, 1], inside[:, 0], bins=32, range=((0, limit), (0, limit)))
    extent = (0.0, limit, limit, 0.0)
    axes.imshow(np.sqrt(counts), cmap="Blues", extent=extent, interpolation="nearest", aspect="auto")
    _finish(axes, title, labels)
    axes.grid(visible=False)


def _draw_sides(axes: Axes, side_src: NDArray[Any]) -> None:
    bins = np.geomspace(2, 4096, 45)
    axes.hist(np.clip(side_src, bins[0], bins[-1]), bins=bins.tolist(), color=LINE_COLORS[0])
    axes.set_xscale("log", base=2)
    low, high = (side_src.min() / 1.5, side_src.max() * 1.5) if len(side_src) else (8, 512)
    ticks = [tick for tick in SIDE_TICKS if low <= tick <= high]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xlim(low, high)
    for border in SIZE_BORDERS:
        if low < border < high:
            axes.axvline(border, color=LINE_COLORS[1], linewidth=1.0, linestyle="--")
    _finish(axes, "Object side, √(width · height)", ("source pixels; dashed: 32 and 96", "objects"))
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    if not len(side_src):
        axes.set_ylim(0, 1)


def _draw_objects(axes: Axes, num_objects: NDArray[Any]) -> None:
    highest = int(num_objects.max(initial=0))
    width = max(1, -(-(highest + 1) // 40))
    bins = (np.arange(0, highest + width + 1, width) - 0.5).tolist()
    axes.hist(num_objects, bins=bins, color=LINE_COLORS[0], rwidth=0.9)
    _finish(axes, "Objects per image", ("objects", f"images, {len(num_objects):,} in all"))
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))


def _finish(axes: Axes, title: str, labels: tuple[str, str]) -> None:
    write_title(axes, title)
    label_axes(axes, *labels)
    clean(axes)
