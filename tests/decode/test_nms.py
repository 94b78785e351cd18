import pytest
import torch
from torchvision.ops import box_iou

from lucid_yolo.decode.nms import decode_one_to_many
from lucid_yolo.geometry.distances import boxes_to_distances, distances_to_boxes
from lucid_yolo.geometry.points import make_anchor_points
from lucid_yolo.structures import Detections, Prediction

POINTS = make_anchor_points((64, 64), (8, 16, 32))
NUM_POINTS = 84

Row = tuple[float, int, int]


def class_wise_nms(
    prediction: Prediction, image: int, iou_threshold: float, min_score: float, max_detections: int
) -> list[Row]:
    """Return (score, point, class) of the survivors, by loops over classes and boxes."""
    boxes = distances_to_boxes(prediction.box_ltrb_cell, POINTS)[image]
    prob = prediction.class_logit.sigmoid()[image]
    survivors: list[Row] = []
    for label in range(prob.shape[1]):
        kept: list[int] = []
        for point in sorted(range(NUM_POINTS), key=lambda a: (-prob[a, label].item(), a)):
            if prob[point, label] < min_score:
                break
            overlaps = box_iou(boxes[point : point + 1], boxes[kept])
            if not (overlaps > iou_threshold).any():
                kept.append(point)
        survivors += [(prob[point, label].item(), point, label) for point in kept]
    return sorted(survivors, key=lambda row: (-row[0], row[1], row[2]))[:max_detections]


def rows_of(result: Detections, image: int) -> list[Row]:
    rows = zip(
        result.score[image].tolist(), result.point_index[image].tolist(), result.label[image].tolist(), strict=True
    )
    return [row for row in rows if row[0] > 0]


@pytest.mark.parametrize("iou_threshold", [0.2, 0.7])
@pytest.mark.parametrize("max_detections", [10, 300])
def test_equals_loops_over_classes(iou_threshold: float, max_detections: int) -> None:
    prediction = Prediction(torch.rand(2, NUM_POINTS, 4) + 1, torch.randn(2, NUM_POINTS, 3) * 3 - 2)
    result = decode_one_to_many(prediction, POINTS, max_detections, iou_threshold, min_score=0.1)
    assert result.score.shape == (2, max_detections)
    for image in range(2):
        expected = class_wise_nms(prediction, image, iou_threshold, 0.1, max_detections)
        assert 5 < len(expected) < 3 * NUM_POINTS
        assert rows_of(result, image) == expected
        filled = len(expected)
        boxes = distances_to_boxes(prediction.box_ltrb_cell, POINTS)[image, result.point_index[image, :filled]]
        assert torch.equal(result.boxes_xyxy_px[image, :filled], boxes)
        assert not result.boxes_xyxy_px[image, filled:].any()


def test_nothing_above_the_least_score() -> None:
    prediction = Prediction(torch.ones(1, NUM_POINTS, 4), torch.full((1, NUM_POINTS, 3), -20.0))
    assert not decode_one_to_many(prediction, POINTS).score.any()


def two_boxes(first: tuple[float, ...], second: tuple[float, ...]) -> Prediction:
    """Point 0 predicts the first box as class 0, point 1 the second as class 1; nothing else is scored."""
    boxes = torch.zeros(1, NUM_POINTS, 4)
    boxes[0, 0], boxes[0, 1] = torch.tensor(first), torch.tensor(second)
    logit = torch.full((1, NUM_POINTS, 2), -20.0)
    logit[0, 0, 0], logit[0, 1, 1] = 2.0, 1.0
    return Prediction(boxes_to_distances(boxes, POINTS), logit)


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ((0.0, 0.0, 30.0, 30.0), (0.0, 0.0, 30.0, 30.0), "same place, other class"),
        ((0.0, 0.0, 30.0, 30.0), (-31.0, -31.0, -1.0, -1.0), "beyond the image's corner"),
        ((0.0, 0.0, 63.0, 63.0), (-60.0, -60.0, 3.0, 3.0), "partly beyond the image's corner"),
    ],
)
def test_classes_do_not_suppress_each_other(first: tuple[float, ...], second: tuple[float, ...], reason: str) -> None:
    result = decode_one_to_many(two_boxes(first, second), POINTS)
    assert [row[2] for row in rows_of(result, 0)] == [0, 1], reason
