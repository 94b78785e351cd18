from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torchvision.ops import complete_box_iou_loss

from lucid_yolo.geometry.points import make_anchor_points
from lucid_yolo.losses.detection import DETECTION_TERMS, detection_loss_sums
from lucid_yolo.structures import Assignment, Prediction, Targets

POINTS = make_anchor_points((64, 64), (8, 16, 32))
NUM_POINTS = 84


def targets_of(boxes: torch.Tensor) -> Targets:
    shape = boxes.shape[:2]
    return Targets(boxes, torch.randint(0, 3, shape), torch.zeros(shape).bool(), torch.zeros(shape).bool())


def case() -> tuple[Prediction, Assignment, Targets]:
    """Two images, two branches, one point in four positive, one in five of the others ignored."""
    boxes = torch.rand(2, 64, 4) * 20 + torch.tensor([0.0, 0.0, 25.0, 25.0])
    is_positive = torch.rand(4, NUM_POINTS) < 0.25
    prediction = Prediction(torch.randn(4, NUM_POINTS, 4) + 1, torch.randn(4, NUM_POINTS, 3))
    assignment = Assignment(
        target_index=torch.where(is_positive, torch.randint(0, 64, (4, NUM_POINTS)), 0),
        weight=torch.where(is_positive, torch.rand(4, NUM_POINTS), 0.0),
        is_positive=is_positive,
        is_ignored=~is_positive & (torch.rand(4, NUM_POINTS) < 0.2),
    )
    return prediction, assignment, targets_of(boxes)


def test_sums_equal_a_loop_over_points() -> None:
    prediction, assignment, targets = case()
    result = detection_loss_sums(prediction, assignment, targets, POINTS, 2)
    expected = torch.zeros(2, 3, dtype=torch.float64)
    normalizers = torch.zeros(2, dtype=torch.float64)
    for row in range(4):
        branch, image = divmod(row, 2)
        for point in range(NUM_POINTS):
            weight = assignment.weight[row, point].double()
            goal = torch.zeros(3, dtype=torch.float64)
            target = assignment.target_index[row, point]
            if assignment.is_positive[row, point]:
                goal[targets.labels[image, target]] = weight
                stride, (x, y) = POINTS.stride_px[point].double(), POINTS.center_xy_px[point].double()
                left, top, right, bottom = prediction.box_ltrb_cell[row, point].double() * stride
                box = torch.stack((x - left, y - top, x + right, y + bottom))
                truth = targets.boxes_xyxy_px[image, target].double()
                if left + right > 0 and top + bottom > 0:
                    expected[branch, 0] += weight * complete_box_iou_loss(box / stride, truth / stride)
                else:
                    single = replace_all_but(assignment, row, point)
                    expected[branch, 0] += detection_loss_sums(prediction, single, targets, POINTS, 2).sums[branch, 0]
                expected[branch, 1] += weight * (box - truth).abs().mean() / stride
            if not assignment.is_ignored[row, point]:
                logit = prediction.class_logit[row, point].double()
                expected[branch, 2] += F.binary_cross_entropy_with_logits(logit, goal, reduction="sum")
            normalizers[branch] += weight
    assert result.names == DETECTION_TERMS == ("box", "l1", "cls")
    torch.testing.assert_close(result.sums.double(), expected, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(result.normalizers.double(), normalizers, rtol=1e-6, atol=1e-6)


def replace_all_but(assignment: Assignment, row: int, point: int) -> Assignment:
    """Keep one positive; for rows without an oracle, where additivity is checked instead."""
    is_kept = torch.zeros_like(assignment.is_positive)
    is_kept[row, point] = True
    return replace(assignment, is_positive=is_kept, weight=torch.where(is_kept, assignment.weight, 0.0))


@pytest.mark.parametrize("value", [0.0, -3.0, 1e30, float("inf")], ids=["no area", "inverted", "huge", "infinite"])
def test_background_has_exactly_no_box_gradient(value: float) -> None:
    box = torch.full((4, NUM_POINTS, 4), value, requires_grad=True)
    logit = torch.randn(4, NUM_POINTS, 3, requires_grad=True)
    nothing = torch.zeros(4, NUM_POINTS)
    background = Assignment(nothing.long(), nothing, nothing.bool(), nothing.bool())
    result = detection_loss_sums(Prediction(box, logit), background, targets_of(torch.zeros(2, 64, 4)), POINTS, 2)
    result.sums.sum().backward()
    assert torch.equal(result.sums[:, :2], torch.zeros(2, 2))
    assert torch.equal(result.normalizers, torch.zeros(2))
    assert torch.equal(box.grad, torch.zeros_like(box))
    torch.testing.assert_close(logit.grad, logit.detach().sigmoid())


def test_only_positives_have_box_gradients() -> None:
    prediction, assignment, targets = case()
    prediction.box_ltrb_cell.requires_grad_()
    detection_loss_sums(prediction, assignment, targets, POINTS, 2).sums[:, :2].sum().backward()
    has_gradient = (prediction.box_ltrb_cell.grad != 0).any(-1)
    assert torch.equal(has_gradient, assignment.is_positive)


@pytest.mark.parametrize("side", [0.0, -3.0], ids=["no area", "inverted"])
def test_degenerate_positives_have_finite_gradients(side: float) -> None:
    _, assignment, targets = case()
    box = torch.full((4, NUM_POINTS, 4), side, requires_grad=True)
    prediction = Prediction(box, torch.zeros(4, NUM_POINTS, 3))
    result = detection_loss_sums(prediction, assignment, targets, POINTS, 2)
    result.sums.sum().backward()
    assert torch.isfinite(result.sums).all()
    assert torch.isfinite(box.grad).all()
    assert (box.grad[assignment.is_positive] < 0).any(), "the distance term pulls inverted boxes open"


def test_sum_over_branches_is_kept_apart() -> None:
    prediction, assignment, targets = case()
    both = detection_loss_sums(prediction, assignment, targets, POINTS, 2)
    other = Prediction(prediction.box_ltrb_cell.clone(), prediction.class_logit.clone())
    other.class_logit[2:] += 1
    changed = detection_loss_sums(other, assignment, targets, POINTS, 2)
    assert torch.equal(both.sums[0], changed.sums[0])
    assert both.sums[1, 2] != changed.sums[1, 2]
