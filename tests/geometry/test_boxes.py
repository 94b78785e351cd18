import pytest
import torch
from torchvision.ops import box_iou

from lucid_yolo.geometry.boxes import contains_points, pairwise_iou
from lucid_yolo.geometry.distances import boxes_to_distances, distances_to_boxes
from lucid_yolo.geometry.points import make_anchor_points
from tolerances import FLOAT32, FLOAT64


def random_boxes(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    corners = torch.rand(*shape, 2, 2, dtype=dtype) * 90
    return torch.cat((corners.amin(-2), corners.amax(-2) + 0.5), -1)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, FLOAT32), (torch.float64, FLOAT64)])
def test_iou_equals_torchvision(dtype: torch.dtype, tolerance: dict[str, float]) -> None:
    first, second = random_boxes(3, 20, dtype=dtype), random_boxes(3, 30, dtype=dtype)
    result = pairwise_iou(first, second)
    for image in range(3):
        torch.testing.assert_close(result[image], box_iou(first[image], second[image]), **tolerance)


@pytest.mark.parametrize(
    ("first", "second", "expected", "reason"),
    [
        ((0, 0, 0, 0), (0, 0, 0, 0), 0.0, "no union"),
        ((0, 0, 0, 0), (0, 0, 8, 8), 0.0, "empty inside a box"),
        ((8, 8, 0, 0), (0, 0, 8, 8), 0.0, "inverted on both axes has no area, not a positive one"),
        ((8, 0, 0, 8), (8, 0, 0, 8), 0.0, "inverted on one axis"),
        ((0, 0, 8, 8), (8, 0, 16, 8), 0.0, "touching"),
        ((0, 0, 8, 8), (0, 0, 8, 8), 1.0, "same"),
        ((0, 0, 8, 8), (0, 0, 8, 4), 0.5, "half"),
    ],
)
def test_iou_of_special_boxes(first: tuple[int, ...], second: tuple[int, ...], expected: float, reason: str) -> None:
    result = pairwise_iou(torch.tensor([first]).float(), torch.tensor([second]).float())
    assert result.item() == expected, reason


def test_containment_includes_the_edges() -> None:
    boxes = torch.tensor([[0.0, 0.0, 4.0, 4.0], [4.0, 4.0, 4.0, 4.0], [4.5, 0.0, 9.0, 9.0]])
    centers = torch.tensor([[4.0, 4.0], [0.0, 2.0], [4.0, 4.25]])
    assert contains_points(boxes, centers).tolist() == [[True, True, False], [True, False, False], [False] * 3]


def test_points_are_cell_centres_level_by_level() -> None:
    points = make_anchor_points((64, 96), (8, 16, 32))
    expected = [
        ((x + 0.5) * stride, (y + 0.5) * stride, stride)
        for stride in (8, 16, 32)
        for y in range(64 // stride)
        for x in range(96 // stride)
    ]
    rows = torch.cat((points.center_xy_px, points.stride_px[:, None]), 1)
    assert rows.tolist() == [list(map(float, row)) for row in expected]


@pytest.mark.parametrize("size", [(64, 80), (48, 64)])
def test_points_refuse_other_sizes(size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"multiples of 32, found {size[0]} x {size[1]}"):
        make_anchor_points(size, (8, 16, 32))


def test_distances_are_measured_in_strides_and_invert() -> None:
    points = make_anchor_points((64, 96), (8, 16, 32))
    distances = torch.randn(2, 126, 4) * 3
    boxes = distances_to_boxes(distances, points)
    for point in (0, 95, 96, 125):
        (x, y), stride = points.center_xy_px[point].tolist(), points.stride_px[point].item()
        left, top, right, bottom = distances[1, point].tolist()
        expected = [x - left * stride, y - top * stride, x + right * stride, y + bottom * stride]
        assert boxes[1, point].tolist() == pytest.approx(expected, rel=1e-5, abs=1e-4)
    torch.testing.assert_close(boxes_to_distances(boxes, points), distances, rtol=1e-5, atol=2e-5)
