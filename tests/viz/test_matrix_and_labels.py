"""Pictures whose texts must be there whatever classes are called and however many there are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from lucid_yolo.structures import ImageRecord
from lucid_yolo.viz import plot_confusion, plot_labels, save_png, to_svg

NAMES = ["_hidden", "$x$ собака", "a name that is longer than any picture has room for", "</svg><b>"]


def texts(figure: Figure, axis: str = "yaxis") -> list[str]:
    figure.canvas.draw()
    return [label.get_text() for label in getattr(figure.axes[0], axis).get_ticklabels()]


def make_record(labels: list[int], is_ignored: list[bool] | None = None) -> ImageRecord:
    num = len(labels)
    boxes = np.array([[10.0 * i, 5.0, 10.0 * i + 8, 25.0] for i in range(num)]).reshape(-1, 4)
    ignored = np.array(is_ignored if is_ignored is not None else [False] * num, dtype=bool)
    return ImageRecord("a.jpg", "a", 200, 300, boxes, np.array(labels, np.int64), ignored, np.full(num, 160.0), num)


def test_matrix_names_rows_and_columns_and_writes_counts() -> None:
    counts = np.arange(25).reshape(5, 5)
    counts[4, 4] = 0
    figure = plot_confusion(counts, NAMES)
    expected = ["_hidden", "$x$ собака", "a name that is longer…", "</svg><b>", "background"]
    assert texts(figure) == texts(figure, "xaxis") == expected
    assert [t.get_text() for t in figure.axes[0].texts] == [str(n) for n in counts.ravel() if n]


@pytest.mark.parametrize(("num", "labels", "numbers"), [(0, 1, 0), (30, 31, 0), (130, None, 0)])
def test_matrix_of_any_size(num: int, labels: int | None, numbers: int, tmp_path: Path) -> None:
    figure = plot_confusion(np.eye(num + 1, dtype=np.int64) * (num > 0), [f"class {i}" for i in range(num)])
    assert len(figure.axes[0].texts) == numbers
    if labels is not None:
        assert len(texts(figure)) == labels
    save_png(figure, tmp_path / "m.png")
    assert (tmp_path / "m.png").stat().st_size > 1000


def test_matrix_refuses_another_shape() -> None:
    with pytest.raises(ValueError, match=r"expected shape \(3, 3\) for 2 names, found \(2, 2\)"):
        plot_confusion(np.zeros((2, 2)), ["a", "b"])


def test_class_bars_count_objects_and_leave_ignored_regions_out() -> None:
    figure = plot_labels([make_record([0, 1, 1, 3], [False, False, False, True]), make_record([])], NAMES)
    assert texts(figure) == ["_hidden", "$x$ собака", "a name that is longer…", "</svg><b>"]
    assert [t.get_text() for t in figure.axes[0].texts] == ["1", "2", "0", "0"]
    assert [round(patch.get_height()) for patch in figure.axes[4].patches] == [1, 0, 0, 1]


def test_many_classes_are_summed_up() -> None:
    labels = [k for k in range(60) for _ in range(1 + (k == 50))]
    figure = plot_labels([make_record(labels)], [f"class {i}" for i in range(60)])
    assert texts(figure)[-2:] == ["class 50", "36 rarer classes"]
    assert [t.get_text() for t in figure.axes[0].texts][-2:] == ["2", "36"]


@pytest.mark.parametrize("records", [[], [make_record([])]], ids=["no image", "no object"])
def test_labels_of_nothing(records: list[ImageRecord], tmp_path: Path) -> None:
    save_png(plot_labels(records, ["a"]), tmp_path / "l.png")
    assert (tmp_path / "l.png").stat().st_size > 1000


def test_svg_repeats_escapes_and_refers_to_nothing() -> None:
    first, second = (to_svg(plot_confusion(np.eye(5, dtype=np.int64), NAMES), "k") for _ in range(2))
    assert first == second
    assert first.startswith("<svg")
    assert "<b>" not in first
    assert "&lt;/svg&gt;&lt;b&gt;" in first
    assert "собака" in first
    assert "//" not in first.replace("base64,", "").split("iVBOR")[0]
    assert "http" not in first
