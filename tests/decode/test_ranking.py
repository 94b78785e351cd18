import pytest
import torch

from lucid_yolo.decode.one_to_one import decode_one_to_one, rank_pairs
from lucid_yolo.geometry.points import make_anchor_points
from lucid_yolo.structures import Prediction


@pytest.mark.parametrize("num_levels", [1, 2, 4, 100_000])
@pytest.mark.parametrize(
    ("num_pairs", "num_points", "num_classes"), [(1, 50, 7), (20, 50, 7), (50, 50, 1), (300, 50, 7)]
)
def test_equals_ranking_every_pair(num_levels: int, num_pairs: int, num_points: int, num_classes: int) -> None:
    logit = torch.randint(0, num_levels, (3, num_points, num_classes)) / num_levels * 8 - 4
    score, point_index, label = rank_pairs(logit, num_pairs)
    prob = logit.sigmoid()
    for image in range(3):
        pairs = [(-prob[image, a, k].item(), a, k) for a in range(num_points) for k in range(num_classes)]
        expected = sorted(pairs)[:num_pairs]
        found = list(zip((-score[image]).tolist(), point_index[image].tolist(), label[image].tolist(), strict=True))
        assert found == expected


def test_fewer_pairs_than_wanted() -> None:
    score, point_index, label = rank_pairs(torch.randn(2, 5, 3), 300)
    assert score.shape == point_index.shape == label.shape == (2, 15)


def test_slots_beyond_the_pairs_are_empty() -> None:
    points = make_anchor_points((32, 32), (8, 16, 32))
    prediction = Prediction(torch.randn(2, 21, 4), torch.randn(2, 21, 3))
    result, exact = (decode_one_to_one(prediction, points, num) for num in (300, 63))
    for name in ("boxes_xyxy_px", "score", "label", "point_index"):
        found, expected = getattr(result, name), getattr(exact, name)
        assert found.shape[:2] == (2, 300)
        assert torch.equal(found[:, :63], expected), name
        assert not found[:, 63:].any(), name
    assert (exact.score > 0).all()


def test_one_point_may_win_with_several_classes() -> None:
    logit = torch.full((1, 6, 3), -5.0)
    logit[0, 4] = torch.tensor([1.0, 3.0, 2.0])
    _, point_index, label = rank_pairs(logit, 3)
    assert point_index.tolist() == [[4, 4, 4]]
    assert label.tolist() == [[1, 2, 0]]


def test_boxes_belong_to_their_points() -> None:
    points = make_anchor_points((64, 64), (8, 16, 32))
    prediction = Prediction(torch.randn(2, 84, 4) + 1, torch.randn(2, 84, 3))
    result = decode_one_to_one(prediction, points, 40)
    assert result.boxes_xyxy_px.shape == (2, 40, 4)
    for image in range(2):
        for slot in range(40):
            point = result.point_index[image, slot]
            left, top, right, bottom = prediction.box_ltrb_cell[image, point] * points.stride_px[point]
            x, y = points.center_xy_px[point]
            expected = torch.stack((x - left, y - top, x + right, y + bottom))
            torch.testing.assert_close(result.boxes_xyxy_px[image, slot], expected)
            logit = prediction.class_logit[image, point, result.label[image, slot]]
            torch.testing.assert_close(result.score[image, slot], logit.sigmoid())
