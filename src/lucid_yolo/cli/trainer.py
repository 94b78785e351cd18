"""``lucid-yolo fit|validate|test``: LightningCLI over a configuration that is already resolved."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jsonargparse.typing import NonNegativeInt
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from lucid_yolo.cli.errors import run_command, suggestions
from lucid_yolo.cli.evaluation_tables import print_tables
from lucid_yolo.cli.help import TrainerHelp
from lucid_yolo.cli.run_arguments import resolve_command, settle_network
from lucid_yolo.cli.run_root import RUN_DIR_VARIABLE, RunRoot, leave_run_dir, refuse_used
from lucid_yolo.engine.checkpoint import AtomicCheckpointIO, RunCheckpoint
from lucid_yolo.engine.config import MOVED_FLAGS, REFUSED_FLAGS
from lucid_yolo.engine.datamodule import DetectorDataModule
from lucid_yolo.engine.metrics_writer import MetricsWriter, NonFiniteRunError, RunProgressBar
from lucid_yolo.engine.module import DetectorModule
from lucid_yolo.engine.patience import Patience
from lucid_yolo.engine.pictures import RunPictures, draw_evaluation
from lucid_yolo.engine.recording import RecordingOwner
from lucid_yolo.engine.run_files import RunFiles
from lucid_yolo.engine.run_report import RunReport
from lucid_yolo.engine.strategy import StepDDPStrategy
from lucid_yolo.engine.verdict import SpeedVerdict
from lucid_yolo.runtime.checkpoint_file import ModelMeta
from lucid_yolo.runtime.json_file import write_json
from lucid_yolo.runtime.report import write_evaluation_report

COMMANDS = ("fit", "validate", "test")
SPLITS = {"validate": "val", "test": "test"}
DESCRIPTIONS = {
    "fit": "Train a detector. Recipes: detect (default), detect_pretrain, detect_coco. See docs/training.md.",
    "validate": "Score a checkpoint on the validation split, in a run folder.",
    "test": "Score a checkpoint on the test split, in a run folder.",
}
GROUPS = {"trainer": "trainer, as in Lightning", "model": "model", "data": "data"}


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
        """Settle what the network is and where the run's folder lies.

        Raises:
            ValueError: The command line or configuration asks for another network, or a new run for a used folder.
        """
        config = self.config[self.config.subcommand]
        settle_network(config, self._saved)
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


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


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
    arguments, saved, run_root = resolve_command(["fit", *flags])
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
        return RunCLI(*resolve_command(arguments), callbacks)
    finally:
        leave_run_dir()


def _run(arguments: Sequence[str]) -> int:
    cli, command = start(arguments), arguments[0]
    if cli.trainer.is_global_zero:
        if command != "fit":
            _report(cli, command)
        print(f"written to {cli.run_dir}")
    return 0


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
