"""The configurations in docs/loggers.md are what the command takes."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from lightning.pytorch import loggers
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

from lucid_yolo.cli.trainer import build_unstarted
from lucid_yolo.data.synthetic import draw_shapes

PAGE = Path(__file__).parents[2] / "docs" / "loggers.md"
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning.pytorch.cli")


@pytest.fixture
def flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    draw_shapes("shapes", num_train=2, num_val=1, image_size_px=64, object_px=(12, 40), seed=3)
    return ["--data.data_root=shapes", "--model.image_size=64", "--trainer.accelerator=cpu", "--config", "detect"]


def build(flags: list[str]) -> Any:
    return build_unstarted(flags).trainer.loggers


def test_loggers_without_a_service(flags: list[str]) -> None:
    Path("logger.yaml").write_text(BLOCKS[0], "utf-8")
    board, table = build([*flags, "--config", "logger.yaml"])
    assert isinstance(board, TensorBoardLogger)
    assert isinstance(table, CSVLogger)
    assert board.log_dir == str(Path("logs", "trees", "first"))
    assert table.root_dir == str(Path("logs", "trees"))


def test_logger_on_the_command_line(flags: list[str]) -> None:
    assert "--trainer.logger CSVLogger --trainer.logger.save_dir logs" in PAGE.read_text("utf-8")
    (table,) = build([*flags, "--trainer.logger", "CSVLogger", "--trainer.logger.save_dir", "logs"])
    assert isinstance(table, CSVLogger)


def test_the_default_and_none(flags: list[str]) -> None:
    (board,) = build(flags)
    assert isinstance(board, TensorBoardLogger)
    assert build([*flags, "--trainer.logger=false"]) == []


@pytest.mark.parametrize("block", BLOCKS[1:], ids=["wandb", "mlflow"])
def test_recipes_name_arguments_that_the_loggers_have(block: str) -> None:
    logger = yaml.safe_load(block)["trainer"]["logger"]
    kind = getattr(loggers, logger["class_path"].rpartition(".")[2])
    assert set(logger["init_args"]) <= set(inspect.signature(kind.__init__).parameters)
