import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lucid_yolo.models.head import BRANCHES, detection_stems
from lucid_yolo.models.network import Network, fuse, on_meta
from lucid_yolo.models.scales import VARIANTS, Variant
from lucid_yolo.models.sizes import NetworkSize, measure_size

PUBLISHED = {
    "n": NetworkSize(2_572_280, 2_408_932, 5.357, 5.480),
    "s": NetworkSize(10_009_784, 9_496_140, 20.687, 20.933),
    "m": NetworkSize(21_896_248, 20_411_132, 68.180, 68.426),
    "l": NetworkSize(26_299_704, 24_807_420, 86.427, 86.796),
    "x": NetworkSize(58_993_368, 55_725_948, 193.865, 194.418),
}
FUSED_WITH_BOTH_BRANCHES = {"n": 2_562_496, "s": 9_990_792, "m": 21_868_152, "l": 26_264_440, "x": 58_940_472}
TRUNK = {"n": 2_262_624, "s": 9_016_000, "m": 18_974_272, "l": 23_377_728, "x": 52_552_416}


def meta_network(variant: Variant, num_classes: int = 80) -> Network:
    return on_meta(lambda: Network(variant, lambda channels: detection_stems(channels, num_classes)))


def num_elements(*modules: torch.nn.Module) -> int:
    return sum(p.numel() for module in modules for p in module.parameters())


@pytest.mark.parametrize("variant", VARIANTS)
def test_totals_and_operations_are_the_published_ones(variant: Variant) -> None:
    size = measure_size(lambda: Network(variant, lambda channels: detection_stems(channels, 80)))
    expected = PUBLISHED[variant]
    assert size.train_parameters == expected.train_parameters
    assert size.deploy_parameters == expected.deploy_parameters
    assert size.conv_gflops == pytest.approx(expected.conv_gflops, rel=1e-3)
    assert size.total_gflops == pytest.approx(expected.total_gflops, rel=1e-3)


@pytest.mark.parametrize("variant", VARIANTS)
def test_trunk_and_fused_totals(variant: Variant) -> None:
    network = meta_network(variant)
    assert num_elements(network.backbone, network.neck) == TRUNK[variant]
    assert num_elements(fuse(network, BRANCHES)) == FUSED_WITH_BOTH_BRANCHES[variant]


@pytest.mark.parametrize(
    ("variant", "num_classes", "is_deployed", "expected"),
    [
        ("n", 6, False, 2_506_140),
        ("n", 3, True, 2_375_421),
        ("s", 4, False, 9_950_960),
        ("s", 1, False, 9_948_638),
    ],
)
def test_totals_at_other_class_counts(variant: Variant, num_classes: int, is_deployed: bool, expected: int) -> None:
    network = meta_network(variant, num_classes)
    assert num_elements(fuse(network) if is_deployed else network) == expected


@pytest.mark.parametrize(
    ("num_classes", "expected"), [(1, 241_566), (2, 241_956), (6, 243_516), (12, 245_856), (80, 309_656)]
)
def test_head_totals(num_classes: int, expected: int) -> None:
    assert num_elements(meta_network("n", num_classes).head) == expected


def test_class_width_is_capped_above_80_classes() -> None:
    stem = detection_stems((64, 128, 256), 365)[1]
    assert (stem.width, stem.out_channels) == (80, 365)


@pytest.mark.parametrize("variant", ["n", "l"])
def test_operations_equal_those_torch_counts(variant: Variant) -> None:
    size = measure_size(lambda: Network(variant, lambda channels: detection_stems(channels, 80)), 96)
    deployed = fuse(meta_network(variant))
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        deployed(torch.zeros(1, 3, 96, 96, device="meta"), ("one_to_one",))
    assert round(size.total_gflops * 1e9) == counter.get_total_flops()
