import pytest
import torch

from lucid_yolo.optim.clip import clip_by_norm
from lucid_yolo.optim.ema import ema_update
from tolerances import FLOAT32


@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 100.0])
def test_clipping_equals_torch(scale: float) -> None:
    grads = torch.randn(400) * scale
    parameters = [torch.nn.Parameter(torch.zeros(100)) for _ in range(4)]
    for parameter, grad in zip(parameters, grads.split(100), strict=True):
        parameter.grad = grad.clone()
    expected_norm = torch.nn.utils.clip_grad_norm_(parameters, 10.0)
    clipped, norm = clip_by_norm(grads, 10.0)
    torch.testing.assert_close(norm, expected_norm, **FLOAT32)
    torch.testing.assert_close(clipped, torch.cat([p.grad for p in parameters]), **FLOAT32)


def test_zero_switches_clipping_off() -> None:
    grads = torch.randn(50) * 1e3
    clipped, norm = clip_by_norm(grads, 0.0)
    assert torch.equal(clipped, grads)
    assert norm.item() == pytest.approx(grads.double().square().sum().sqrt().item(), rel=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_norm_shows_what_is_not_finite(bad: float) -> None:
    grads = torch.randn(50)
    grads[7] = bad
    assert not torch.isfinite(clip_by_norm(grads, 10.0)[1])


def test_average_equals_the_written_out_recursion() -> None:
    average = torch.randn(20)
    expected = average.double()
    for rate in (1.0, 0.5, 0.03, 1e-4):
        params = torch.randn(20)
        average = ema_update(average, params, torch.tensor(rate))
        expected = (1 - rate) * expected + rate * params.double()
        torch.testing.assert_close(average.double(), expected, **FLOAT32)


def test_average_of_equal_values_does_not_drift() -> None:
    params = torch.randn(20)
    assert torch.equal(ema_update(params, params, torch.tensor(0.3)), params)
