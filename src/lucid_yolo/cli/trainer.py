"""``lucid-yolo fit|validate|test``: LightningCLI over a configuration that is already resolved."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from lucid_yolo.cli.errors import run_command
from lucid_yolo.data.dataset import read_class_map
from lucid_yolo.engine.checkpoint import AtomicCheckpointIO, RunCheckpoint
from lucid_yolo.engine.config import DEFAULT_RECIPE, next_run_dir, resolve_arguments, split_flags
from lucid_yolo.engine.datamodule import DetectorDataModule
from lucid_yolo.engine.metrics_writer import MetricsWriter, RunProgressBar
from lucid_yolo.engine.module import DEFAULT_IMAGE_SIZE_PX, DEFAULT_TASK, DEFAULT_VARIANT, DetectorModule
from lucid_yolo.engine.strategy import StepDDPStrategy
from lucid_yolo.models.scales import Variant
from lucid_yolo.runtime.checkpoint_file import ModelMeta, read_checkpoint, read_meta
from lucid_yolo.structures import ClassMap

RUN_DIR_VARIABLE = "LUCID_YOLO_RUN_DIR"
"""Tells the ranks that a launcher starts which folder the first one chose."""


class RunCLI(LightningCLI):
    """Parses, fills in what the checkpoint knows, and builds the Trainer around a run folder."""

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """Return the Trainer methods that are commands, with arguments to leave out."""
        left_out = {"model", "train_dataloaders", "val_dataloaders", "dataloaders", "datamodule", "weights_only"}
        return dict.fromkeys(("fit", "validate", "test"), left_out)

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the run folder, the resume switch and the one seed."""
        parser.add_argument("--run_dir", type=str | None, default=None, help="Run folder; default runs/<recipe>/<n>.")
        parser.add_argument("--resume_override", type=bool, default=False, help="Resume although the run differs.")
        parser.add_argument("--checkpoint_every", type=int | None, default=None, help="Updates between checkpoints.")
        parser.link_arguments("seed_everything", "model.seed")
        parser.link_arguments("seed_everything", "data.seed")
        parser.link_arguments("resume_override", "model.resume_override")

    def _parse_ckpt_path(self) -> None:
        """Settle what the network is: from the checkpoint, else from the arguments, the data set and the defaults.

        Raises:
            ValueError: The command line or configuration asks for another network.
        """
        config = self.config[self.config.subcommand]
        if config.ckpt_path:
            meta = read_meta(read_checkpoint(config.ckpt_path))
        else:
            classes = read_class_map(config.data.data_root, config.data.source_format)
            variant: Variant = config.model.variant or DEFAULT_VARIANT
            meta = ModelMeta(
                config.model.task or DEFAULT_TASK,
                variant,
                ClassMap.from_dict(config.model.class_map) if config.model.class_map else classes,
                config.model.image_size or DEFAULT_IMAGE_SIZE_PX,
            )
        fill_in(config.model, meta)

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Build the Trainer with this package's callbacks, checkpoint files and strategy."""
        config = self.config[self.config.subcommand]
        run_dir = Path(config.run_dir)
        trainer = {**self._get(self.config_init, "trainer", default={}), **kwargs}
        trainer["default_root_dir"] = str(run_dir)
        if trainer.get("strategy") == "ddp":
            trainer["strategy"] = StepDDPStrategy()
        if trainer.get("enable_model_summary") is None:
            trainer["enable_model_summary"] = False
        trainer["plugins"] = [*_as_list(trainer.get("plugins")), AtomicCheckpointIO()]
        if trainer.get("logger") is None:
            from lightning.pytorch.loggers import TensorBoardLogger

            trainer["logger"] = TensorBoardLogger(run_dir, name="", version="tensorboard")
        callbacks: list[Callback] = [RunProgressBar()] if trainer.get("enable_progress_bar") is not False else []
        if self.config.subcommand == "fit":
            callbacks += [MetricsWriter(run_dir), RunCheckpoint(run_dir, config.checkpoint_every)]
        trainer["callbacks"] = [*_as_list(trainer.get("callbacks")), *callbacks]
        return Trainer(**trainer)

    def before_fit(self) -> None:
        """Write the resolved configuration into the run folder."""
        if self.trainer.is_global_zero:
            self._dump_config()
            run_dir = Path(self.config["fit"].run_dir)
            run_dir.mkdir(parents=True, exist_ok=True)
            (run_dir / "config.yaml").write_text(yaml.safe_dump(self.config_dump, sort_keys=False), encoding="utf-8")


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def fill_in(model: Any, meta: ModelMeta) -> None:
    """Set the model's undetermined arguments; refuse contradictions.

    Args:
        model: Parsed model arguments; changed in place.
        meta: What the network is.

    Raises:
        ValueError: An argument that was given differs.
    """
    saved = {
        "task": meta.task,
        "variant": meta.variant,
        "image_size": meta.image_size_px,
        "class_map": meta.class_map.to_dict(),
    }
    for name, value in saved.items():
        given = model[name]
        if given is not None and given != value:
            raise ValueError(f"model.{name}: the checkpoint has {value}, the command line or configuration {given}")
        model[name] = value


def run(arguments: Sequence[str]) -> int:
    """Run a Trainer command.

    Args:
        arguments: Sub-command and flags.

    Returns:
        Exit code.
    """
    return run_command(lambda: _run(arguments))


def _run(arguments: Sequence[str]) -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=r".*LeafSpec.* is deprecated", module="lightning")
    command, flags = arguments[0], list(arguments[1:])
    given = dict(split_flags(flags))
    ckpt_path, has_config = given.get("ckpt_path"), "config" in given
    if command == "fit" and not has_config:
        source = _run_config(ckpt_path) if ckpt_path else DEFAULT_RECIPE
        flags = ["--config", source, *flags]
    recipe = _recipe_name(given.get("config"), ckpt_path)
    config, flags = resolve_arguments(flags)
    config.pop("ckpt_path", None)
    if command != "fit":
        config = {key: value for key, value in config.items() if key in ("trainer", "model", "data", "seed_everything")}
    config["run_dir"] = given.get("run_dir") or _choose_run_dir(command, recipe, ckpt_path)
    os.environ[RUN_DIR_VARIABLE] = config["run_dir"]
    try:
        _run_cli(command, config, flags)
    finally:
        del os.environ[RUN_DIR_VARIABLE]
    return 0


def _run_cli(command: str, config: Mapping[str, Any], flags: Sequence[str]) -> None:
    cli = RunCLI(
        DetectorModule,
        DetectorDataModule,
        seed_everything_default=0,
        save_config_callback=None,
        parser_kwargs={"parser_mode": "yaml"},
        args=[command, "--config", json.dumps(config), *flags],
    )
    if command != "fit":
        _report(cli, Path(config["run_dir"]))
    else:
        cli.datamodule.write_accounts(Path(config["run_dir"]))


def _run_config(ckpt_path: str) -> str:
    path = Path(ckpt_path).parent.parent / "config.yaml"
    if not path.is_file():
        raise ValueError(f"fit --ckpt_path without --config: expected the run's configuration at {path}, found none")
    return str(path)


def _recipe_name(config: str | None, ckpt_path: str | None) -> str:
    if config is None:
        return Path(ckpt_path).parent.parent.parent.name if ckpt_path else DEFAULT_RECIPE
    return Path(config).stem


def _choose_run_dir(command: str, recipe: str, ckpt_path: str | None) -> str:
    """Return the folder of this run: the checkpoint's own for a resumed fit, else the next free number."""
    if inherited := os.environ.get(RUN_DIR_VARIABLE):
        return inherited
    if command == "fit" and ckpt_path:
        return str(Path(ckpt_path).parent.parent)
    return str(next_run_dir(Path("runs") / (recipe if command == "fit" else command)))


def _report(cli: RunCLI, run_dir: Path) -> None:
    """Write the metrics of a validation or test into its run folder."""
    evaluation = cli.model.evaluation
    if evaluation is None or not cli.trainer.is_global_zero:
        return
    run_dir.mkdir(parents=True, exist_ok=True)
    report: Mapping[str, Any] = evaluation.to_dict()
    (run_dir / "report.json").write_text(json.dumps(report, indent=1, ensure_ascii=False), encoding="utf-8")
    logging.getLogger(__name__).info("report: %s", run_dir / "report.json")
