"""``lucid_yolo.train`` on ten drawn pictures at 64 px."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from lightning.pytorch import Callback, LightningModule, Trainer

import lucid_yolo
from lucid_yolo.cli.main import main
from lucid_yolo.cli.training import TrainResult, to_flags
from lucid_yolo.data.synthetic import draw_shapes

QUIET = {"accelerator": "cpu", "enable_progress_bar": False, "num_sanity_val_steps": 0, "log_every_n_steps": 1}
TINY: dict[str, Any] = {"trainer": QUIET, "data.num_workers": 0, "data.batch_size": 4, "model.image_size": 64}

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning.pytorch.cli")


class Counter(Callback):
    def __init__(self) -> None:
        self.num_epochs = 0

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.num_epochs += 1


@pytest.fixture(scope="module")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data") / "shapes"
    draw_shapes(root, num_train=10, num_val=5, image_size_px=64, object_px=(12, 40), seed=3)
    return root


@pytest.fixture(scope="module")
def counter() -> Counter:
    return Counter()


@pytest.fixture(scope="module")
def trained(data_root: Path, counter: Counter, tmp_path_factory: pytest.TempPathFactory) -> TrainResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("work"))
        result = lucid_yolo.train("detect", data_root, variant="n", max_epochs=2, callbacks=[counter], **TINY)
        assert not result.run_dir.is_absolute()
        return TrainResult.of_folder(result.run_dir.resolve())


def test_the_run_is_that_of_the_command(
    trained: TrainResult, data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = ["--variant=n", "--trainer.max_epochs=2", "--data.num_workers=0", "--data.batch_size=4"]
    quiet = [f"--trainer.{name}={str(value).lower()}" for name, value in QUIET.items()]
    data = f"--data.data_root={data_root}"
    assert main(["fit", "--config", "detect", data, *flags, "--model.image_size=64", *quiet]) == 0
    own = Path("runs/detect/1")
    assert trained.run_dir.parts[-3:] == own.parts
    configs = [yaml.safe_load((folder / "config.yaml").read_text("utf-8")) for folder in (own, trained.run_dir)]
    assert configs[0] == configs[1]
    metrics = [(folder / "metrics.csv").read_text("utf-8").splitlines() for folder in (own, trained.run_dir)]
    losses = [[row.split(",") for row in rows] for rows in metrics]
    columns = [i for i, name in enumerate(losses[0][0]) if name.startswith("train/") and "time" not in name]
    assert columns
    assert [[row[i] for i in columns] for row in losses[0]] == [[row[i] for i in columns] for row in losses[1]]


def test_result_leads_to_checkpoint_metrics_and_predictor(
    trained: TrainResult, counter: Counter, data_root: Path
) -> None:
    assert counter.num_epochs == 2
    assert trained.best_ckpt.is_file()
    assert trained.last_ckpt.is_file()
    assert {"map", "map50"} <= trained.metrics.keys()
    assert all(value is None or isinstance(value, int | float) for value in trained.metrics.values())
    model = trained.load("cpu", conf=0.1, batch_size=2)
    assert (model.conf, model.batch_size) == (0.1, 2)
    assert len(list(model.predict(data_root / "images" / "val"))) == 5


def test_a_run_is_continued(trained: TrainResult, tmp_path: Path) -> None:
    run_dir = Path(shutil.copytree(trained.run_dir, tmp_path / "run"))
    with pytest.raises(ValueError, match="resume_override"):
        lucid_yolo.train(ckpt_path=run_dir / "checkpoints" / "last.ckpt", max_epochs=3)
    again = lucid_yolo.train(ckpt_path=run_dir / "checkpoints" / "last.ckpt", max_epochs=3, resume_override=True)
    assert again.run_dir == run_dir
    counts = [len((folder / "metrics.csv").read_text("utf-8").splitlines()) for folder in (trained.run_dir, run_dir)]
    assert counts[1] == counts[0] + 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"recipe": "detekt"}, "detekt"),
        ({"variant": "q"}, "variant.*q"),
        ({"max_epochs": -0.5}, "max_epochs"),
        ({"model.imagesize": 64}, "imagesize"),
        ({"model": {"imagesize": 64}}, "imagesize"),
        ({"epochs": 3}, "epochs"),
        ({"print_config": True}, "print_config"),
        ({"trainer.callbacks": [Callback()]}, "argument callbacks"),
        ({"trainer.benchmark": True}, "benchmark"),
        ({"trainer.strategy": "fsdp"}, "strategy"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else str(value),
)
def test_a_wrong_argument_is_a_value_error(
    data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        lucid_yolo.train(**({"data_root": data_root} | TINY | arguments))
    assert not list(tmp_path.glob("runs/*/*"))


def test_missing_data_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, FileNotFoundError), match="nowhere"):
        lucid_yolo.train("detect", "nowhere", **TINY)


def test_values_become_flags() -> None:
    values = {"a": "x y", "b": True, "c": None, "d": [1, 2], "e": 1e-5, "trainer": {"devices": 2}, "model.f": {"g": 1}}
    expected = ["a=x y", "b=true", "c=null", "d=[1, 2]", "e=1e-05", "trainer.devices=2", 'model.f={"g": 1}']
    assert to_flags(values) == [f"--{flag}" for flag in expected]


SCRIPT = """
import lucid_yolo
{guard}
    quiet = {{"accelerator": "cpu", "enable_progress_bar": False, "num_sanity_val_steps": 0}}
    data = {{"num_workers": 1, "batch_size": 4}}
    result = lucid_yolo.train("detect", {root!r}, max_epochs=1, trainer=quiet, data=data, model={{"image_size": 64}})
    print("trained", result.run_dir, sorted(result.metrics)[:1])
"""


@pytest.mark.parametrize("is_guarded", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_in_a_script_worker_processes_need_the_guard(data_root: Path, tmp_path: Path, is_guarded: bool) -> None:
    guard = 'if __name__ == "__main__":' if is_guarded else "if True:"
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(guard=guard, root=str(data_root)), "utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120, env=dict(os.environ)
    )
    if is_guarded:
        assert done.returncode == 0, done.stderr
        assert "trained runs/detect/1" in done.stdout
    else:
        assert done.returncode != 0
        assert "put it under `if __name__ == '__main__':`" in done.stderr
