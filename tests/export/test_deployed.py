"""The exported graph, run by torch, against the decoder."""

from __future__ import annotations

import pytest
import torch

from exported import untrained_ckpt
from lucid_yolo.decode.one_to_one import decode_one_to_one
from lucid_yolo.export.deployed import DeployedNetwork, anchor_table
from lucid_yolo.geometry.points import make_anchor_points
from lucid_yolo.models.blocks import BatchNorm2d
from lucid_yolo.models.head import DEPLOYED, OutputConv
from lucid_yolo.models.network import Network, fuse
from lucid_yolo.models.scales import STRIDES
from lucid_yolo.runtime.detector import read_network
from lucid_yolo.structures import Detections


@pytest.fixture
def network(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return read_network(untrained_ckpt(tmp_path_factory))[0]


def decoded(network: Network, images: torch.Tensor, count: int = 300) -> Detections:
    with torch.inference_mode():
        prediction = fuse(network)(images, (DEPLOYED,))
    return decode_one_to_one(prediction, make_anchor_points((images.shape[2], images.shape[3]), STRIDES), count)


def run(deployed: DeployedNetwork, images: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        rows: torch.Tensor = deployed(images)
    return rows


@pytest.mark.parametrize(
    ("size_px", "count"),
    [((64, 64), 300), ((96, 160), 300), ((64, 64), 5)],
    ids=["fewer pairs than rows", "more points than rows", "few rows"],
)
@pytest.mark.parametrize("has_exact_ties", [True, False])
def test_rows_are_those_of_the_decoder(
    network: Network, size_px: tuple[int, int], count: int, has_exact_ties: bool
) -> None:
    images = torch.rand(2, 3, *size_px)
    expected = decoded(network, images, count)
    rows = run(DeployedNetwork(network, count, has_exact_ties=has_exact_ties), images)
    assert rows.shape == (2, count, 6)
    torch.testing.assert_close(rows[..., 4], expected.score, atol=1e-5, rtol=0)
    if has_exact_ties:  # without them the order among equal scores is anyone's
        assert torch.equal(rows[..., 5].long(), expected.label)
        torch.testing.assert_close(rows[..., :4], expected.boxes_xyxy_px, atol=1e-3, rtol=0)


def test_equal_scores_come_in_order_of_point_then_class(network: Network) -> None:
    for module in network.modules():
        if isinstance(module, OutputConv) and module.out_channels == 3:
            torch.nn.init.zeros_(module.weight)
            torch.nn.init.constant_(module.bias, 0.5)
    images = torch.rand(1, 3, 96, 160)
    expected, rows = decoded(network, images), run(DeployedNetwork(network, has_exact_ties=True), images)
    assert expected.score.unique().numel() == 1
    assert expected.label[0, :4].tolist() == [0, 1, 2, 0]
    assert torch.equal(rows[..., 5].long(), expected.label)
    torch.testing.assert_close(rows[..., :4], expected.boxes_xyxy_px, atol=1e-3, rtol=0)


def test_the_network_itself_is_not_changed(network: Network) -> None:
    before = {name: value.clone() for name, value in network.state_dict().items()}
    deployed = DeployedNetwork(network, is_half=True)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert not any(isinstance(module, BatchNorm2d) for module in deployed.modules())
    assert {parameter.dtype for parameter in deployed.backbone.parameters()} == {torch.float16}
    last = [module for module in deployed.modules() if isinstance(module, OutputConv)]
    assert len(last) == 6
    assert all(module.weight.dtype == torch.float32 for module in last)


def test_points_are_the_anchor_points() -> None:
    maps = [torch.zeros(1, 1, 96 // stride, 160 // stride) for stride in STRIDES]
    points, table = make_anchor_points((96, 160), STRIDES), anchor_table(maps)
    assert torch.equal(table[:2].T, points.center_xy_px)
    assert torch.equal(table[2], points.stride_px)
