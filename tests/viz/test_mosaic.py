from __future__ import annotations

import numpy as np
import pytest
import torch

from lucid_yolo.structures import Batch
from lucid_yolo.viz.draw import class_color
from lucid_yolo.viz.mosaic import GAP_PX, draw_batch, draw_training_batch

NONE = np.zeros((0, 4)), np.zeros(0, dtype=np.int64)


def blank(num: int, height: int = 64, width: int = 64) -> torch.Tensor:
    return torch.arange(num, dtype=torch.uint8).view(-1, 1, 1, 1).expand(num, 3, height, width) * 10


def test_tiles_keep_their_pixels_and_order() -> None:
    picture = draw_batch(blank(5), [NONE[0]] * 5, [NONE[1]] * 5, ["a"])
    assert picture.shape == (2 * (64 + GAP_PX) + GAP_PX, 3 * (64 + GAP_PX) + GAP_PX, 3)
    for i in range(5):
        top, left = (GAP_PX + k * (64 + GAP_PX) for k in divmod(i, 3))
        assert (picture[top : top + 64, left : left + 64] == i * 10).all()


def test_large_batches_shrink_with_their_boxes() -> None:
    boxes = [np.array([[160.0, 160, 480, 480]])] * 4
    picture = draw_batch(blank(4, 640, 640), boxes, [np.zeros(1, dtype=np.int64)] * 4, ["a"], max_side_px=400)
    assert max(picture.shape) <= 400
    tile = (picture.shape[0] - GAP_PX) // 2 - GAP_PX
    assert tuple(picture[GAP_PX + tile // 2, GAP_PX + round(tile / 4)]) == class_color(0)


def test_shows_at_most_max_images() -> None:
    assert draw_batch(blank(9), [NONE[0]] * 9, [NONE[1]] * 9, ["a"], max_images=1).shape == (72, 72, 3)


def test_training_batch_leaves_out_blanks_padding_and_ignored() -> None:
    batch = Batch.allocate(3, (64, 64), 64)
    batch.sample_index[:2] = torch.tensor([4, 5])
    batch.field("boxes_xyxy_px")[0, :2] = torch.tensor([[8.0, 8, 56, 56], [2.0, 2, 20, 20]])
    batch.field("labels")[0, :2] = torch.tensor([0, 1])
    batch.field("is_padded")[0, :2] = False
    batch.field("is_ignored")[0, 1] = True
    picture = draw_training_batch(batch, ["a", "b"])
    assert picture.shape == (72, 140, 3)
    assert (picture == class_color(0)).all(axis=-1).any()
    assert not (picture == class_color(1)).all(axis=-1).any()


def test_refuses_an_empty_batch() -> None:
    with pytest.raises(ValueError, match="at least one image"):
        draw_batch(blank(0), [], [], ["a"])
