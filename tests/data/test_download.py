import io
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lucid_yolo.data.dataset import open_split
from lucid_yolo.data.download import PHOTOGRAPHS, WHEEL_SHA256, DownloadError, fetch_trees, tile_wheel

SIZE = (1210, 790)
TREES = [
    (10, 10, 50, 50, "well inside"),
    (363, 100, 463, 140, "60 % in the next tile, 40 % here: in both"),
    (380, 200, 480, 240, "23 % here: only in the next tile"),
    (1200, 780, 1210, 790, "in the corner"),
]


def write_wheel(path: Path) -> None:
    png = io.BytesIO()
    Image.new("RGB", SIZE).save(png, "PNG")
    objects = "".join(
        f"<object><name>Tree</name><bndbox><xmin>{a}</xmin><ymin>{b}</ymin><xmax>{c}</xmax><ymax>{d}</ymax></bndbox></object>"
        for a, b, c, d, _ in TREES
    )
    with zipfile.ZipFile(path, "w") as archive:
        for names in PHOTOGRAPHS.values():
            for name in names:
                archive.writestr(f"deepforest/data/{name}.png", png.getvalue())
                archive.writestr(f"deepforest/data/{name}.xml", f"<annotation>{objects}</annotation>")
        archive.writestr("deepforest-2.1.0.dist-info/licenses/LICENSE", "MIT License")


def test_tiles_cover_the_photograph_once_and_keep_visible_boxes(tmp_path: Path) -> None:
    write_wheel(tmp_path / "w.whl")
    tile_wheel(tmp_path / "w.whl", tmp_path / "set")
    split = open_split(tmp_path / "set", "val")
    assert sum(r.height_src * r.width_src for r in split.records) == SIZE[0] * SIZE[1]
    assert len(split.records) == 6
    assert split.account.counts["kept"] == split.account.num_rows == 5
    boxes = [r.boxes_xyxy_src for r in split.records]
    np.testing.assert_allclose(boxes[0], [[10, 10, 50, 50], [363, 100, 403, 140]], atol=1e-3)
    np.testing.assert_allclose(boxes[1], [[0, 100, 60, 140], [0, 200, 77, 240]], atol=1e-3)
    np.testing.assert_allclose(boxes[5], [[393, 385, 403, 395]], atol=1e-3)
    assert (tmp_path / "set/LICENSE.txt").read_text() == "MIT License"
    assert WHEEL_SHA256 in (tmp_path / "set/ATTRIBUTION.md").read_text()


def test_train_and_val_share_no_photograph() -> None:
    assert not set(PHOTOGRAPHS["train"]) & set(PHOTOGRAPHS["val"])


def test_pip_is_asked_for_the_pinned_hash_and_twice_is_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def run(command: list[str], **options: Any) -> None:
        assert {"--require-hashes", "--no-deps"} <= set(command)
        calls.append(Path(command[command.index("-r") + 1]).read_text())
        write_wheel(Path(command[-1]) / "deepforest-2.1.0-py3-none-any.whl")

    monkeypatch.setattr(subprocess, "run", run)
    assert fetch_trees(tmp_path / "set")
    assert not fetch_trees(tmp_path / "set")
    assert calls == [f"deepforest==2.1.0 --hash=sha256:{WHEEL_SHA256}\n"]


@pytest.mark.parametrize(
    ("error", "message", "reason"),
    [
        (subprocess.CalledProcessError(1, "pip", stderr="a\nERROR: no network\n"), "ERROR: no network", "offline"),
        (subprocess.CalledProcessError(1, "pip", stderr=""), "no message", "silent"),
        (subprocess.TimeoutExpired("pip", 300), "timed out", "slow"),
        (FileNotFoundError("python"), "python", "no interpreter"),
    ],
)
def test_failed_download_is_one_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str, reason: str
) -> None:
    def run(*arguments: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(DownloadError, match=message):
        fetch_trees(tmp_path / "set")
    assert not list(tmp_path.iterdir()), reason
