import math

import numpy as np
import pytest
import torch
from torchvision.ops import complete_box_iou_loss

from lucid_yolo.losses.iou import ciou_loss


def as_boxes(ltrb: torch.Tensor) -> torch.Tensor:
    return ltrb * torch.tensor([-1.0, -1.0, 1.0, 1.0], dtype=ltrb.dtype)


def random_pairs(count: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Boxes around one point; half of the predictions lie to one side of it, some of them apart from the target."""
    pred, target = torch.rand(count, 4, dtype=dtype) * 5 + 0.1, torch.rand(count, 4, dtype=dtype) * 5 + 0.1
    pred[: count // 2, 2] += 2 * pred[: count // 2, 0]
    pred[: count // 2, 0] *= -1.5
    return pred, target


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
def test_value_and_gradient_equal_torchvision(dtype: torch.dtype, tolerance: float) -> None:
    pred, target = random_pairs(500, dtype)
    pred.requires_grad_()
    mirror = pred.detach().clone().requires_grad_()
    loss, expected = ciou_loss(pred, target), complete_box_iou_loss(as_boxes(mirror), as_boxes(target))
    torch.testing.assert_close(loss, expected, rtol=tolerance, atol=tolerance)
    loss.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(pred.grad, mirror.grad, rtol=10 * tolerance, atol=10 * tolerance)


def numpy_terms(pred: np.ndarray, target: np.ndarray) -> tuple[float, float, float]:
    """Return (IoU, centre term, shape term) of one pair, from the formula."""
    p, t = pred * [-1, -1, 1, 1], target * [-1, -1, 1, 1]
    overlap = max(min(p[2], t[2]) - max(p[0], t[0]), 0) * max(min(p[3], t[3]) - max(p[1], t[1]), 0)
    (pw, ph), (tw, th) = p[2:] - p[:2], t[2:] - t[:2]
    diagonal = (max(p[2], t[2]) - min(p[0], t[0])) ** 2 + (max(p[3], t[3]) - min(p[1], t[1])) ** 2
    distance = ((p[0] + p[2] - t[0] - t[2]) / 2) ** 2 + ((p[1] + p[3] - t[1] - t[3]) / 2) ** 2
    shape = 4 / math.pi**2 * (math.atan(tw / th) - math.atan(pw / ph)) ** 2
    return overlap / (pw * ph + tw * th - overlap), distance / diagonal, shape


def test_value_and_gradient_equal_the_formula_with_a_constant_balance() -> None:
    pred, target = random_pairs(40, torch.float64)
    pred.requires_grad_()
    loss = ciou_loss(pred, target)
    loss.sum().backward()
    step = 1e-5
    for row in range(40):
        p, t = pred[row].detach().numpy(), target[row].numpy()
        iou, center, shape = numpy_terms(p, t)
        balance = shape / (1 - iou + shape)
        assert loss[row].item() == pytest.approx(1 - iou + center + balance * shape, abs=1e-6)
        for side in range(4):
            ends = [numpy_terms(p + sign * step * np.eye(4)[side], t) for sign in (1, -1)]
            up, down = (1 - i + c + balance * s for i, c, s in ends)
            assert pred.grad[row, side].item() == pytest.approx((up - down) / (2 * step), abs=1e-5)


def test_gradcheck_where_the_shapes_agree() -> None:
    """There the balance, which carries no gradient, has no first-order effect."""
    target = torch.rand(10, 4, dtype=torch.float64) * 3 + 0.5
    scale = torch.rand(10, 1, dtype=torch.float64) + 1.2
    pred = (target * scale).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: ciou_loss(x, target), (pred,))


@pytest.mark.parametrize(
    ("pred", "reason"),
    [
        ((-2.0, -2.0, -2.0, -2.0), "inverted on both axes"),
        ((-2.0, 1.0, -2.0, 1.0), "inverted horizontally"),
        ((1.0, -2.0, 1.0, -2.0), "inverted vertically"),
        ((0.0, 0.0, 0.0, 0.0), "no area"),
        ((1.0, 0.0, 1.0, 0.0), "no height"),
        ((0.0, 1.0, 0.0, 1.0), "no width"),
        ((1e6, 1e6, 1e6, 1e6), "huge"),
        ((2.0, 2.0, 2.0, 2.0), "the target"),
    ],
)
@pytest.mark.parametrize("target", [(2.0, 2.0, 2.0, 2.0), (0.0, 0.0, 0.0, 0.0)])
def test_degenerate_boxes_have_finite_gradients(
    pred: tuple[float, ...], target: tuple[float, ...], reason: str
) -> None:
    x = torch.tensor([pred], requires_grad=True)
    loss = ciou_loss(x, torch.tensor([target]))
    loss.sum().backward()
    assert torch.isfinite(loss).all(), reason
    assert torch.isfinite(x.grad).all(), reason


def test_inverted_boxes_do_not_overlap() -> None:
    target = torch.full((1, 4), 2.0)
    assert ciou_loss(torch.full((1, 4), -2.0), target).item() >= 1.0
    assert ciou_loss(target, target).item() == pytest.approx(0, abs=1e-6)
