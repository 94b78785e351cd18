import pytest
import torch

from lucid_yolo.models.blocks import BatchNorm2d
from lucid_yolo.models.freeze import freeze_parameters, frozen_parameters, kept_statistics
from lucid_yolo.models.network import Network
from tiny_run import make_network


@pytest.fixture(scope="module")
def network() -> Network:
    return make_network()


def beginning_with(network: Network, *beginnings: str) -> set[str]:
    return {name for name, _ in network.named_parameters() if name.startswith(beginnings)}


@pytest.mark.parametrize(
    ("freeze", "beginnings"),
    [
        (0, ()),
        (1, ("backbone.stem.0.",)),
        (4, ("backbone.stem.", "backbone.stage3.0.")),
        (11, ("backbone.",)),
        ("backbone", ("backbone.",)),
        (["backbone.stage3", "neck"], ("backbone.stage3.", "neck.")),
        (["head.one_to_many"], ("head.branches.one_to_many.",)),
        (["head.branches.one_to_one.stems.box"], ("head.branches.one_to_one.stems.box.",)),
        (["head.one_to_one.class.0"], ("head.branches.one_to_one.stems.class.0.",)),
        ([], ()),
    ],
    ids=str,
)
def test_numbers_and_names_mean_parts(network: Network, freeze: int | str | list[str], beginnings: tuple[str]) -> None:
    assert frozen_parameters(network, freeze) == beginning_with(network, *beginnings)


@pytest.mark.parametrize(
    ("freeze", "message"),
    [
        (12, "expected 0 to 11 layers of the backbone, found 12"),
        (-1, "found -1"),
        (
            ["backbone.stage"],
            r"found no part 'backbone.stage'; parts are backbone, backbone.stage3, .*head.one_to_many",
        ),
        (["backbone", "neck", "head"], "found every parameter frozen"),
    ],
    ids=str,
)
def test_wrong_ones_are_named(network: Network, freeze: int | list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        frozen_parameters(network, freeze)


def test_a_frozen_normalisation_acts_as_in_evaluation() -> None:
    network = make_network()
    norm = network.neck.down3.norm
    assert isinstance(norm, BatchNorm2d)
    x = torch.randn(2, norm.weight.numel(), 4, 4)
    mean = norm.running_mean.clone()
    freeze_parameters(network, frozen_parameters(network, ["neck.down3"]))
    assert norm.training, "Lightning warns of layers in evaluation mode"
    assert torch.equal(norm(x), torch.nn.functional.batch_norm(x, mean, norm.running_var, eps=1e-3))
    assert torch.equal(norm.running_mean, mean)
    assert kept_statistics(network) == {"neck.down3.norm.running_mean", "neck.down3.norm.running_var"}
    freeze_parameters(network, frozen_parameters(network, ["neck.down3.conv"]))
    norm(x)
    assert not torch.equal(norm.running_mean, mean), "its own parameters are trained"
    freeze_parameters(network, ())
    assert all(parameter.requires_grad for parameter in network.parameters())
