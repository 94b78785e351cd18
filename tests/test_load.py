"""The README's Python and ``lucid_yolo.load``."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import lucid_yolo
from samples import write_pictures, write_untrained

README = Path(__file__).parents[1] / "README.md"


def test_the_python_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(.+?)```", README.read_text("utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    ckpt_path, folder = (re.findall(rf'{name}\("([^"]+)"', code)[0] for name in ("load", "predict"))
    write_untrained(Path(ckpt_path))
    pictures = write_pictures(Path(folder), rng)
    exec(compile(code, str(README), "exec"), {})
    printed = capsys.readouterr().out
    for path in pictures:
        assert str(Path(folder, path.name)) in printed
        drawn = np.asarray(Image.open(Path("predictions", path.name)))
        assert drawn.shape == np.asarray(Image.open(path)).shape


def test_load_hands_its_arguments_on(tmp_path: Path) -> None:
    path = write_untrained(tmp_path / "last.ckpt")
    model = lucid_yolo.load(str(path), "cpu", conf=0.4, batch_size=3, max_det=5, precision="bf16")
    assert (model.conf, model.batch_size, model.max_det) == (0.4, 3, 5)
    assert (model.detector.precision, model.detector.device.type) == ("bf16", "cpu")
    (result,) = model.predict(np.zeros((40, 60, 3), np.uint8))
    assert result.orig_shape == (40, 60)
    assert len(result) <= 5


def test_what_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"gone\.ckpt"):
        lucid_yolo.load(tmp_path / "gone.ckpt")
    with pytest.raises(ValueError, match="expected auto, cpu or a GPU"):
        lucid_yolo.load(write_untrained(tmp_path / "last.ckpt"), "toaster")
    (tmp_path / "text.ckpt").write_text("no checkpoint")
    with pytest.raises(ValueError, match=r"text\.ckpt cannot be read \(\w+\)$"):
        lucid_yolo.load(tmp_path / "text.ckpt")
