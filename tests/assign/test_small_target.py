import pytest
import torch

from lucid_yolo.assign.small_target import surrogate_boxes


@pytest.mark.parametrize(
    ("box", "expected", "reason"),
    [
        ((10, 10, 16, 16), (5, 5, 21, 21), "both sides small"),
        ((10, 10, 17.99, 40), (5.995, 10, 21.995, 40), "one side small: the other is kept"),
        ((10, 10, 18, 18), (10, 10, 18, 18), "a side equal to the limit is kept"),
        ((10, 10, 22, 22), (10, 10, 22, 22), "between the limit and the reference: kept"),
        ((0, 0, 0, 0), (-8, -8, 8, 8), "empty"),
    ],
)
def test_rule(box: tuple[float, ...], expected: tuple[float, ...], reason: str) -> None:
    assert surrogate_boxes(torch.tensor([box]).float(), 8.0, 16.0)[0].tolist() == pytest.approx(expected), reason


def test_axes_in_front_are_kept() -> None:
    boxes = torch.rand(2, 3, 5, 4) * 20
    flat = surrogate_boxes(boxes.view(-1, 4), 8.0, 16.0)
    assert torch.equal(surrogate_boxes(boxes, 8.0, 16.0).view(-1, 4), flat)
