"""Picture of a confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from lucid_yolo.viz.figures import Margins, label_axes, name_ticks, new_figure, short_name, widest_inches

MAX_COUNTED, MAX_NAMED = 25, 100
MIN_INCHES, MAX_INCHES = 3.2, 14.0
BAR_INCHES = 0.85
WHITE_FROM = 0.55


def plot_confusion(counts: NDArray[Any], names: Sequence[str]) -> Figure:
    """Return a confusion matrix: colour is the share of the row, numbers are counts while there is room for them.

    Args:
        counts: ``[K + 1, K + 1]``, row the true class, column the detected one, the last of each is background.
        names: Class names, ``K`` of them.

    Raises:
        ValueError: The shape does not suit the names.
    """
    size = len(names) + 1
    if counts.shape != (size, size):
        raise ValueError(f"counts: expected shape {(size, size)} for {len(names)} names, found {counts.shape}")
    cell = 0.5 if size <= MAX_COUNTED else 0.16
    side = min(max(size * cell, MIN_INCHES), MAX_INCHES)
    font_size = 8.0 if size <= MAX_COUNTED else 6.5
    entries: list[tuple[str, str | None]] = [("0000", None)]
    if size <= MAX_NAMED:
        entries = [*(short_name(name, k, 22) for k, name in enumerate(names)), ("background", None)]
    room = widest_inches(entries, font_size) + 0.12
    margins = Margins(left=room + 0.3, right=BAR_INCHES, bottom=room + 0.3, top=0.1)
    figure = new_figure(side + margins.left + margins.right, side + margins.bottom + margins.top, margins)
    axes = figure.add_subplot()
    totals = counts.sum(axis=1, keepdims=True)
    share = np.divide(counts, totals, out=np.zeros(counts.shape), where=totals > 0)
    picture = axes.imshow(share, cmap="Blues", vmin=0.0, vmax=1.0, interpolation="nearest")
    bar = figure.colorbar(picture, cax=axes.inset_axes((1.0 + 0.12 / side, 0.2, 0.15 / side, 0.6)))
    bar.ax.tick_params(labelsize=7)
    bar.ax.set_ylabel("share of the row", fontsize=8)
    if size <= MAX_COUNTED:
        for i, j in np.argwhere(counts).tolist():
            color = "white" if share[i, j] > WHITE_FROM else "#111111"
            axes.text(j, i, str(counts[i, j]), ha="center", va="center", fontsize=8, color=color)
    label_axes(axes, "detected", "true", below_inches=room + 0.08, left_inches=room + 0.03)
    axes.tick_params(labelsize=font_size, length=0 if size <= MAX_NAMED else 3)
    if size <= MAX_NAMED:
        name_ticks(axes.xaxis, entries, font_size, rotation=90)
        name_ticks(axes.yaxis, entries, font_size)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(20, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(20, integer=True))
    axes.spines[:].set_color("#b8c4cf")
    return figure
