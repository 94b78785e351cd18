"""The Python of docs/python_api.md, run as it stands but for the length of the training."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lucid_yolo.data.synthetic import draw_shapes
from samples import write_pictures, write_untrained, write_video

PAGE = Path(__file__).parents[1] / "docs" / "python_api.md"
BLOCKS = re.findall(r"```python\n(.+?)```", PAGE.read_text("utf-8"), re.DOTALL)
SHORTER = {
    "max_epochs=100": "max_epochs=1",
    '"image_size": 320': '"image_size": 64',
    '"batch_size": 8}': '"batch_size": 4, "num_workers": 0}, trainer={"accelerator": "cpu", "log_every_n_steps": 1}',
}


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> Path:
    monkeypatch.chdir(tmp_path)
    write_untrained(Path("runs/detect/1/checkpoints/best.ckpt"))
    pictures = write_pictures(Path("my_images"), rng)
    write_video(Path("clip.avi"), [np.asarray(Image.open(pictures[2]))] * 6)
    return tmp_path


def run(*blocks: str) -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), space)
    return space


def test_prediction(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (videos,) = (b for b in BLOCKS if "vid_stride" in b)
    run(BLOCKS[0], videos)
    assert sorted(p.name for p in (work / "frames").iterdir()) == ["000000.jpg", "000002.jpg", "000004.jpg"]
    assert list(work.glob("crops/*/clip_*.png"))
    assert "bus" in capsys.readouterr().out


def test_tracking(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("trackers")
    (tracking,) = (b for b in BLOCKS if "model.track(" in b)
    run(BLOCKS[0], tracking)
    assert re.search(r"^5 1 ", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning.pytorch.cli")
def test_training() -> None:
    draw_shapes(Path("my_dataset"), num_train=10, num_val=5, image_size_px=64, object_px=(12, 40), seed=3)
    (training,) = (b for b in BLOCKS if ".train(" in b)
    for long, short in SHORTER.items():
        assert training.count(long) == 1
        training = training.replace(long, short)
    result = run(training)["result"]
    assert result.run_dir == Path("runs/detect/2")
    assert result.best_ckpt.is_file()
