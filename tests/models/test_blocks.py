import pytest
import torch
from torch import nn

from lucid_yolo.models.blocks import SPPF, Attention, BatchNorm2d, C3k2, ConvNormAct
from tolerances import FLOAT32, FLOAT64


@pytest.mark.parametrize("is_training", [True, False])
def test_batch_norm_equals_torch(is_training: bool) -> None:
    ours, oracle = BatchNorm2d(5).double(), nn.BatchNorm2d(5, eps=1e-3, momentum=0.03).double()
    state = {
        "weight": torch.rand(5) + 0.5,
        "bias": torch.randn(5),
        "running_mean": torch.randn(5),
        "running_var": torch.rand(5) + 0.1,
    }
    ours.load_state_dict(state)
    oracle.load_state_dict(state, strict=False)
    ours.train(is_training)
    oracle.train(is_training)
    x = torch.randn(3, 5, 4, 6, dtype=torch.float64, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    weight = torch.randn(3, 5, 4, 6, dtype=torch.float64)
    (ours(x) * weight).sum().backward()
    (oracle(y) * weight).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, **FLOAT64)
    torch.testing.assert_close(ours.weight.grad, oracle.weight.grad, **FLOAT64)
    for name, buffer in ours.named_buffers():
        torch.testing.assert_close(buffer, oracle.get_buffer(name), **FLOAT64)


def test_batch_norm_has_no_other_state() -> None:
    assert set(BatchNorm2d(2).state_dict()) == {"weight", "bias", "running_mean", "running_var"}


def test_attention_equals_loops_over_heads_and_positions() -> None:
    block = Attention(128).eval()
    x = torch.randn(2, 128, 3, 2)
    expected = torch.zeros(2, 128, 3, 2)
    with torch.no_grad():
        qkv, values = block.qkv(x).flatten(2), torch.zeros(2, 128, 6)
        mixed = torch.zeros(2, 128, 6)
        for image in range(2):
            for head in range(2):
                query, key, value = qkv[image, head * 128 : (head + 1) * 128].split((32, 32, 64))
                values[image, head * 64 : (head + 1) * 64] = value
                for position in range(6):
                    logits = torch.stack([query[:, position] @ key[:, other] for other in range(6)]) / 32**0.5
                    weights = logits.exp() / logits.exp().sum()
                    column = sum(weights[other] * value[:, other] for other in range(6))
                    mixed[image, head * 64 : (head + 1) * 64, position] = column
        expected = block.project(mixed.view(2, 128, 3, 2) + block.position(values.view(2, 128, 3, 2)))
        torch.testing.assert_close(block(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("channels", "heads"), [(32, 1), (128, 2), (256, 4), (384, 6)])
def test_attention_head_counts(channels: int, heads: int) -> None:
    block = Attention(channels)
    assert (block.num_heads, block.head_dim, block.key_dim) == (heads, channels // heads, channels // heads // 2)
    assert block.qkv.conv.out_channels == 2 * channels


def test_pooling_block_adds_its_input_and_widens_its_view() -> None:
    block = SPPF(8).eval()
    x = torch.randn(1, 8, 9, 9)
    with torch.no_grad():
        reduced = block.reduce(x)
        wide = [nn.functional.max_pool2d(reduced, side, 1, side // 2) for side in (5, 9, 13)]
        expected = x + block.join(torch.cat((reduced, *wide), 1))
        torch.testing.assert_close(block(x), expected, **FLOAT32)


def test_stage_joins_every_unit_output() -> None:
    block = C3k2(6, 16, "bottleneck", 2, expansion=0.25).eval()
    x = torch.randn(1, 6, 4, 4)
    with torch.no_grad():
        first, second = block.split(x).chunk(2, 1)
        third = block.units[0](second)
        expected = block.join(torch.cat((first, second, third, block.units[1](third)), 1))
        torch.testing.assert_close(block(x), expected, **FLOAT32)


@pytest.mark.parametrize(("kernel_size", "stride", "expected"), [(1, 1, (7, 10)), (3, 1, (7, 10)), (3, 2, (4, 5))])
def test_padding_keeps_the_size(kernel_size: int, stride: int, expected: tuple[int, int]) -> None:
    assert ConvNormAct(3, 4, kernel_size, stride)(torch.zeros(2, 3, 7, 10)).shape == (2, 4, *expected)
