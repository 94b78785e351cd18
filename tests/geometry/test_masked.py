import pytest
import torch

from lucid_yolo.geometry.masked import masked_term


def singular(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Infinite slope at x = 0, and 0 / 0 at y = 0."""
    return (x.sqrt() + x / y).sum(-1)


def rows() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = torch.tensor([[4.0], [0.0], [-1.0], [9.0]], requires_grad=True)
    y = torch.tensor([[2.0], [0.0], [0.0], [3.0]], requires_grad=True)
    return x, y, torch.tensor([True, False, False, True])


def test_unused_rows_have_neither_value_nor_gradient() -> None:
    x, y, is_used = rows()
    term = masked_term(singular, is_used, x, y)
    assert term.tolist() == [4.0, 0.0, 0.0, 6.0]
    term.sum().backward()
    assert x.grad.flatten().tolist() == pytest.approx([0.25 + 0.5, 0.0, 0.0, 1 / 6 + 1 / 3])
    assert y.grad.flatten().tolist() == [-1.0, 0.0, 0.0, -1.0]


def test_removing_the_result_alone_leaves_nan() -> None:
    x, y, is_used = rows()
    torch.where(is_used, singular(x, y), 0.0).sum().backward()
    assert x.grad[1:3].isnan().all()


def test_nothing_used_still_gives_every_gradient() -> None:
    x, y, _ = rows()
    masked_term(singular, torch.zeros(4, dtype=torch.bool), x, y).sum().backward()
    assert torch.equal(x.grad, torch.zeros(4, 1))
    assert torch.equal(y.grad, torch.zeros(4, 1))
