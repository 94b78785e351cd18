from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lucid_yolo.viz.curves import (
    _envelope,
    _moving_average,
    _panels,
    _thinned,
    plot_confidence,
    plot_precision_recall,
    plot_training,
)
from lucid_yolo.viz.figures import save_png

SPARSE = """epoch,step,lr,train/loss,val/map,val_o2m/map,val/loss,val/ap/cat,note,empty
0,10,0.1,3.0,,,,,hello,
0,20,0.2,2.0,,,,,,
0,20,,,0.1,0.2,nan,0.5,,
1,40,0.1,inf,0.3,0.4,1.0,0.6,,
"""


@pytest.fixture
def metrics_csv(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.csv"
    path.write_text(SPARSE, encoding="utf-8")
    return path


def size_of(path: Path) -> tuple[int, int]:
    with Image.open(path) as picture:
        return picture.size


def rows(text: str) -> list[dict[str, str]]:
    header, *lines = text.strip().split("\n")
    return [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines]


def test_columns_become_lines_of_panels() -> None:
    assert _panels(rows(SPARSE), "step") == {
        "loss": {"train": ([10.0, 20.0], [3.0, 2.0]), "val": ([40.0], [1.0])},
        "map": {"val": ([20.0, 40.0], [0.1, 0.3]), "val_o2m": ([20.0, 40.0], [0.2, 0.4])},
        "ap": {"val/cat": ([20.0, 40.0], [0.5, 0.6])},
        "lr": {"": ([10.0, 20.0, 40.0], [0.1, 0.2, 0.1])},
    }


def test_plot_is_written_and_repeats(metrics_csv: Path, tmp_path: Path) -> None:
    pictures = [tmp_path / "new folder" / name for name in ("a.png", "b.png")]
    for picture in pictures:
        save_png(plot_training(metrics_csv), picture)
    assert pictures[0].read_bytes() == pictures[1].read_bytes()
    with Image.open(pictures[0]) as picture:
        assert np.asarray(picture.convert("L")).std() > 5


@pytest.mark.parametrize(
    "text", ["", "epoch,step,val/map\n", "epoch,note\n1,x\n"], ids=["empty", "header", "no number"]
)
def test_nothing_to_draw_is_an_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="found none"):
        plot_training(path)


def test_long_series_and_many_lines(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    header = ",".join(["train/$x_", *(f"val/ap/{i}" for i in range(30))])
    path.write_text(header + "\n" + "\n".join(",".join([str(i)] * 31) for i in range(200)), encoding="utf-8")
    save_png(plot_training(path), tmp_path / "a.png")
    assert size_of(tmp_path / "a.png")[0] > 400


def test_moving_average_is_unbiased() -> None:
    weights = 0.5 ** np.arange(4)[::-1]
    expected = (np.array([1.0, 2.0, 6.0, 4.0]) * weights).sum() / weights.sum()
    assert _moving_average([1.0, 2.0, 6.0, 4.0], 2.0)[-1] == pytest.approx(expected)
    assert _moving_average([7.0] * 9, 5.0) == pytest.approx([7.0] * 9)
    assert _moving_average([1.0, 5.0], 0.0) == pytest.approx([1.0, 5.0])


def test_a_long_line_keeps_its_extremes_and_ends() -> None:
    ys = [float(i % 97) for i in range(5000)]
    ys[1234], ys[4321] = 1e3, -1e3
    xs, thin = _thinned([float(i) for i in range(5000)], ys)
    assert len(xs) < 600
    assert (xs[0], xs[-1], max(thin), min(thin)) == (0.0, 4999.0, 1e3, -1e3)
    assert all(ys[int(x)] == y for x, y in zip(xs, thin, strict=True))
    assert _thinned([0.0, 1.0], [2.0, 3.0]) == ([0.0, 1.0], [2.0, 3.0])


@pytest.mark.parametrize("num_classes", [0, 1, 3, 25, 101])
def test_confidence_with_any_number_of_classes(num_classes: int, tmp_path: Path) -> None:
    confidence = np.linspace(0, 1, 41)
    per_class = np.broadcast_to(confidence, (num_classes, 41)).copy()
    per_class[:, 30:] = np.nan
    mean = confidence if num_classes else np.full(41, np.nan)
    figure = plot_confidence(
        confidence, {"F1": (per_class, mean)}, ["$x_"] * num_classes, 0.5 if num_classes else np.nan
    )
    save_png(figure, tmp_path / "c.png")
    legends = [[t.get_text() for t in legend.get_texts()] for legend in figure.legends]
    expected = {0: [], 1: [["$x_"]], 3: [[*["$x_"] * 3, "mean"]], 25: [["each of 25 classes", "mean"]]}
    expected[101] = [["80 % of 101 classes", "mean"]]
    assert legends == expected[num_classes]


def test_confidence_refuses_other_shapes() -> None:
    with pytest.raises(ValueError, match=r"found \{'F1'"):
        plot_confidence(np.zeros(5), {"F1": (np.zeros((2, 4)), np.zeros(5))}, ["a", "b"], 0.5)


def test_envelope_is_the_best_precision_from_here_on() -> None:
    recall, precision = np.array([0.8, 0.5, 0.2, np.nan]), np.array([0.4, 0.7, 0.6, 1.0])
    grid = np.array([0.0, 0.2, 0.3, 0.5, 0.8, 0.81])
    assert _envelope(recall, precision, grid) == pytest.approx([0.7, 0.7, 0.7, 0.7, 0.4, 0.0])


@pytest.mark.parametrize("num_classes", [0, 3, 25, 101])
def test_precision_recall_with_any_names(num_classes: int, tmp_path: Path) -> None:
    line = np.linspace(1, 0, 21)
    names = ["_hidden", "$x$ собака", "\U000fffff"] + ["x" * 99] * 98
    ap = [0.5, float("nan"), 0.25] + [0.1] * 98
    shape = (num_classes, 21)
    recall, precision = np.broadcast_to(line, shape), np.broadcast_to(line[::-1], shape)
    figure = plot_precision_recall(recall, precision, names[:num_classes], ap[:num_classes])
    save_png(figure, tmp_path / "pr.png")
    assert size_of(tmp_path / "pr.png") == (836, 506)


def test_precision_recall_refuses_other_shapes() -> None:
    with pytest.raises(ValueError, match=r"found \(2, 5\), \(2, 5\), 1 and 2"):
        plot_precision_recall(np.zeros((2, 5)), np.zeros((2, 5)), ["a"], [0.1, 0.2])


def test_leaves_pyplot_alone(metrics_csv: Path, tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from lucid_yolo.viz.curves import plot_training
from lucid_yolo.viz.figures import save_png
save_png(plot_training(Path({str(metrics_csv)!r})), Path({str(tmp_path / "a.png")!r}))
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
