"""What a fit promises, from Python."""

from __future__ import annotations

import gc
import shutil
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.strategies import DDPStrategy
from PIL import Image

from lucid_yolo.data.dataset import open_split
from lucid_yolo.engine.black_box import find_nonfinite, read_plans, replay_plan
from lucid_yolo.engine.metrics_writer import MAX_BAD_RUN, NonFiniteRunError
from lucid_yolo.engine.module import DetectorModule
from lucid_yolo.engine.pictures import RunPictures
from lucid_yolo.optim.schedule import ScheduleConfig
from lucid_yolo.runtime.checkpoint_file import read_checkpoint
from lucid_yolo.structures import Batch
from tiny_run import make_batch, make_step, snapshot


class Watch(Callback):
    """Keeps what a run did at every update: packed targets, loss, and what Lightning was given to log."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.losses: list[float] = []
        self.logged: dict[str, Any] = {}

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Batch, batch_idx: int) -> None:
        self.batches.append(batch)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.losses.append(float(pl_module.last_metrics[0]))
        self.logged |= trainer.logged_metrics | trainer.callback_metrics | trainer.progress_bar_metrics


def parameters(model: DetectorModule) -> torch.Tensor:
    assert model.state is not None
    return model.state.params.clone()


def test_a_learning_rate_of_zero_changes_nothing(fit: Any, tmp_path: Path) -> None:
    _, moved = fit(tmp_path / "a", max_epochs=1, limit_val_batches=0)
    _, still = fit(tmp_path / "b", max_epochs=1, limit_val_batches=0, module={"schedule": ScheduleConfig(lr0=0.0)})
    torch.random.manual_seed(99)
    start = DetectorModule(image_size=64, class_map=still.class_map.to_dict())
    start.configure_model()
    fresh = dict(start.network.named_parameters())
    assert all(torch.equal(p, fresh[name]) for name, p in still.network.named_parameters())
    assert not torch.equal(parameters(moved), parameters(still))


def test_seeds_decide(fit: Any, tmp_path: Path) -> None:
    losses, files, names = {}, {}, {}
    for name, seed in {"a": 0, "b": 0, "c": 1}.items():
        watch = Watch()
        flags = {"module": {"image_size": 64, "seed": seed}, "data": {"seed": seed}}
        fit(tmp_path / name, max_epochs=1, callbacks=(watch,), **flags)
        losses[name], names[name] = watch.losses, [b.sample_index.tolist() for b in watch.batches]
        files[name] = (tmp_path / name / "metrics.csv").read_bytes()
    assert files["a"] == files["b"]
    assert losses["a"][0] != losses["c"][0]
    assert names["a"] == names["b"] != names["c"]


def test_training_logs_nothing_through_lightning(fit: Any, tmp_path: Path) -> None:
    watch = Watch()
    fit(tmp_path / "run", max_epochs=1, callbacks=(watch,))
    assert watch.logged == {}


def test_class_names_of_the_data_must_be_the_networks(fit: Any, tmp_path: Path) -> None:
    names = {"names": ["a", "b", "c", "d", "e"], "source_ids": [0, 1, 2, 3, 4]}
    with pytest.raises(ValueError, match="class names differ"):
        fit(tmp_path / "run", max_epochs=1, module={"image_size": 64, "class_map": names})


def test_no_validation_split(fit: Any, shapes_root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = Path(shutil.copytree(shapes_root, tmp_path / "only_train"))
    for kind in ("images", "labels"):
        shutil.rmtree(root / kind / "val")
    config = (root / "data.yaml").read_text("utf-8")
    (root / "data.yaml").write_text(config.replace("val: images/val\n", ""), "utf-8")
    trainer, model = fit(tmp_path / "run", max_epochs=1, data_root=root, callbacks=(RunPictures(tmp_path / "run"),))
    assert "the run goes without validation" in caplog.text
    assert trainer.global_step == 3
    assert model.evaluation is None
    written = {path.name for path in (tmp_path / "run").rglob("*.*")}
    assert {"last.ckpt", "best.ckpt", "metrics.csv", "curves.png", "train_batch.jpg"} <= written
    assert "report.json" not in written


@pytest.mark.parametrize(
    "strategy", ["ddp", "ddp_find_unused_parameters_true", DDPStrategy()], ids=["name", "flag", "object"]
)
@pytest.mark.filterwarnings("ignore:.*find_unused_parameters.*")
def test_a_strategy_that_wraps_the_network_is_refused(fit: Any, tmp_path: Path, strategy: Any) -> None:
    with pytest.raises(ValueError, match=r"expected StepDDPStrategy .* found DDPStrategy"):
        fit(tmp_path / "run", max_epochs=1, strategy=strategy, devices=1)
    torch.distributed.destroy_process_group()


class Poison(Callback):
    """Makes every loss NaN from an update on."""

    def __init__(self, update: int) -> None:
        self.update = update

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == self.update:
            pl_module.train_step._gains.fill_(float("nan"))


def test_a_run_without_finite_updates_stops_and_can_be_replayed(fit: Any, shapes_root: Path, tmp_path: Path) -> None:
    watch = Watch()
    with pytest.raises(NonFiniteRunError, match="10 updates in a row were not finite, from update 4 on"):
        fit(tmp_path / "run", max_epochs=8, callbacks=(Poison(4), watch), limit_val_batches=0)
    assert 4 + MAX_BAD_RUN <= len(watch.batches) <= 4 + MAX_BAD_RUN + 1
    (plan,) = read_plans(tmp_path / "run" / "black_box.json")
    replayed = replay_plan(plan, open_split(shapes_root, "train").records)
    assert torch.equal(replayed.images, watch.batches[4].images)
    assert torch.equal(replayed.packed, watch.batches[4].packed)
    text = (tmp_path / "run" / "black_box.json").read_text("utf-8")
    assert '"first_bad_tensor": "loss o2o/cls"' in text
    assert all(str(shapes_root) in line for line in text.splitlines() if ".jpg" in line)

    last = read_checkpoint(tmp_path / "run/checkpoints/last.ckpt")
    assert last["global_step"] > 4
    assert all(torch.isfinite(value).all() for value in last["state_dict"].values() if value.is_floating_point())


@pytest.mark.parametrize(
    ("kind", "name"),
    [("parameter", "parameter backbone."), ("statistics", "output of backbone."), ("gains", "loss o2o/cls")],
)
def test_the_first_bad_tensor_is_named(kind: str, name: str) -> None:
    step = make_step()
    batch = make_batch(0)
    assert find_nonfinite(step, batch) is None
    before = snapshot(step.state)
    assert find_nonfinite(step, batch) is None
    assert all(torch.equal(value, before[key]) for key, value in snapshot(step.state).items())
    if kind == "parameter":
        next(p for n, p in step.state.network.named_parameters() if n.startswith("backbone")).data.fill_(float("inf"))
    elif kind == "statistics":
        module = next(m for m in step.state.network.modules() if hasattr(m, "running_mean"))
        module.register_forward_hook(lambda *parts: parts[2] * float("nan"))
    else:
        step._gains.fill_(float("nan"))
    found = find_nonfinite(step, batch)
    assert found is not None
    assert found.startswith(name)


def test_pictures_leave_the_run_as_it_is(fit: Any, tmp_path: Path) -> None:
    fit(tmp_path / "plain", max_epochs=1)
    fit(tmp_path / "drawn", max_epochs=1, callbacks=(RunPictures(tmp_path / "drawn"),))
    plain, drawn = (tmp_path / name for name in ("plain", "drawn"))
    assert (plain / "metrics.csv").read_bytes() == (drawn / "metrics.csv").read_bytes()
    first, second = (read_checkpoint(folder / "checkpoints/last.ckpt") for folder in (plain, drawn))
    assert all(torch.equal(value, second["state_dict"][name]) for name, value in first["state_dict"].items())
    names = ["train_batch.jpg", "val_predictions.jpg", "labels.png"]
    names += ["curves.png", "precision_recall.png", "confusion.png"]
    for name in names:
        assert np.asarray(Image.open(drawn / name)).std() > 10, name


def test_a_limited_validation_scores_what_it_saw(fit: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, model = fit(tmp_path / "run", max_epochs=1, limit_val_batches=1, callbacks=(RunPictures(tmp_path / "run"),))
    assert model.evaluation is not None
    assert model.evaluation.metrics["one_to_one"].num_images == 4
    assert "scored on 4 of 5 images" in caplog.text


def test_nothing_keeps_the_step_when_the_run_is_over(fit: Any, tmp_path: Path) -> None:
    """It holds what lies on the device for the run alone, source images among it."""
    steps = list[weakref.ref[Any]]()

    class Remember(Callback):
        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            steps.append(weakref.ref(pl_module.train_step))

    trainer, model = fit(tmp_path, max_epochs=1, callbacks=(Remember(),))
    gc.collect()
    assert steps[0]() is None
    trainer.save_checkpoint(tmp_path / "after.ckpt", weights_only=False)
    trainer.strategy.checkpoint_io.wait()
    counts = read_checkpoint(tmp_path / "after.ckpt")["callbacks"]["MetricsWriter"]
    assert min(counts.values()) >= 0
    assert trainer.validate(model, datamodule=trainer.datamodule, verbose=False)
