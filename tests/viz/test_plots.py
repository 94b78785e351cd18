from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lucid_yolo.viz.curves import _envelope, _panels, _running_mean, plot_precision_recall, plot_training

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
        plot_training(metrics_csv, picture)
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
        plot_training(path, tmp_path / "a.png")


def test_long_series_and_many_lines(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    header = ",".join(["train/$x_", *(f"val/ap/{i}" for i in range(30))])
    path.write_text(header + "\n" + "\n".join(",".join([str(i)] * 31) for i in range(200)), encoding="utf-8")
    plot_training(path, tmp_path / "a.png")
    assert size_of(tmp_path / "a.png")[0] > 400


def test_running_mean() -> None:
    assert _running_mean([1.0, 2.0, 6.0, 4.0], 1) == pytest.approx([1.5, 3.0, 4.0, 5.0])
    assert _running_mean([1.0, 5.0], 0) == pytest.approx([1.0, 5.0])


def test_envelope_is_the_best_precision_from_here_on() -> None:
    recall, precision = np.array([0.8, 0.5, 0.2, np.nan]), np.array([0.4, 0.7, 0.6, 1.0])
    grid = np.array([0.0, 0.2, 0.3, 0.5, 0.8, 0.81])
    assert _envelope(recall, precision, grid) == pytest.approx([0.7, 0.7, 0.7, 0.7, 0.4, 0.0])


@pytest.mark.parametrize("num_classes", [0, 3, 25])
def test_precision_recall_with_any_names(num_classes: int, tmp_path: Path) -> None:
    line = np.linspace(1, 0, 21)
    names = ["_hidden", "$x$ собака", "\U000fffff"] + ["x" * 99] * 22
    ap = [0.5, float("nan"), 0.25] + [0.1] * 22
    shape = (num_classes, 21)
    recall, precision = np.broadcast_to(line, shape), np.broadcast_to(line[::-1], shape)
    plot_precision_recall(recall, precision, names[:num_classes], ap[:num_classes], tmp_path / "pr.png")
    assert size_of(tmp_path / "pr.png") == (902, 594)


def test_precision_recall_refuses_other_shapes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"found \(2, 5\), \(2, 5\), 1 and 2"):
        plot_precision_recall(np.zeros((2, 5)), np.zeros((2, 5)), ["a"], [0.1, 0.2], tmp_path / "pr.png")


def test_leaves_pyplot_alone(metrics_csv: Path, tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from lucid_yolo.viz.curves import plot_training
plot_training(Path({str(metrics_csv)!r}), Path({str(tmp_path / "a.png")!r}))
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
