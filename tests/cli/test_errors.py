"""Typical mistakes are one line that names the flag, what was expected, what was found and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from lucid_yolo.cli import bench, data, evaluate, predict
from lucid_yolo.cli.errors import plain
from lucid_yolo.cli.main import main
from lucid_yolo.data.synthetic import draw_shapes
from samples import write_untrained

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning.pytorch.cli")


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    draw_shapes("set", num_train=2, num_val=1, image_size_px=128)
    Path("text.ckpt").write_text("hello")
    Path("broken.yaml").write_text("a: [1\n b: {")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", "missing --data.data_root; --help lists the arguments"),
        ("--data.data_root nowhere", "data_root: expected a folder or a data YAML, found nothing at"),
        ("--data.data_root set --config detekt", "--config: expected a file or a recipe (detect, "),
        ("--data.data_root set --config broken.yaml", "--config broken.yaml: expected YAML, found: "),
        (
            "--data.data_root set --variant z",
            "--model.variant: expected one of 'n', 's', 'm', 'l', 'x' or null, found 'z'",
        ),
        ("--data.data_root set --model.varyant s", "did you mean --model.variant?"),
        ("--data.data_root set --model.image_size 100", "image_size: expected a multiple of 32, found 100"),
        (
            "--data.data_root set --data.batch_size many",
            "--data.batch_size: expected a whole number or 'auto', found 'many'",
        ),
        ("--data.data_root set --model.accumulate x", "--model.accumulate: expected a whole number, found 'x'"),
        ("--data.data_root set --data.augment.mosaic x", "--data.augment.mosaic: expected a number, found 'x'"),
        (
            "--data.data_root set --data.augment.mosaic 3",
            "mosaic: expected a number in [0, 1], found 3.0; 0 turns it off",
        ),
        ("--data.data_root set --model.speed.axelerate auto", "--model.speed.axelerate: no such argument"),
        ("--data.data_root set --trainer.strategy fsdp", "--trainer.strategy: expected auto or ddp, found 'fsdp'"),
        ("--ckpt_path nowhere.ckpt", "checkpoint: found no file nowhere.ckpt"),
        ("--ckpt_path text.ckpt", "checkpoint text.ckpt cannot be read ("),
    ],
)
def test_mistakes_of_a_fit(flags: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", *flags.split()]) == 2
    error = capsys.readouterr().err
    line = error.splitlines()[-1]
    assert line.startswith("error: ")
    assert error.count("error: ") == 1
    assert "Traceback" not in error
    assert expected in line
    assert not Path("runs").exists() or not any(Path("runs").rglob("*.ckpt"))


def test_mistakes_of_other_commands(capsys: pytest.CaptureFixture[str]) -> None:
    write_untrained(Path("best.ckpt"))
    for command, words, expected in (
        (evaluate.main, "--ckpt_path best.ckpt --data_root set", "train on these with --model.weights"),
        (evaluate.main, "--ckpt_path best.ckpt --data_root set --batchsize 3", "did you mean --batch_size?"),
        (main, "validate --data.data_root set", "validate: missing --ckpt_path, the checkpoint to score"),
        (predict.main, "--source set", "missing --ckpt_path; --help"),
        (data.main, "check --dataroot x", "; did you mean --data_root?"),
        (data.main, "check", "missing --data_root; --help"),
        (bench.main, "step --batch_sizes x", "--batch_sizes: expected a whole number or list[int], found 'x'"),
    ):
        assert command(words.split()) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert error.count(expected) == 1


@pytest.mark.parametrize(
    "message", ["no file x", "--config: expected a file", "argument --to: invalid choice: 'a' (choose from 'b')"]
)
def test_other_messages_stay(message: str) -> None:
    assert plain(message) == message
