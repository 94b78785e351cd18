from pathlib import Path

import cv2
import numpy as np
import pytest

from lucid_yolo.data import synthetic
from lucid_yolo.data.dataset import open_split
from lucid_yolo.data.image import read_image
from lucid_yolo.data.made_root import make_root
from lucid_yolo.data.synthetic import SHAPES, draw_shapes


def contents(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def test_same_seed_same_bytes_other_seed_other_bytes(tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        assert draw_shapes(tmp_path / name, 2, 1, 96, (8, 24), seed)
    one, same, other = (contents(tmp_path / name) for name in "abc")
    assert one == same
    assert all(one[name] != other[name] for name in one if name.endswith(".jpg"))


def test_an_image_does_not_depend_on_the_counts(tmp_path: Path) -> None:
    draw_shapes(tmp_path / "few", 1, 1, 96, (8, 24))
    draw_shapes(tmp_path / "more", 3, 2, 96, (8, 24))
    few, more = contents(tmp_path / "few"), contents(tmp_path / "more")
    assert all(more[name] == data for name, data in few.items() if name.endswith((".jpg", ".txt")))
    assert few["images/train/00000.jpg"] != few["images/val/00000.jpg"]


@pytest.mark.parametrize("object_px", [(4, 16), (16, 96), (90, 96)])
def test_objects_have_the_asked_size_and_every_row_is_kept(tmp_path: Path, object_px: tuple[int, int]) -> None:
    draw_shapes(tmp_path / "set", 12, 2, 128, object_px)
    split = open_split(tmp_path / "set", "train")
    assert split.class_map.names == SHAPES
    assert split.account.counts["kept"] == split.account.num_rows >= 12
    boxes = np.concatenate([record.boxes_xyxy_src for record in split.records])
    long_sides = (boxes[:, 2:] - boxes[:, :2]).max(axis=1)
    assert object_px[0] - 1 <= long_sides.min()
    assert long_sides.max() <= object_px[1]


def test_boxes_are_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "_draw_ground", lambda side, _: np.full((side, side, 3), 128.0))
    draw_shapes(tmp_path / "set", 8, 1, 160, (12, 60))
    for record in open_split(tmp_path / "set", "train").records:
        is_object = np.abs(read_image(record.path).astype(int) - 128).max(axis=2) > 30
        _, _, stats, _ = cv2.connectedComponentsWithStats(is_object.astype(np.uint8), connectivity=8)
        left, top, width, height = stats[1:, :4].T
        found = np.stack([left, top, left + width, top + height], axis=1)
        expected = record.boxes_xyxy_src
        assert len(found) == len(expected)
        distance = np.abs(found[:, None] - expected[None]).max(axis=2)
        assert distance.min(axis=1).max() <= 1


@pytest.mark.parametrize(
    ("num_train", "object_px", "message", "reason"),
    [
        (1, (96, 16), "object_px: expected", "low above high"),
        (1, (16, 400), "object_px: expected", "larger than the image"),
        (1, (1, 16), "object_px: expected", "too small to draw"),
        (0, (16, 96), "at least 1 each", "no image"),
    ],
)
def test_wrong_arguments(tmp_path: Path, num_train: int, object_px: tuple[int, int], message: str, reason: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw_shapes(tmp_path / "set", num_train, 1, object_px=object_px)
    assert not list(tmp_path.iterdir()), reason


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def fail(root: Path) -> None:
        (root / "half.txt").write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        make_root(tmp_path / "set", {"name": "x"}, fail)
    assert not list(tmp_path.iterdir())


def test_only_own_or_empty_folders_are_taken(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert draw_shapes(tmp_path / "empty", 1, 1, 64, (8, 16))
    before = contents(tmp_path)
    assert not draw_shapes(tmp_path / "empty", 1, 1, 64, (8, 16))
    with pytest.raises(FileExistsError, match="holds a demo set made with"):
        draw_shapes(tmp_path / "empty", 2, 1, 64, (8, 16))
    with pytest.raises(FileExistsError, match="with other files"):
        draw_shapes(tmp_path, 1, 1, 64, (8, 16))
    assert contents(tmp_path) == before
