"""Where the folder of a run lies: chosen once, known to every rank, never one that holds another run."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lucid_yolo.runtime.run_folder import next_run_folder

RUN_DIR_VARIABLE = "LUCID_YOLO_RUN_DIR"
"""Tells the ranks that a launcher starts which folder the first one chose."""


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


def leave_run_dir() -> None:
    """Forget the folder of the run; take it away again if the run ended before anything was written."""
    run_dir = os.environ.pop(RUN_DIR_VARIABLE, None)
    if run_dir is not None:
        with suppress(OSError):
            Path(run_dir).rmdir()
