"""What a run folder says about the run: the resolved configuration, and what became of every label row."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from lucid_yolo.engine.datamodule import detector_data

OF_ONE_START = ("ckpt_path", "run_dir")


class RunFiles(Callback):
    """Writes ``config.yaml`` and ``labels.json``, once everything that could refuse the run has passed.

    Args:
        run_dir: Run folder.
        config: Resolved configuration; what belongs to one start of the run alone is left out.
    """

    def __init__(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        self._run_dir = run_dir
        self._config = {key: value for key, value in config.items() if key not in OF_ONE_START}
        self._config |= {"resume_override": False, "model": {**config["model"], "resume_override": False}}

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write both."""
        if trainer.is_global_zero:
            self._run_dir.mkdir(parents=True, exist_ok=True)
            data = {**self._config["data"], "batch_size": detector_data(trainer).batch_size}
            text = yaml.safe_dump({**self._config, "data": data}, sort_keys=False, allow_unicode=True)
            (self._run_dir / "config.yaml").write_text(text, encoding="utf-8")
            detector_data(trainer).write_accounts(self._run_dir)
