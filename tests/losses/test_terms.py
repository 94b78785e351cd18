import pytest
import torch
import torch.nn.functional as F

from lucid_yolo.losses.classification import classification_loss, soft_one_hot
from lucid_yolo.losses.distance import distance_l1_loss
from tolerances import FLOAT64


def test_distance_is_the_mean_of_four_sides() -> None:
    pred, target = torch.randn(3, 9, 4, dtype=torch.float64), torch.randn(3, 9, 4, dtype=torch.float64)
    expected = F.l1_loss(pred, target, reduction="none").sum(-1) / 4
    torch.testing.assert_close(distance_l1_loss(pred, target), expected, **FLOAT64)


def test_distance_gradcheck() -> None:
    target = torch.randn(6, 4, dtype=torch.float64)
    pred = (target + torch.randn(6, 4, dtype=torch.float64).sign() * 0.3).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: distance_l1_loss(x, target), (pred,))


def classification_case() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    logit = torch.randn(2, 7, 3, dtype=torch.float64) * 3
    weight = torch.rand(2, 7, dtype=torch.float64)
    weight[:, ::2] = 0
    is_ignored = torch.zeros(2, 7, dtype=torch.bool)
    is_ignored[0, 2] = is_ignored[1, 4] = True
    return logit, torch.randint(0, 3, (2, 7)), weight, is_ignored


def test_classification_equals_binary_cross_entropy_point_by_point() -> None:
    logit, labels, weight, is_ignored = classification_case()
    loss = classification_loss(logit, labels, weight, is_ignored)
    for image in range(2):
        for point in range(7):
            target = torch.zeros(3, dtype=torch.float64)
            target[labels[image, point]] = weight[image, point]
            expected = F.binary_cross_entropy(logit[image, point].sigmoid(), target, reduction="sum")
            expected = 0.0 if is_ignored[image, point] else expected.item()
            assert loss[image, point].item() == pytest.approx(expected, rel=1e-9)


def test_classification_gradcheck() -> None:
    logit, labels, weight, is_ignored = classification_case()
    logit.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: classification_loss(x, labels, weight, is_ignored), (logit,))
    classification_loss(logit, labels, weight, is_ignored).sum().backward()
    assert torch.equal((logit.grad == 0).all(-1), is_ignored)


def test_classification_is_finite_at_extreme_logits() -> None:
    logit = torch.tensor([[[1e4, -1e4], [-1e4, 1e4]]], requires_grad=True)
    loss = classification_loss(
        logit, torch.zeros(1, 2, dtype=torch.int64), torch.tensor([[0.7, 0.0]]), torch.zeros(1, 2).bool()
    )
    loss.sum().backward()
    assert loss.flatten().tolist() == pytest.approx([3000.0, 10000.0])
    assert torch.isfinite(logit.grad).all()


def test_soft_one_hot_equals_scatter() -> None:
    _, labels, weight, _ = classification_case()
    expected = torch.zeros(2, 7, 3, dtype=torch.float64).scatter_(-1, labels.unsqueeze(-1), weight.unsqueeze(-1))
    assert torch.equal(soft_one_hot(labels, weight, 3), expected)
