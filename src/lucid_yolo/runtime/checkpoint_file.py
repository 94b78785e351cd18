"""Checkpoint files: what they hold, written so that a crash leaves a whole one."""

from __future__ import annotations

import logging
import os
import pickle
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch

from lucid_yolo.models.network import Network
from lucid_yolo.models.scales import Variant
from lucid_yolo.structures import ClassMap
from lucid_yolo.tasks import TASKS, Task

SECTION = "lucid_yolo"
NETWORK_PREFIX = "network."
FORMAT = 1
COPY_BYTES = 1 << 22

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ModelMeta:
    """What a network is; how it is run is not part of it.

    Attributes:
        task: Task name.
        variant: Scale.
        class_map: Classes it predicts.
        image_size_px: Side of the square input it was trained at.
    """

    task: str
    variant: Variant
    class_map: ClassMap
    image_size_px: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "task": self.task,
            "variant": self.variant,
            "class_map": self.class_map.to_dict(),
            "image_size_px": self.image_size_px,
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> ModelMeta:
        """Invert :meth:`to_dict`."""
        return cls(state["task"], state["variant"], ClassMap.from_dict(state["class_map"]), int(state["image_size_px"]))

    def build_task(self, **config: Any) -> Task:
        """Return the task for this many classes.

        Args:
            **config: The task's constants, such as loss gains.

        Raises:
            ValueError: Unknown task.
        """
        if self.task not in TASKS:
            raise ValueError(f"task: expected one of {', '.join(TASKS)}, found {self.task!r}")
        return TASKS[self.task](len(self.class_map), **config)


def previous_path(path: Path) -> Path:
    """Return where the file that ``path`` replaced is kept."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def write_checkpoint(checkpoint: Mapping[str, Any], path: Path) -> None:
    """Write ``path`` so that at any moment it, or the file it replaced, is whole.

    Args:
        checkpoint: Plain values and tensors only.
        path: Destination; what stood there is kept beside it as ``<stem>.previous<suffix>``.
    """
    with _replacing(path) as file:
        torch.save(dict(checkpoint), file)


def copy_checkpoint(source: Path, path: Path) -> None:
    """Copy a checkpoint to ``path`` with the promises of :func:`write_checkpoint`; cheaper than writing it again."""
    with source.open("rb") as original, _replacing(path) as file:
        shutil.copyfileobj(original, file, COPY_BYTES)


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that becomes ``path`` when it is complete and on the disk; the one before it is kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    if path.exists():
        os.replace(path, previous_path(path))
    os.replace(temporary, path)


UNREADABLE = (OSError, RuntimeError, EOFError, KeyError, IndexError, UnicodeDecodeError, pickle.UnpicklingError)
"""What reading a torn or foreign file raises: the reader goes by its first bytes, whatever they are."""


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Read a checkpoint onto the CPU; nothing in it is executed.

    A torn file falls back to the one it replaced, and a warning says so.

    Raises:
        FileNotFoundError: No such file.
        ValueError: The file, and the one before it, cannot be read or are no checkpoints of this package.
    """
    path = Path(path)
    previous = previous_path(path)
    if not path.exists() and not previous.exists():
        raise FileNotFoundError(f"checkpoint: found no file {path}")
    try:
        return _load(path)
    except UNREADABLE as error:
        if not previous.exists():
            raise ValueError(f"checkpoint {path} cannot be read ({type(error).__name__})") from error
        _log.warning("%s cannot be read (%s); using the one before it, %s", path, type(error).__name__, previous)
        return _load(previous)


def _load(path: Path) -> dict[str, Any]:
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(checkpoint, dict) or SECTION not in checkpoint:
        raise ValueError(f"checkpoint {path}: expected a file written by lucid-yolo, found none of its sections")
    return checkpoint


def read_meta(checkpoint: Mapping[str, Any]) -> ModelMeta:
    """Return what the network in a checkpoint is."""
    return ModelMeta.from_dict(checkpoint[SECTION]["meta"])


def build_network(checkpoint: Mapping[str, Any], is_averaged: bool = True) -> Network:
    """Build the network of a checkpoint, in evaluation mode.

    Args:
        checkpoint: As returned by :func:`read_checkpoint`.
        is_averaged: Take the averaged parameters, not the raw ones.
    """
    meta = read_meta(checkpoint)
    network = Network(meta.variant, meta.build_task().stems)
    state = {
        key.removeprefix(NETWORK_PREFIX): value
        for key, value in checkpoint["state_dict"].items()
        if key.startswith(NETWORK_PREFIX)
    }
    if is_averaged:
        state |= checkpoint[SECTION]["train_state"]["ema"]
    network.load_state_dict(state)
    return network.eval()
