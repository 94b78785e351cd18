"""``lucid-yolo fit|validate|test``: LightningCLI over a configuration that is already resolved."""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from jsonargparse.typing import NonNegativeInt
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from lucid_yolo.cli.errors import run_command, suggestions
from lucid_yolo.cli.evaluation_tables import print_tables
from lucid_yolo.cli.help import TrainerHelp
from lucid_yolo.data.dataset import read_class_map
from lucid_yolo.engine.checkpoint import AtomicCheckpointIO, RunCheckpoint
from lucid_yolo.engine.config import DEFAULT_RECIPE, MOVED_FLAGS, REFUSED_FLAGS, resolve_arguments, split_flags
from lucid_yolo.engine.datamodule import DetectorDataModule
from lucid_yolo.engine.finetune import read_start_weights
from lucid_yolo.engine.metrics_writer import MetricsWriter, NonFiniteRunError, RunProgressBar
from lucid_yolo.engine.module import DEFAULT_IMAGE_SIZE_PX, DEFAULT_TASK, DEFAULT_VARIANT, DetectorModule
from lucid_yolo.engine.patience import Patience
from lucid_yolo.engine.pictures import RunPictures, draw_evaluation
from lucid_yolo.engine.recording import RecordingOwner
from lucid_yolo.engine.run_files import RunFiles
from lucid_yolo.engine.run_report import RunReport
from lucid_yolo.engine.strategy import StepDDPStrategy
from lucid_yolo.engine.verdict import SpeedVerdict
from lucid_yolo.runtime.checkpoint_file import ModelMeta, read_checkpoint, read_meta
from lucid_yolo.runtime.json_file import write_json
from lucid_yolo.runtime.report import write_evaluation_report
from lucid_yolo.runtime.run_folder import next_run_folder
from lucid_yolo.structures import ClassMap

COMMANDS = ("fit", "validate", "test")
SPLITS = {"validate": "val", "test": "test"}
SHARED_KEYS = ("trainer", "model", "data", "seed_everything")
DESCRIPTIONS = {
    "fit": "Train a detector. Recipes: detect (default), detect_pretrain, detect_coco. See docs/training.md.",
    "validate": "Score a checkpoint on the validation split, in a run folder.",
    "test": "Score a checkpoint on the test split, in a run folder.",
}
GROUPS = {"trainer": "trainer, as in Lightning", "model": "model", "data": "data"}
RUN_DIR_VARIABLE = "LUCID_YOLO_RUN_DIR"
"""Tells the ranks that a launcher starts which folder the first one chose."""


class RunCLI(LightningCLI):
    """Parses, fills in what the checkpoint knows, and builds the Trainer around a run folder.

    Args:
        arguments: Sub-command and flags.
        saved: What the network in ``--ckpt_path`` is; None without one.
        run_root: Where the numbered folder of this run goes, unless ``--run_dir`` names one.
        callbacks: Besides those of the configuration and of the package.

    Attributes:
        run_dir: Run folder.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        saved: ModelMeta | None,
        run_root: RunRoot,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self._saved, self._run_root, self._given_callbacks = saved, run_root, list(callbacks)
        super().__init__(
            DetectorModule,
            DetectorDataModule,
            seed_everything_default=0,
            save_config_callback=None,
            parser_kwargs={name: self._options(DESCRIPTIONS[name]) for name in COMMANDS} | self._options(""),
            args=list(arguments),
            auto_configure_optimizers=False,
            load_from_checkpoint_support=False,
        )

    @staticmethod
    def _options(description: str) -> dict[str, Any]:
        return {
            "prog": "lucid-yolo",
            "description": description,
            "exit_on_error": False,
            "formatter_class": TrainerHelp,
        }

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """Return the Trainer methods that are commands, with arguments to leave out."""
        left_out = {"model", "train_dataloaders", "val_dataloaders", "dataloaders", "datamodule", "weights_only"}
        return dict.fromkeys(COMMANDS, left_out)

    def add_core_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the arguments of Trainer, model and data, without the Trainer's that are moved or refused."""
        left_out: set[str | int] = {flag.partition(".")[2] for flag in (*MOVED_FLAGS, *REFUSED_FLAGS)}
        parser.add_class_arguments(Trainer, "trainer", instantiate=False, sub_configs=True, skip=left_out)
        parser.add_lightning_class_args(DetectorModule, "model")
        parser.add_lightning_class_args(DetectorDataModule, "data")
        for name, title in GROUPS.items():
            (parser.groups or {})[name].title = title

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the run folder, the resume switch and the one seed."""
        group = parser.add_argument_group("run")
        group.add_argument("--run_dir", type=str | None, default=None, help="run folder; default: runs/<recipe>/<n>")
        group.add_argument("--resume_override", type=bool, default=False, help="resume although the run differs")
        group.add_argument("--checkpoint_every", type=int | None, default=None, help="updates between checkpoints")
        help_text = "epochs without a better validation after which a fit ends; 0 for never"
        group.add_argument("--patience", type=NonNegativeInt, default=0, help=help_text)
        help_text = "metric that chooses best.ckpt and ends the wait; default: the task's, val/map"
        group.add_argument("--monitor", type=str | None, default=None, help=help_text)
        parser.link_arguments("seed_everything", "model.seed")
        parser.link_arguments("seed_everything", "data.seed")
        parser.link_arguments("resume_override", "model.resume_override")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse the arguments that are given, whatever the process was started with."""
        with suggestions(parser):
            self.config = parser.parse_args(args)

    def _parse_ckpt_path(self) -> None:
        """Settle what the network is: from the checkpoint, else from the arguments, the data set and the defaults.

        Raises:
            ValueError: The command line or configuration asks for another network, or a new run for a used folder.
        """
        config = self.config[self.config.subcommand]
        meta = self._saved
        if meta is None:
            classes = read_class_map(config.data.data_root, config.data.source_format)
            class_map = ClassMap.from_dict(config.model.class_map) if config.model.class_map else classes
            meta = ModelMeta(DEFAULT_TASK, DEFAULT_VARIANT, class_map, DEFAULT_IMAGE_SIZE_PX)
            if config.model.weights is not None:
                meta = replace(read_start_weights(config.model.weights).meta, class_map=class_map)
            meta = ModelMeta(
                config.model.task or meta.task,
                config.model.variant or meta.variant,
                class_map,
                config.model.image_size or meta.image_size_px,
            )
        fill_in(config.model, meta)
        self.run_dir = Path(config.run_dir or self._run_root.choose())
        if self.config.subcommand == "fit" and self._saved is None:
            refuse_used(self.run_dir)
        os.environ[RUN_DIR_VARIABLE] = str(self.run_dir)

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Build the Trainer with this package's callbacks, checkpoint files and strategy."""
        flags = {**self._get(self.config_init, "trainer", default={}), **kwargs}
        flags["default_root_dir"] = str(self.run_dir)
        if flags.get("enable_model_summary") is None:
            flags["enable_model_summary"] = False
        if flags.get("num_sanity_val_steps") is None:
            flags["num_sanity_val_steps"] = 0
        flags["plugins"] = [*_as_list(flags.get("plugins")), AtomicCheckpointIO()]
        if flags.get("logger") is None:
            from lightning.pytorch.loggers import TensorBoardLogger

            flags["logger"] = TensorBoardLogger(self.run_dir, name="", version="tensorboard")
        flags["callbacks"] = [*_as_list(flags.get("callbacks")), *self._given_callbacks, *self._callbacks(flags)]
        return build_trainer(flags)

    def _callbacks(self, flags: Mapping[str, Any]) -> list[Callback]:
        """Return the callbacks of this package."""
        callbacks: list[Callback] = [RunProgressBar()] if flags.get("enable_progress_bar") is not False else []
        if self.config.subcommand != "fit":
            return callbacks
        self._dump_config()
        config = self.config["fit"]
        callbacks += [RecordingOwner(), SpeedVerdict(), RunFiles(self.run_dir, self.config_dump)]
        callbacks += [MetricsWriter(self.run_dir), RunPictures(self.run_dir), RunReport(self.run_dir)]
        if flags.get("enable_checkpointing") is not False:
            callbacks.append(RunCheckpoint(self.run_dir, config.checkpoint_every, config.monitor))
        return [*callbacks, Patience(config.patience, config.monitor)] if config.patience else callbacks


class UnstartedCLI(RunCLI):
    """Builds Trainer, module and data as a fit does, and starts nothing."""

    def _run_subcommand(self, subcommand: str) -> None:
        """Leave everything unstarted."""

    def _callbacks(self, flags: Mapping[str, Any]) -> list[Callback]:  # noqa: ARG002
        self._dump_config()
        return []


def build_trainer(flags: Mapping[str, Any]) -> Trainer:
    """Build a Trainer whose strategy leaves the exchange between devices to the training step.

    Args:
        flags: Arguments of the Trainer.

    Raises:
        ValueError: Another strategy than ``auto`` or ``ddp``, or devices that are not there.
    """
    strategy = flags.get("strategy", "auto")
    if strategy == "ddp":
        return _trainer({**flags, "strategy": StepDDPStrategy()})
    if isinstance(strategy, str) and strategy != "auto":
        raise ValueError(f"--trainer.strategy: expected auto or ddp, found {strategy!r}")
    trainer = _trainer(flags)
    if trainer.world_size > 1 and strategy == "auto":
        return _trainer({**flags, "strategy": StepDDPStrategy()})
    return trainer


def _trainer(flags: Mapping[str, Any]) -> Trainer:
    try:
        return Trainer(**flags)
    except MisconfigurationException as error:
        raise ValueError(f"trainer: {' '.join(str(error).split())}") from error


@dataclass(frozen=True)
class RunRoot:
    """Where the folder of a run comes from.

    Attributes:
        parent: Folder of numbered runs.
        resumed: Folder of the run that is continued; None for a new one.
    """

    parent: Path
    resumed: Path | None = None

    def choose(self) -> Path:
        """Return the folder: the one that the first rank chose, the resumed run's, or a new one, which is made."""
        if inherited := os.environ.get(RUN_DIR_VARIABLE):
            return Path(inherited)
        return self.resumed or next_run_folder(self.parent)


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


def refuse_used(run_dir: Path) -> None:
    """Refuse to begin a run where another one has left its checkpoints.

    Raises:
        ValueError: The folder holds a run.
    """
    last = run_dir / "checkpoints" / "last.ckpt"
    if last.exists():
        raise ValueError(
            f"run_dir: {run_dir} holds a run; continue it with --ckpt_path {last} or choose another folder"
        )


def run(arguments: Sequence[str]) -> int:
    """Run a Trainer command.

    Args:
        arguments: Sub-command and flags.

    Returns:
        Exit code: 0 done, 1 for a run that stopped because its updates were not finite.
    """
    try:
        return run_command(lambda: _run(arguments))
    except NonFiniteRunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def build_unstarted(flags: Sequence[str]) -> UnstartedCLI:
    """Return what ``lucid-yolo fit`` with these flags would start; no run folder is made.

    Args:
        flags: Flags of the command.
    """
    _quiet_lightning()
    arguments, saved, run_root = _resolve(["fit", *flags])
    try:
        return UnstartedCLI(arguments, saved, RunRoot(run_root.parent, resumed=run_root.parent))
    finally:
        os.environ.pop(RUN_DIR_VARIABLE, None)


def _quiet_lightning() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=r".*LeafSpec.* is deprecated", module="lightning")


def start(arguments: Sequence[str], callbacks: Sequence[Callback] = ()) -> RunCLI:
    """Run a Trainer command to its end and return what it was built of.

    Args:
        arguments: Sub-command and flags.
        callbacks: Besides those of the configuration and of the package.

    Raises:
        ArgumentError: A flag is unknown or has a wrong value.
        ValueError: The configuration, the data or the checkpoint cannot be used.
    """
    _quiet_lightning()
    try:
        return RunCLI(*_resolve(arguments), callbacks)
    finally:
        _leave_run_dir()


def _run(arguments: Sequence[str]) -> int:
    cli, command = start(arguments), arguments[0]
    if cli.trainer.is_global_zero:
        if command != "fit":
            _report(cli, command)
        print(f"written to {cli.run_dir}")
    return 0


def _resolve(arguments: Sequence[str]) -> tuple[list[str], ModelMeta | None, RunRoot]:
    """Return resolved arguments, what the network of the checkpoint is, and where the run's folder comes from."""
    command, flags = arguments[0], list(arguments[1:])
    given = dict(split_flags(flags))
    ckpt_path = given.get("ckpt_path")
    saved = read_meta(read_checkpoint(ckpt_path)) if ckpt_path else None
    if command == "fit" and "config" not in given:
        flags = ["--config", _run_config(ckpt_path) if ckpt_path else DEFAULT_RECIPE, *flags]
    config, rest = resolve_arguments(flags, saved.variant if saved else None)
    if weights := _start_weights(command, given, config):
        config, rest = resolve_arguments(flags, read_start_weights(weights).meta.variant)
    if command != "fit":
        if not ckpt_path and not {"help", "print_config"} & given.keys():
            raise ValueError(f"{command}: missing --ckpt_path, the checkpoint to score; --help lists the arguments")
        config = {key: config[key] for key in SHARED_KEYS if key in config}
        config["model"] = {**(config.get("model") or {}), "weights": None}
    config.pop("ckpt_path", None)
    return [command, "--config", json.dumps(config), *rest], saved, _run_root(command, given.get("config"), ckpt_path)


def _start_weights(command: str, given: Mapping[str, str | None], config: Mapping[str, Any]) -> str | None:
    """Return the file that a new run starts from, by the command line, else by the configuration.

    Raises:
        ValueError: Weights for something else than a new run.
    """
    is_given, ckpt_path = "model.weights" in given, given.get("ckpt_path")
    weights = (
        yaml.safe_load(given["model.weights"] or "null") if is_given else (config.get("model") or {}).get("weights")
    )
    if is_given and weights and command != "fit":
        raise ValueError(f"--model.weights: only a fit starts from weights; {command} takes --ckpt_path")
    if is_given and weights and ckpt_path:
        raise ValueError(
            f"--model.weights {weights} starts a run, --ckpt_path {ckpt_path} continues one; give one of them"
        )
    return weights if command == "fit" and not ckpt_path else None


def _leave_run_dir() -> None:
    """Forget the folder of the run; take it away again if the run ended before anything was written."""
    run_dir = os.environ.pop(RUN_DIR_VARIABLE, None)
    if run_dir is not None:
        with suppress(OSError):
            Path(run_dir).rmdir()


def _run_config(ckpt_path: str) -> str:
    path = Path(ckpt_path).parent.parent / "config.yaml"
    if not path.is_file():
        raise ValueError(f"fit --ckpt_path without --config: expected the run's configuration at {path}, found none")
    return str(path)


def _run_root(command: str, config: str | None, ckpt_path: str | None) -> RunRoot:
    """Return ``runs/<recipe>`` for a fit, the checkpoint's own folder for a resumed one, else ``runs/<command>``."""
    if command != "fit":
        return RunRoot(Path("runs", command))
    recipe = DEFAULT_RECIPE if config is None else Path(config).stem
    return RunRoot(Path("runs", recipe), Path(ckpt_path).parent.parent if ckpt_path else None)


def _report(cli: RunCLI, command: str) -> None:
    """Print and write the metrics of a validation or test, with pictures, into its run folder."""
    evaluation, meta = cli.model.evaluation, cli.model.meta
    if evaluation is None:
        return
    config, name = cli.config[command], SPLITS[command]
    print_tables(evaluation, f"{config.ckpt_path} on {config.data.data_root}, {name}")
    header = {"ckpt_path": config.ckpt_path, "data_root": config.data.data_root, "split": name}
    content = {**header, "model": meta.to_dict(), **evaluation.report()}
    write_json(cli.run_dir / "report.json", content)
    split = cli.datamodule.splits[name]
    plots = draw_evaluation(evaluation, split, meta.image_size_px, cli.run_dir, name)
    device = str(cli.trainer.strategy.root_device)
    write_evaluation_report(cli.run_dir / "report.html", evaluation, split, meta, header, device, plots=plots)
