"""``lucid-yolo fit|validate|test`` in this process, on ten drawn pictures at 64 px."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from lucid_yolo.cli.main import main
from lucid_yolo.cli.trainer import RunCLI
from lucid_yolo.data.synthetic import draw_shapes
from lucid_yolo.engine.checkpoint import RunCheckpoint
from lucid_yolo.engine.patience import Patience
from lucid_yolo.engine.strategy import StepDDPStrategy
from lucid_yolo.runtime.checkpoint_file import read_checkpoint, read_meta
from samples import write_untrained

QUIET = ["--trainer.accelerator=cpu", "--trainer.enable_progress_bar=false"]
TINY = ["--data.num_workers=0", "--data.batch_size=4", *QUIET]
Parse = Callable[..., RunCLI]

# Lightning calls a method of jsonargparse that is on its way out; users are not shown such warnings.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning.pytorch.cli")


@pytest.fixture(scope="module")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data") / "shapes"
    draw_shapes(root, num_train=10, num_val=5, image_size_px=64, object_px=(12, 40), seed=3)
    return root


@pytest.fixture(scope="module")
def first_run(data_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a whole fit of scale n: two epochs of three updates."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("work"))
        own = Path("own.yaml")
        own.write_text("data: {augment: {close_mosaic: 1}}\ntrainer: {log_every_n_steps: 1}", "utf-8")
        flags = ["--model.image_size=64", "--trainer.max_epochs=2", "--config", str(own), "--seed_everything=4"]
        assert main(["fit", "--config", "detect", f"--data.data_root={data_root}", *TINY, *flags]) == 0
        return Path("runs/own/1").resolve()


@pytest.fixture
def run_dir(first_run: Path, tmp_path: Path) -> Path:
    """A copy of that folder, at another place."""
    return Path(shutil.copytree(first_run, tmp_path / "elsewhere" / "7"))


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def parse(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> Parse:
    """Run a command up to the point where the Trainer would start; return what was built."""
    seen: list[RunCLI] = []
    monkeypatch.setattr(RunCLI, "_run_subcommand", lambda self, _: seen.append(self))

    def run(command: str, *flags: str) -> RunCLI:
        assert main([command, f"--data.data_root={data_root}", *TINY, *flags]) == 0
        return seen.pop()

    return run


def error_line(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """Run a command that must end as an error of the user; return its one line."""
    capsys.readouterr()
    assert main(list(argv)) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    return lines[0]


def rows_of(run_dir: Path) -> list[dict[str, str]]:
    with (run_dir / "metrics.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_fit_writes_the_run_folder(first_run: Path) -> None:
    names = {path.relative_to(first_run).as_posix() for path in first_run.rglob("*") if path.is_file()}
    expected = {"config.yaml", "metrics.csv", "labels.json", "report.json", "curves.png", "train_batch.jpg"}
    expected |= {"report.html", "confidence.png", "confusion.png", "labels.png"}
    expected |= {"precision_recall.png", "val_predictions.jpg", "checkpoints/best.ckpt", "checkpoints/last.ckpt"}
    assert expected <= names
    assert any(name.startswith("tensorboard/events.out.tfevents") for name in names)
    assert [row["step"] for row in rows_of(first_run)] == ["1", "2", "3", "3", "4", "5", "6", "6"]
    assert all(float(row["val/map"]) >= 0 for row in rows_of(first_run) if row["val/map"])


def test_config_is_resolved(first_run: Path) -> None:
    config = yaml.safe_load((first_run / "config.yaml").read_text("utf-8"))
    names = ["circle", "rectangle", "triangle", "star", "cross"]
    model = {key: config["model"][key] for key in ("task", "variant", "image_size", "class_map", "seed")}
    class_map = {"names": names, "source_ids": [0, 1, 2, 3, 4]}
    assert model == {"task": "detect", "variant": "n", "image_size": 64, "class_map": class_map, "seed": 4}
    assert (config["data"]["seed"], config["seed_everything"]) == (4, 4)
    assert config["data"]["augment"]["close_mosaic"] == 1  # the second --config
    assert config["data"]["augment"]["fliplr"] == 0.5  # the recipe
    assert config["model"]["schedule"]["warmup_momentum"] == 0.8  # a default
    assert not {"run_dir", "ckpt_path", "by_variant"} & config.keys()
    assert not {"precision", "accumulate_grad_batches", "gradient_clip_val"} & config["trainer"].keys()


def test_labels_and_report(first_run: Path) -> None:
    labels = json.loads((first_run / "labels.json").read_text("utf-8"))
    assert labels.keys() == {"train", "val"}
    assert labels["train"]["rows"]["total"] == labels["train"]["rows"]["kept"] > 0
    report = json.loads((first_run / "report.json").read_text("utf-8"))
    assert report["metrics"].keys() == {"one_to_one", "one_to_many"}
    assert report["model"]["image_size_px"] == 64


def test_checkpoint_holds_what_the_network_is_and_nothing_that_needs_code(first_run: Path) -> None:
    checkpoint = torch.load(first_run / "checkpoints/best.ckpt", weights_only=True)
    assert checkpoint["hyper_parameters"].keys() == {"task", "variant", "image_size", "class_map"}
    assert read_meta(checkpoint).class_map.names[3] == "star"


def test_the_command_line_beats_a_config_which_beats_the_defaults(parse: Parse, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("model: {clip_norm: 3.0, accumulate: 2}\ntrainer: {max_epochs: 9}", "utf-8")
    cli = parse("fit", "--model.accumulate=4", "--config", "detect", "--config", str(own), "--model.precision=bf16")
    assert (cli.model.accumulate, cli.model.clip_norm, cli.model.precision) == (4, 3.0, "bf16")
    assert cli.trainer.max_epochs == 9
    assert cli.model.schedule_config.lr0 == 0.01  # the recipe


@pytest.mark.parametrize(("variant", "scale"), [("n", 0.5), ("s", 0.9), ("x", 0.9)])
def test_variant_takes_its_values_of_the_recipe(parse: Parse, variant: str, scale: float) -> None:
    cli = parse("fit", "--config", "detect", "--variant", variant)
    assert cli.model.variant == variant
    assert cli.datamodule.augment.scale == scale


def test_moved_trainer_flags_reach_the_model(parse: Parse, tmp_path: Path) -> None:
    flags = ["--trainer.gradient_clip_val=2.5", "--trainer.accumulate_grad_batches", "3", "--trainer.precision=32"]
    cli = parse("fit", *flags)
    assert (cli.model.clip_norm, cli.model.accumulate, cli.model.precision) == (2.5, 3, "fp32")
    own = tmp_path / "own.yaml"
    own.write_text("trainer: {gradient_clip_val: 1.5, accumulate_grad_batches: 2, precision: bf16-mixed}", "utf-8")
    cli = parse("fit", "--config", str(own), "--trainer.precision=32-true")
    assert (cli.model.clip_norm, cli.model.accumulate, cli.model.precision) == (1.5, 2, "fp32")
    assert cli.trainer.precision == "32-true"


def test_how_a_network_is_run_never_comes_from_the_checkpoint(parse: Parse, run_dir: Path) -> None:
    last = str(run_dir / "checkpoints/last.ckpt")
    cli = parse("validate", "--ckpt_path", last, "--model.precision=bf16", "--data.eval_batch_size=3")
    assert (cli.model.image_size, cli.model.class_map.names[0]) == (64, "circle")
    assert (cli.model.precision, cli.datamodule.eval_batch_size) == ("bf16", 3)
    cli = parse("validate", "--ckpt_path", last)
    assert (cli.model.precision, cli.datamodule.seed) == ("auto", 0)


@pytest.mark.parametrize(
    ("flag", "saved", "asked"),
    [
        ("--model.image_size=128", "64", "128"),
        ("--model.variant=s", "n", "s"),
        ("--variant=l", "n", "l"),
        ("--model.task=pose", "detect", "pose"),
    ],
)
def test_another_network_than_the_checkpoints_is_an_error(
    run_dir: Path, data_root: Path, capsys: pytest.CaptureFixture[str], flag: str, saved: str, asked: str
) -> None:
    last = str(run_dir / "checkpoints/last.ckpt")
    line = error_line(capsys, "validate", f"--data.data_root={data_root}", "--ckpt_path", last, *TINY, flag)
    assert f"the checkpoint has {saved}, the command line or configuration {asked}" in line
    assert not Path("runs").exists()


def test_fit_with_a_checkpoint_alone_continues_its_run(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    last = run_dir / "checkpoints/last.ckpt"
    line = error_line(capsys, "fit", "--ckpt_path", str(last))
    assert "finished after 6 updates" in line
    line = error_line(capsys, "fit", "--ckpt_path", str(last), "--trainer.max_epochs=3")
    assert "num_updates: 6 saved, 9 now" in line
    assert yaml.safe_load((run_dir / "config.yaml").read_text("utf-8"))["trainer"]["max_epochs"] == 2

    assert main(["fit", "--ckpt_path", str(last), "--trainer.max_epochs=3", "--resume_override", "true"]) == 0
    assert read_checkpoint(last)["global_step"] == 9
    assert [row["step"] for row in rows_of(run_dir)][-4:] == ["7", "8", "9", "9"]
    config = yaml.safe_load((run_dir / "config.yaml").read_text("utf-8"))
    assert config["trainer"]["max_epochs"] == 3
    assert (config["resume_override"], config["model"]["resume_override"]) == (False, False)
    assert not Path("runs").exists()


def test_a_resumed_fit_takes_the_runs_values_and_the_checkpoints_scale(parse: Parse, run_dir: Path) -> None:
    last = str(run_dir / "checkpoints/last.ckpt")
    cli = parse("fit", "--ckpt_path", last)
    assert (cli.trainer.max_epochs, cli.datamodule.augment.close_mosaic, cli.run_dir) == (2, 1, run_dir)
    assert (cli.model.seed, cli.datamodule.batch_size) == (4, 4)


def test_fit_starts_from_weights_on_other_classes(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    draw_shapes(tmp_path / "other", num_train=4, num_val=2, image_size_px=64, object_px=(12, 40), seed=1)
    path = tmp_path / "other" / "data.yaml"
    path.write_text(path.read_text("utf-8").replace("star", "sun").replace("circle", "Circle"), "utf-8")
    best = str(run_dir / "checkpoints/best.ckpt")
    argv = ["fit", "--config", "detect", "--model.weights", best, f"--data.data_root={path}", *TINY]
    argv += ["--trainer.max_epochs=1", "--trainer.log_every_n_steps=1"]
    assert main([*argv, "--model.freeze=[backbone.stage3, neck]"]) == 0
    assert (
        "4 of 5 classes taken over (Circle from circle, rectangle, triangle, cross); 1 begin anew (sun)" in caplog.text
    )
    run = Path("runs/detect/1")
    config = yaml.safe_load((run / "config.yaml").read_text("utf-8"))
    assert {key: config["model"][key] for key in ("weights", "freeze", "image_size", "variant")} == {
        "weights": best,
        "freeze": ["backbone.stage3", "neck"],
        "image_size": 64,
        "variant": "n",
    }
    last = run / "checkpoints/last.ckpt"
    assert read_meta(read_checkpoint(last)).class_map.names[3] == "sun"

    assert "finished after 1 updates" in error_line(capsys, "fit", "--ckpt_path", str(last))
    both = ["fit", "--ckpt_path", str(last), "--model.weights", best]
    assert "--model.weights" in (line := error_line(capsys, *both))
    assert "--ckpt_path" in line
    assert "validate takes --ckpt_path" in error_line(capsys, "validate", "--model.weights", best, *argv[5:6])
    assert "expected 0 to 11 layers" in error_line(capsys, *argv, "--model.freeze=12")
    assert "missing.ckpt" in error_line(capsys, *argv, "--model.weights=missing.ckpt")


@pytest.mark.parametrize(("flag", "value"), [("10", 10), ("neck", "neck"), ("[neck, head]", ["neck", "head"])], ids=str)
def test_a_freeze_is_a_number_a_name_or_names(parse: Parse, flag: str, value: Any) -> None:
    assert parse("fit", f"--model.freeze={flag}").config["fit"].model.freeze == value


def test_weights_say_the_scale_and_choose_among_a_recipes_values(parse: Parse, tmp_path: Path) -> None:
    path = write_untrained(tmp_path / "s.ckpt", variant="s")
    cli = parse("fit", "--config=detect", f"--model.weights={path}")
    assert (cli.model.variant, cli.model.image_size, cli.datamodule.augment.scale) == ("s", 64, 0.9)
    cli = parse("fit", "--config=detect", f"--model.weights={path}", "--model.image_size=96")
    assert cli.model.image_size == 96


def test_a_lone_checkpoint_has_no_configuration(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lone = Path(shutil.copy(run_dir / "checkpoints/last.ckpt", tmp_path / "lone.ckpt"))
    assert "expected the run's configuration" in error_line(capsys, "fit", "--ckpt_path", str(lone))


def test_validate_writes_its_report(run_dir: Path, data_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best = str(run_dir / "checkpoints/best.ckpt")
    argv = ["validate", f"--data.data_root={data_root}", "--ckpt_path", best, *TINY, "--trainer.logger=false"]
    for number in ("1", "2"):
        assert main(argv) == 0
        folder = Path("runs", "validate", number)
        assert {path.name for path in folder.iterdir()} == {
            "report.json",
            "report.html",
            "precision_recall.png",
            "confidence.png",
            "confusion.png",
            "val_predictions.jpg",
        }
    report = json.loads((folder / "report.json").read_text("utf-8"))
    assert (report["ckpt_path"], report["split"], report["model"]["variant"]) == (best, "val", "n")
    fitted = json.loads((run_dir / "report.json").read_text("utf-8"))
    assert report["metrics"] == fitted["metrics"]
    assert f"{report['metrics']['one_to_one']['ar_max']:.4f}" in (folder / "report.html").read_text("utf-8")
    assert "AP 0.50:0.95" in capsys.readouterr().out


def test_other_classes_are_an_error(run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw_shapes(tmp_path / "other", num_train=2, num_val=2, image_size_px=64, object_px=(12, 40), seed=1)
    path = tmp_path / "other" / "data.yaml"
    path.write_text(path.read_text("utf-8").replace("star", "sun"), "utf-8")
    last = str(run_dir / "checkpoints/last.ckpt")
    data = [f"--data.data_root={path}", *TINY]
    assert "class names differ" in error_line(capsys, "validate", "--ckpt_path", last, *data)
    resume = ["--ckpt_path", last, "--trainer.max_epochs=3", "--resume_override=true"]
    assert "class names differ" in error_line(capsys, "fit", *resume, *data)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--config", "detekt"], "expected a file or a recipe"),
        (["--trainer.sync_batchnorm=true"], "not implemented"),
        (["--trainer.precision=64"], "expected one of 32-true"),
        (["--trainer.strategy=fsdp"], "expected auto or ddp, found 'fsdp'"),
        (["--data.data_root=nowhere"], "nowhere"),
        (["--data.batch_sise=3"], "batch_sise"),
        (["--data.batch_size=many"], "many"),
        (["--model.variant=q"], "variant"),
        (["--model.image_size=100"], "image_size: expected a multiple of 32"),
        (["--ckpt_path=missing.ckpt"], "missing.ckpt"),
        (["stray"], "stray"),
    ],
    ids=str,
)
def test_wrong_use_is_one_line_and_leaves_no_folder(
    flags: list[str], message: str, data_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = error_line(capsys, "fit", f"--data.data_root={data_root}", *TINY, *flags)
    assert message in line
    assert not [path for path in Path().rglob("*") if path.is_file() or path.name.isdecimal()]


def test_a_new_run_takes_no_used_folder(run_dir: Path, data_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (run_dir / "metrics.csv").read_bytes()
    line = error_line(capsys, "fit", f"--data.data_root={data_root}", *TINY, f"--run_dir={run_dir}")
    assert f"continue it with --ckpt_path {run_dir / 'checkpoints/last.ckpt'}" in line
    assert (run_dir / "metrics.csv").read_bytes() == before


def test_patience_and_monitor_reach_their_callbacks(parse: Parse) -> None:
    trainer = parse("fit", "--config=detect", "--monitor=val/map50").trainer
    (patience,) = (c for c in trainer.callbacks if isinstance(c, Patience))
    assert (patience.num_epochs, patience.monitor) == (100, "val/map50")
    assert [c.monitor for c in trainer.callbacks if isinstance(c, RunCheckpoint)] == ["val/map50"]
    trainer = parse("fit", "--config=detect", "--patience=0").trainer
    assert not any(isinstance(c, Patience) for c in trainer.callbacks)


def test_a_sanity_validation_runs_only_when_asked_for(parse: Parse) -> None:
    assert parse("fit").trainer.num_sanity_val_steps == 0
    assert parse("fit", "--trainer.num_sanity_val_steps=2").trainer.num_sanity_val_steps == 2


def test_the_batch_size_that_was_found_is_written_down(
    data_root: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    flags = ["--model.image_size=64", "--trainer.max_epochs=1", "--trainer.log_every_n_steps=1"]
    argv = ["fit", f"--data.data_root={data_root}", "--data.num_workers=0", *QUIET, *flags]
    assert "found 'val/mAP'" in error_line(capsys, *argv, "--monitor=val/mAP")
    assert main([*argv, "--data.batch_size=auto"]) == 0
    assert "batch size 16: the device is cpu" in caplog.text
    assert yaml.safe_load(Path("runs/detect/1/config.yaml").read_text("utf-8"))["data"]["batch_size"] == 16


def test_fit_needs_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert "data_root" in error_line(capsys, "fit")


@pytest.mark.parametrize("flag", ["--print_config", "--help"])
def test_print_config_and_help_make_no_run(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["fit", "--config", "detect", "--data.data_root=x", flag])
    assert done.value.code == 0
    text = capsys.readouterr().out
    if flag == "--print_config":
        config: dict[str, Any] = yaml.safe_load(text)
        assert config["data"]["augment"]["hsv_s"] == 0.7
        assert config["trainer"]["max_epochs"] == 80
    assert "precision" in text
    assert not Path("runs").exists()


def test_ddp_leaves_the_exchange_to_the_step(parse: Parse) -> None:
    assert isinstance(parse("fit", "--trainer.strategy=ddp", "--trainer.devices=1").trainer.strategy, StepDDPStrategy)
    assert isinstance(parse("fit", "--trainer.devices=2").trainer.strategy, StepDDPStrategy)
