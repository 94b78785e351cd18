"""Trained weights in a network with other classes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback

from lucid_yolo.engine.finetune import Weights, match_classes, read_start_weights, transfer_weights
from lucid_yolo.engine.module import DetectorModule
from lucid_yolo.models.network import Network
from lucid_yolo.runtime.checkpoint_file import ModelMeta, build_network, read_checkpoint
from lucid_yolo.runtime.deployed_meta import DeployedMeta
from lucid_yolo.runtime.weights_file import write_weights
from lucid_yolo.structures import ClassMap
from samples import write_untrained

KNOWN = ("Zelle [red]", "bus", "собака")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Weights:
    """Weights whose parameters differ from their averages and from what any seed gives."""
    path = write_untrained(tmp_path_factory.mktemp("weights") / "w.ckpt")
    checkpoint = read_checkpoint(path)
    for value in checkpoint["lucid_yolo"]["train_state"]["ema"].values():
        value.add_(0.25)
    torch.save(checkpoint, path)
    return read_start_weights(path)


def test_an_exported_file_holds_the_same(tmp_path: Path) -> None:
    path = write_untrained(tmp_path / "w.ckpt")
    weights = read_start_weights(path)
    deployed = DeployedMeta(weights.meta, (64, 64))
    write_weights(build_network(read_checkpoint(path)), deployed, tmp_path / "w.safetensors")
    exported = read_start_weights(tmp_path / "w.safetensors")
    assert exported.meta == weights.meta
    assert exported.tensors.keys() == weights.tensors.keys()
    assert all(torch.equal(value, weights.tensors[name]) for name, value in exported.tensors.items())


def meta_of(*names: str, variant: Any = "n") -> ModelMeta:
    return ModelMeta("detect", variant, ClassMap.from_names(names), 64)


def fresh_network(meta: ModelMeta) -> Network:
    torch.manual_seed(5)
    return Network(meta.variant, meta.build_task().stems)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["bus", "car"], (1, None)),
        (["BUS", "СОБАКА"], (1, 2)),
        (["Bus", "bus"], (1, 1)),
        ([], ()),
    ],
    ids=str,
)
def test_names_match_exactly_or_up_to_case(names: list[str], expected: tuple[int | None, ...]) -> None:
    assert match_classes(names, KNOWN) == expected


def test_an_exact_name_wins() -> None:
    assert match_classes(["Bus", "bus", "BUS"], ["car", "bus", "Bus"]) == (2, 1, 1)


def test_the_same_classes_take_everything(weights: Weights) -> None:
    network = fresh_network(meta_of(*KNOWN))
    transfer = transfer_weights(network, meta_of(*KNOWN), weights, "w.ckpt")
    assert transfer.fresh == frozenset()
    assert "3 of 3 classes taken over" in transfer.line
    state = network.state_dict()
    assert state.keys() == weights.tensors.keys()
    assert all(torch.equal(value, weights.tensors[name]) for name, value in state.items())


def test_other_classes_begin_anew_and_known_rows_are_taken(weights: Weights) -> None:
    meta = meta_of("car", "Bus", "tram", "собака")
    network, start = fresh_network(meta), fresh_network(meta).state_dict()
    transfer = transfer_weights(network, meta, weights, "w.ckpt")
    assert transfer.line == (
        "weights w.ckpt: detect, scale n, trained at 64 px on 3 classes; 2 of 4 classes taken over (Bus from bus, "
        "собака); 2 begin anew (car, tram); everything else is copied"
    )
    assert len(transfer.fresh) == 2 * 3 * 2
    for name, value in network.state_dict().items():
        trained = weights.tensors[name]
        if name not in transfer.fresh:
            assert torch.equal(value, trained), name
            continue
        assert re.fullmatch(r"head\.branches\.\w+\.stems\.class\.\d\.\d\.(weight|bias)", name)
        assert torch.equal(value[[0, 2]], start[name][[0, 2]]), "as at the start"
        assert torch.equal(value[[1, 3]], trained[[1, 2]])


def test_class_stems_of_another_width_begin_anew(weights: Weights) -> None:
    names = [*KNOWN, *(f"c{i}" for i in range(77))]
    meta = meta_of(*names)
    network, start = fresh_network(meta), fresh_network(meta).state_dict()
    transfer = transfer_weights(network, meta, weights, "w.ckpt")
    assert "0 of 80 classes taken over; 80 begin anew (Zelle [red], bus" in transfer.line
    assert "the class stems begin anew too" in transfer.line
    for name, value in network.state_dict().items():
        assert torch.equal(value, (start if name in transfer.fresh else weights.tensors)[name]), name
    assert all(".stems.class." in name for name in transfer.fresh)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"variant": "s"}, r"weights w\.ckpt: its variant is s, the configuration asks for n"),
        ({"task": "pose"}, r"weights w\.ckpt: its task is pose, the configuration asks for detect"),
    ],
    ids=str,
)
def test_another_network_is_an_error(weights: Weights, change: dict[str, str], message: str) -> None:
    meta = meta_of("bus")
    with pytest.raises(ValueError, match=message):
        transfer_weights(fresh_network(meta), meta, replace(weights, meta=replace(weights.meta, **change)), "w.ckpt")


@pytest.mark.parametrize("name", ["neck.down3.conv.weight", "head.branches.one_to_one.stems.box.0.2.bias"])
def test_another_structure_is_an_error(weights: Weights, name: str) -> None:
    meta = meta_of("bus")
    other = replace(weights, tensors={**weights.tensors, name: torch.zeros(3)})
    with pytest.raises(ValueError, match=rf"expected shape .* of {name}, found \(3,\)"):
        transfer_weights(fresh_network(meta), meta, other, "w.ckpt")
    less = {key: value for key, value in weights.tensors.items() if key != name}
    with pytest.raises(ValueError, match=f"missing or unknown: {name}"):
        transfer_weights(fresh_network(meta), meta, replace(weights, tensors=less), "w.ckpt")


@pytest.fixture
def start_file(fit: Any, tmp_path: Path) -> Path:
    fit(tmp_path / "first", max_epochs=1)
    return tmp_path / "first/checkpoints/last.ckpt"


def test_a_fit_starts_from_averaged_weights_at_step_zero(fit: Any, tmp_path: Path, start_file: Path) -> None:
    seen: dict[str, Any] = {}

    class First(Callback):
        def on_train_start(self, trainer: Any, pl_module: DetectorModule) -> None:
            assert pl_module.state is not None
            seen["state"] = {name: tensor.clone() for name, tensor in pl_module.state.tensors().items()}
            seen["ema"] = pl_module.state.layout.unpack(pl_module.state.ema)
            seen["step"] = trainer.global_step

    fit(tmp_path / "next", max_epochs=1, module={"weights": str(start_file)}, callbacks=(First(),))
    averages = read_checkpoint(start_file)["lucid_yolo"]["train_state"]["ema"]
    assert all(torch.equal(value, averages[name]) for name, value in seen["ema"].items())
    assert torch.equal(seen["state"]["params"], seen["state"]["ema"])
    assert not seen["state"]["momentum"].any()
    assert (int(seen["state"]["update_index"]), seen["step"]) == (0, 0)


def test_weights_of_another_scale_are_refused_before_anything_runs(fit: Any, tmp_path: Path, start_file: Path) -> None:
    with pytest.raises(ValueError, match="its variant is n, the configuration asks for s"):
        fit(tmp_path / "next", max_epochs=1, module={"weights": str(start_file), "variant": "s", "image_size": 64})


def tensors_of(path: Path) -> dict[str, torch.Tensor]:
    """Return raw parameters, statistics, averages and momentum in a checkpoint."""
    checkpoint = read_checkpoint(path)
    flat = {name.removeprefix("network."): value for name, value in checkpoint["state_dict"].items()}
    train_state = checkpoint["lucid_yolo"]["train_state"]
    flat |= {f"ema {name}": value for name, value in train_state["ema"].items()}
    return flat | {f"momentum {name}": value for name, value in train_state["momentum"].items()}


def test_a_frozen_backbone_keeps_its_bytes_through_a_kill_and_a_resume(
    fit: Any, tmp_path: Path, start_file: Path
) -> None:
    module = {"image_size": 64, "weights": str(start_file), "freeze": 11}
    fit(tmp_path / "whole", max_epochs=2, module=module)
    with pytest.raises(Killed):
        fit(tmp_path / "parts", max_epochs=2, module=module, callbacks=(Interrupt(),))
    last = tmp_path / "parts/checkpoints/last.ckpt"
    gone = {**module, "weights": "gone.ckpt", "task": "detect", "variant": "n"}
    fit(tmp_path / "parts", last, max_epochs=2, module=gone)  # a resumed run needs them no more

    start, whole, parts = tensors_of(start_file), tensors_of(tmp_path / "whole/checkpoints/last.ckpt"), tensors_of(last)
    assert [name for name, value in whole.items() if not torch.equal(value, parts[name])] == []
    averages = {name: start[f"ema {name}"] for name in start if f"ema {name}" in start}
    for name, value in whole.items():
        kind, _, parameter = name.rpartition(" ")
        if not parameter.startswith("backbone"):
            continue
        expected = torch.zeros_like(value) if kind == "momentum" else averages.get(parameter, start.get(name))
        assert torch.equal(value, expected), name
    assert not torch.equal(whole["neck.down3.conv.weight"], averages["neck.down3.conv.weight"])
    assert not torch.equal(whole["neck.down3.norm.running_mean"], start["neck.down3.norm.running_mean"])

    with pytest.raises(ValueError, match="freeze: 11 saved, 0 now"):
        fit(tmp_path / "parts", last, max_epochs=2, module={"image_size": 64})


class Killed(BaseException):
    """Stands for a kill."""


class Interrupt(Callback):
    """Ends the run at the start of its second epoch."""

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        if trainer.current_epoch == 1:
            raise Killed


def test_random_values_under_a_freeze_are_said(fit: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fit(tmp_path / "run", max_epochs=1, limit_train_batches=1, module={"image_size": 64, "freeze": "neck"})
    assert "of the frozen tensors have random values, such as neck." in caplog.text
