import math

import numpy as np
import pytest
import torch

from lucid_yolo.optim.groups import order_by_group, parameter_group
from lucid_yolo.optim.musgd import MuSGD, MuSGDConfig
from lucid_yolo.runtime.flat import FlatLayout
from tolerances import FLOAT32

SHAPES = {
    "scalar": (),
    "vector": (7,),
    "wide": (3, 8),
    "tall": (8, 3),
    "row": (1, 5),
    "cube": (2, 3, 4),
    "kernel": (6, 4, 3, 3),
    "pointwise": (12, 5, 1, 1),
    "depthwise": (10, 1, 3, 3),
    "volume": (2, 2, 2, 2, 2),
}
Arrays = dict[str, np.ndarray]


def numpy_newton_schulz(matrix: np.ndarray) -> np.ndarray:
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.T if is_tall else matrix) / (np.sqrt((matrix**2).sum()) + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.T if is_tall else x


def numpy_step(params: Arrays, grads: Arrays, momentum: Arrays, lr: float, mu: float, config: MuSGDConfig) -> None:
    """One update in place, parameter by parameter, in float64."""
    for name, p in params.items():
        momentum[name] = mu * momentum[name] + grads[name]
        update = grads[name] + mu * momentum[name]
        rate = lr
        if p.ndim in (2, 4):
            matrix = update.reshape(p.shape[0], -1)
            orthogonal = 0.2 * math.sqrt(max(matrix.shape)) * numpy_newton_schulz(matrix)
            update = config.sgd_w * update + config.muon_w * orthogonal.reshape(p.shape)
        elif p.ndim < 2:
            rate = lr * config.lr_1d
        decay = config.weight_decay if p.ndim >= 2 else 0.0
        params[name] = p - lr * decay * p - rate * update


def random_arrays(rng: np.random.Generator) -> Arrays:
    return {name: rng.normal(size=shape) for name, shape in SHAPES.items()}


def as_tensors(arrays: Arrays) -> dict[str, torch.Tensor]:
    return order_by_group({name: torch.tensor(a, dtype=torch.float32) for name, a in arrays.items()})


class Flat:
    """Parameters and momentum in flat buffers, stepped by the optimiser under test."""

    def __init__(self, arrays: Arrays, config: MuSGDConfig) -> None:
        tensors = as_tensors(arrays)
        self.layout = FlatLayout.of(tensors)
        self.params = torch.zeros(self.layout.length)
        self.layout.pack(tensors, self.params)
        self.momentum = torch.zeros_like(self.params)
        views = self.layout.views(self.params)
        self.optimizer = MuSGD(list(views.values()), list(self.layout.offsets.values()), config)

    def step(self, grads: Arrays, lr: float, mu: float) -> None:
        flat = torch.zeros_like(self.params)
        self.layout.pack(as_tensors(grads), flat)
        self.params, self.momentum = self.optimizer.step(
            self.params, flat, self.momentum, torch.tensor(lr), torch.tensor(mu)
        )


@pytest.mark.parametrize(
    "config",
    [
        MuSGDConfig(),
        MuSGDConfig(muon_w=0.45, sgd_w=0.55, weight_decay=0.05, lr_1d=3.0),
        MuSGDConfig(muon_w=0.0, sgd_w=1.0),
        MuSGDConfig(muon_w=1.0, sgd_w=0.0, weight_decay=0.0),
    ],
    ids=["default", "all different", "momentum only", "orthogonal only"],
)
def test_equals_float64_parameter_by_parameter(config: MuSGDConfig, rng: np.random.Generator) -> None:
    params = random_arrays(rng)
    flat = Flat(params, config)
    momentum = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    for step in range(4):
        grads = random_arrays(rng)
        lr, mu = 0.01 * (step + 1), 0.8 + 0.04 * step
        flat.step(grads, lr, mu)
        numpy_step(params, grads, momentum, lr, mu, config)
    for buffer, expected in ((flat.params, params), (flat.momentum, momentum)):
        for name, tensor in flat.layout.unpack(buffer).items():
            np.testing.assert_allclose(tensor.numpy(), expected[name], rtol=1e-5, atol=2e-6, err_msg=name)


def test_without_the_orthogonal_half_it_is_torch_sgd(rng: np.random.Generator) -> None:
    arrays = random_arrays(rng)
    flat = Flat(arrays, MuSGDConfig(muon_w=0.0, sgd_w=1.0, weight_decay=0.0))
    params = {name: torch.nn.Parameter(tensor) for name, tensor in as_tensors(arrays).items()}
    oracle = torch.optim.SGD(params.values(), lr=0.02, momentum=0.9, nesterov=True)
    for _ in range(5):
        grads = random_arrays(rng)
        for name, grad in as_tensors(grads).items():
            params[name].grad = grad
        oracle.step()
        flat.step(grads, 0.02, 0.9)
    for name, tensor in flat.layout.unpack(flat.params).items():
        torch.testing.assert_close(tensor, params[name].detach(), **FLOAT32)


def test_nothing_is_changed_in_place(rng: np.random.Generator) -> None:
    flat = Flat(random_arrays(rng), MuSGDConfig())
    params, momentum = flat.params, flat.momentum
    before = params.clone()
    flat.step(random_arrays(rng), 0.1, 0.9)
    assert torch.equal(params, before)
    assert torch.equal(momentum, torch.zeros_like(momentum))
    assert not torch.equal(flat.params, before)


def test_zero_gradient_leaves_parameters_and_gaps_alone() -> None:
    flat = Flat({name: np.ones(shape) for name, shape in SHAPES.items()}, MuSGDConfig(weight_decay=0.0))
    before = flat.params.clone()
    flat.step({name: np.zeros(shape) for name, shape in SHAPES.items()}, 0.1, 0.9)
    assert torch.equal(flat.params, before)


def test_gaps_between_parameters_stay_zero(rng: np.random.Generator) -> None:
    flat = Flat(random_arrays(rng), MuSGDConfig())
    is_gap = torch.ones_like(flat.params, dtype=torch.bool)
    for name, start in flat.layout.offsets.items():
        is_gap[start : start + flat.layout.shapes[name].numel()] = False
    assert is_gap.any()
    for _ in range(3):
        flat.step(random_arrays(rng), 0.1, 0.9)
    assert not flat.params[is_gap].any()
    assert not flat.momentum[is_gap].any()


@pytest.mark.parametrize("name", ["vector", "kernel", "volume"])
def test_one_kind_of_parameter_alone(name: str, rng: np.random.Generator) -> None:
    params = {name: rng.normal(size=SHAPES[name])}
    momentum = {name: np.zeros(SHAPES[name])}
    flat = Flat(params, MuSGDConfig())
    grads = {name: rng.normal(size=SHAPES[name])}
    flat.step(grads, 0.01, 0.9)
    numpy_step(params, grads, momentum, 0.01, 0.9, MuSGDConfig())
    np.testing.assert_allclose(flat.layout.unpack(flat.params)[name].numpy(), params[name], rtol=1e-5, atol=2e-6)


def test_groups() -> None:
    groups = {name: parameter_group(torch.zeros(shape)) for name, shape in SHAPES.items()}
    assert {name for name, group in groups.items() if group == "plain"} == {"scalar", "vector"}
    assert {name for name, group in groups.items() if group == "decayed"} == {"cube", "volume"}
    ordered = [parameter_group(t) for t in order_by_group({n: torch.zeros(s) for n, s in SHAPES.items()}).values()]
    assert ordered == sorted(ordered, key=["matrix", "decayed", "plain"].index)


def test_unordered_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="order_by_group"):
        MuSGD([torch.zeros(3), torch.zeros(2, 2)], [0, 32], MuSGDConfig())
