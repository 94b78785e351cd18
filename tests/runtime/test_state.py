import io
from pathlib import Path

import pytest
import torch

from lucid_yolo.optim.groups import order_by_group
from lucid_yolo.runtime.flat import ALIGNMENT, FlatLayout
from lucid_yolo.runtime.state import TrainState
from lucid_yolo.runtime.step import StepConfig, TrainStep
from tiny_run import SIZE_PX, assert_same_bytes, make_batch, make_network, make_step, snapshot


def has_intact_views(state: TrainState) -> bool:
    """Return whether every parameter of the network still lies in the state's flat buffer."""
    views = state.layout.views(state.params)
    return all(views[name].data_ptr() == p.data_ptr() for name, p in state.network.named_parameters())


def run(step: TrainStep, *seeds: int) -> torch.Tensor:
    return torch.stack([step.run(make_batch(seed)) for seed in seeds])


def assert_views(state: TrainState) -> None:
    """Every tensor of the network, buffers too, lies in its place of the flat buffers."""
    assert has_intact_views(state)
    for layout, flat, tensors in (
        (state.layout, state.params, state.network.named_parameters()),
        (state.buffer_layout, state.buffers, state.network.named_buffers()),
    ):
        named = dict(tensors)
        assert named.keys() == layout.offsets.keys()
        for name, offset in layout.offsets.items():
            assert named[name].data_ptr() == flat.data_ptr() + 4 * offset, name


def test_network_lives_in_the_flat_buffers() -> None:
    network = make_network()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    state = TrainState(network)
    assert_views(state)
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    for parameter in network.parameters():
        if parameter.dim() == 4:
            assert parameter.is_contiguous(memory_format=torch.channels_last)
    names = list(state.layout.shapes)
    assert names == list(order_by_group(dict(network.named_parameters())))


def test_averaged_network_evaluates_the_average_and_stays_with_the_state() -> None:
    step = make_step()
    averaged = step.state.averaged_network
    assert not averaged.training
    run(step, 0, 1)
    averaged.to(dtype=torch.float64)
    views = step.state.layout.views(step.state.ema)
    for name, parameter in averaged.named_parameters():
        assert parameter.data_ptr() == views[name].data_ptr(), name
        assert not parameter.requires_grad


def test_network_in_another_precision_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected float32, found torch\.float64"):
        TrainState(make_network().double())


@pytest.mark.parametrize("accumulate", [1, 2])
def test_saved_and_loaded_run_continues_with_the_same_bytes(tmp_path: Path, accumulate: int) -> None:
    """With accumulation the run is saved between the micro-steps of an update."""
    config = StepConfig((SIZE_PX, SIZE_PX), accumulate=accumulate)
    whole = make_step(config=config)
    run(whole, 0, 1, 2)
    torch.save({"network": whole.state.network.state_dict(), "state": whole.state.state_dict()}, tmp_path / "run.ckpt")
    rest = run(whole, 3, 4, 5)

    resumed = make_step(seed=7, config=config)
    run(resumed, 9)
    saved = torch.load(tmp_path / "run.ckpt", weights_only=True)
    resumed.state.network.load_state_dict(saved["network"])
    resumed.state.load_state_dict(saved["state"])
    assert_views(resumed.state)
    assert torch.equal(run(resumed, 3, 4, 5), rest)
    assert_same_bytes(snapshot(whole.state), snapshot(resumed.state))


def test_state_of_another_network_is_refused() -> None:
    state = TrainState(make_network())
    saved = state.state_dict()
    name = next(iter(saved["momentum"]))
    saved["momentum"][name] = torch.zeros(2)
    with pytest.raises(ValueError, match=r"expected shape .*, found \(2,\)"):
        state.load_state_dict(saved)
    saved["momentum"].pop(name)
    with pytest.raises(ValueError, match="missing or unknown: " + name):
        state.load_state_dict(saved)


def test_saved_state_is_a_copy() -> None:
    step = make_step()
    run(step, 0)
    saved = step.state.state_dict()
    stream = io.BytesIO()
    torch.save(saved, stream)
    run(step, 1)
    again = io.BytesIO()
    torch.save(saved, again)
    assert stream.getvalue() == again.getvalue()
    assert len(again.getvalue()) < 2.5 * 4 * step.state.layout.length, "no tensor drags its whole flat buffer along"


def test_moving_the_network_keeps_the_views() -> None:
    still, moved = make_step(), make_step()
    averaged = moved.state.averaged_network
    for seed in range(3):
        run(still, seed)
        run(moved, seed)
        moved.state.network.to(torch.device("cpu"))
        assert_views(moved.state)
        moved.state.network._apply(lambda tensor: tensor.clone())
        assert_views(moved.state)
    assert_same_bytes(snapshot(still.state), snapshot(moved.state))
    ema = moved.state.layout.views(moved.state.ema)
    assert all(p.data_ptr() == ema[name].data_ptr() for name, p in averaged.named_parameters())


def test_broken_views_are_noticed() -> None:
    state = TrainState(make_network())
    parameter = next(state.network.parameters())
    parameter.data = parameter.data.clone()
    assert not has_intact_views(state)


def test_other_precision_is_refused_in_training() -> None:
    state = TrainState(make_network())
    with pytest.raises(ValueError, match=r"found torch\.float16"):
        state.network.half()


def test_averaged_network_holds_the_average_and_shares_the_statistics() -> None:
    step = make_step()
    averaged = step.state.averaged_network
    assert averaged is step.state.averaged_network
    run(step, 0, 1)
    own = dict(step.state.network.named_buffers())
    for name, buffer in averaged.named_buffers():
        assert buffer.data_ptr() == own[name].data_ptr()
    values = step.state.layout.views(step.state.ema)
    for name, parameter in averaged.named_parameters():
        assert torch.equal(parameter, values[name])
        assert not parameter.requires_grad
    assert not torch.equal(step.state.ema, step.state.params)
    copy = make_network().eval()
    copy.load_state_dict({**step.state.network.state_dict(), **step.state.layout.unpack(step.state.ema)})
    TrainState(copy)  # the same memory format
    images = torch.rand(1, 3, SIZE_PX, SIZE_PX)
    averaged.eval()
    with torch.no_grad():
        assert torch.equal(averaged(images).class_logit, copy(images).class_logit)


def test_asking_for_the_averaged_network_changes_no_byte() -> None:
    plain, asked = make_step(), make_step()
    run(plain, 0, 1)
    run(asked, 0)
    _ = asked.state.averaged_network
    run(asked, 1)
    assert_same_bytes(snapshot(plain.state), snapshot(asked.state))


def test_layout_aligns_and_round_trips() -> None:
    tensors = {
        "kernel": torch.randn(5, 3, 2, 2),
        "scalar": torch.randn(()),
        "vector": torch.randn(33),
        "cube": torch.randn(2, 3, 4),
    }
    layout = FlatLayout.of(tensors)
    flat = torch.zeros(layout.length)
    layout.pack(tensors, flat)
    assert all(offset % ALIGNMENT == 0 for offset in layout.offsets.values())
    assert layout.length == 64 + 32 + 64 + 32
    for name, tensor in layout.unpack(flat).items():
        assert torch.equal(tensor, tensors[name])
    assert torch.equal(flat[:60], tensors["kernel"].permute(0, 2, 3, 1).flatten())
    assert flat.count_nonzero() == sum(t.numel() for t in tensors.values())
