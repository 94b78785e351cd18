import copy
import math
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lucid_yolo.models.blocks import BatchNorm2d
from lucid_yolo.models.head import BRANCHES, OutputConv, detection_stems
from lucid_yolo.models.network import Network, fuse, is_fused
from lucid_yolo.structures import Prediction
from tolerances import FLOAT64, TOLERANCES

HEIGHT, WIDTH = 64, 96


def make_network(images: torch.Tensor) -> Network:
    """A network whose every layer passes a signal: running statistics are those of ``images``, other weights random."""

    def observe(norm: torch.nn.Module, inputs: tuple[torch.Tensor]) -> None:
        assert isinstance(norm, BatchNorm2d)
        torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
        torch.nn.init.normal_(norm.bias, std=0.2)
        norm.running_mean.copy_(inputs[0].mean((0, 2, 3)))
        norm.running_var.copy_(inputs[0].var((0, 2, 3)))

    network = Network("n", lambda channels: detection_stems(channels, 3)).eval()
    handles = [m.register_forward_pre_hook(observe) for m in network.modules() if isinstance(m, BatchNorm2d)]
    with torch.no_grad():
        network(images)
    for handle in handles:
        handle.remove()
    return network


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.rand(2, 3, HEIGHT, WIDTH, generator=torch.Generator().manual_seed(1))


def assert_equal(first: Prediction, second: Prediction, **tolerance: float) -> None:
    torch.testing.assert_close(first.box_ltrb_cell, second.box_ltrb_cell, **tolerance)
    torch.testing.assert_close(first.class_logit, second.class_logit, **tolerance)


@pytest.fixture(scope="module")
def network(images: torch.Tensor) -> Network:
    torch.manual_seed(0)
    return make_network(images)


@torch.no_grad()
def test_branches_are_stacked_on_the_batch_axis(network: Network, images: torch.Tensor) -> None:
    both = network(images)
    assert both.box_ltrb_cell.shape == (4, 126, 4)
    assert both.class_logit.shape == (4, 126, 3)
    for position, branch in enumerate(BRANCHES):
        rows = slice(2 * position, 2 * position + 2)
        alone = network(images, (branch,))
        assert_equal(Prediction(both.box_ltrb_cell[rows], both.class_logit[rows]), alone, rtol=0, atol=0)
    assert not torch.equal(both.class_logit[:2], both.class_logit[2:])


@torch.no_grad()
def test_points_come_level_by_level_and_row_by_row(network: Network, images: torch.Tensor) -> None:
    maps = network.neck(network.backbone(images))
    prediction = network(images, ("one_to_one",))
    start = 0
    for level, stride in enumerate((8, 16, 32)):
        *hidden, output = network.head.branches["one_to_one"].stems["box"][level]
        grid = F.conv2d(nn.Sequential(*hidden)(maps[level]), output.weight, output.bias)
        assert grid.shape[2:] == (HEIGHT // stride, WIDTH // stride)
        for y in range(HEIGHT // stride):
            for x in range(WIDTH // stride):
                point = start + y * (WIDTH // stride) + x
                torch.testing.assert_close(
                    prediction.box_ltrb_cell[:, point], grid[:, :, y, x], **TOLERANCES[torch.float32]
                )
        start += grid.shape[2] * grid.shape[3]
    assert start == prediction.box_ltrb_cell.shape[1]


@torch.no_grad()
@pytest.mark.parametrize("branches", [("one_to_one",), ("one_to_many",), BRANCHES])
def test_fused_network_predicts_the_same(network: Network, images: torch.Tensor, branches: tuple[str, ...]) -> None:
    fused = fuse(network, branches)
    assert is_fused(fused)
    assert not is_fused(network)
    # The order of float32 sums depends on the processor; in float64, below, nothing is left.
    assert_equal(fused(images, branches), network(images, branches), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_fused_network_is_exact_in_float64(network: Network, images: torch.Tensor) -> None:
    exact = copy.deepcopy(network).double()
    assert_equal(fuse(exact)(images.double(), ("one_to_one",)), exact(images.double(), ("one_to_one",)), **FLOAT64)


@torch.no_grad()
def test_fusing_uses_the_running_statistics(network: Network, images: torch.Tensor) -> None:
    fused = fuse(network)
    other = copy.deepcopy(network)
    other.backbone.stem[0].norm.running_var.mul_(4)
    difference = fuse(other)(images, ("one_to_one",)).class_logit - fused(images, ("one_to_one",)).class_logit
    assert difference.abs().max() > 1e-3


def test_outputs_are_float32_under_autocast(network: Network, images: torch.Tensor) -> None:
    seen = {}
    module = network.neck.out5.join.conv
    handle = module.register_forward_hook(lambda _module, _inputs, output: seen.update(trunk=output.dtype))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        low = network(images)
    handle.remove()
    assert seen["trunk"] == torch.bfloat16
    assert low.box_ltrb_cell.dtype == low.class_logit.dtype == torch.float32
    distinct = low.class_logit.unique().numel()
    assert distinct > low.class_logit.to(torch.bfloat16).unique().numel()


@torch.no_grad()
def test_last_layer_is_computed_in_float32_under_autocast() -> None:
    layer = OutputConv(16, 4, 1.0)
    x = torch.randn(2, 16, 5, 5)
    with torch.autocast("cpu", torch.bfloat16):
        inside = layer(x.bfloat16())
    torch.testing.assert_close(inside, layer(x.bfloat16().float()), rtol=0, atol=0)
    torch.testing.assert_close(inside, layer(x), **TOLERANCES[torch.bfloat16])


def test_initial_output_layers() -> None:
    network = Network("n", lambda channels: detection_stems(channels, 3))
    for branch in BRANCHES:
        for name, bias in (("box", 1.0), ("class", -math.log(99))):
            for stem in network.head.branches[branch].stems[name]:
                torch.testing.assert_close(stem[-1].bias, torch.full_like(stem[-1].bias, bias))
                assert 0.005 < stem[-1].weight.std() < 0.02


@torch.no_grad()
def test_copies_and_pickles(network: Network, images: torch.Tensor) -> None:
    expected = network(images)
    called = []
    network.after_apply = lambda: called.append(True)
    try:
        copied, restored = copy.deepcopy(network), pickle.loads(pickle.dumps(network))
        copied.to("cpu")
        assert not called, "a copy must not move the state of the network it was copied from"
        network.to("cpu")
        assert called
    finally:
        network.after_apply = None
    assert_equal(copied(images), expected, rtol=0, atol=0)
    assert_equal(restored(images), expected, rtol=0, atol=0)


@torch.no_grad()
def test_memory_format_does_not_matter(network: Network, images: torch.Tensor) -> None:
    exact, x = copy.deepcopy(network).double(), images.double()
    assert_equal(exact(x.contiguous(memory_format=torch.channels_last)), exact(x), **FLOAT64)
