"""Exported files of the untrained checkpoint, written once per test session and shared by its workers."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lucid_yolo.export.formats import write
from lucid_yolo.export.pictures import draw_pictures
from lucid_yolo.runtime.deployed_meta import DeployedMeta
from lucid_yolo.runtime.detector import read_network
from samples import write_untrained


def shared_file(tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return the file of that name; the first test that asks makes it."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    path = folder / "shared" / name
    path.parent.mkdir(exist_ok=True)
    with path.with_name(f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            make(path)
    return path


def untrained_ckpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkpoint for pictures of drawn shapes, where rounding errors grow little on their way."""

    def make(path: Path) -> None:
        images = torch.stack([picture.canvas for picture in draw_pictures((160, 160))]).float() / 255
        write_untrained(path, class_std=0.25, box_std=0.03, images=images)

    return shared_file(tmp_path_factory, "last.ckpt", make)


def export_untrained(
    tmp_path_factory: pytest.TempPathFactory,
    format_name: str,
    file_name: str,
    *,
    size_px: tuple[int, int] = (64, 64),
    has_dynamic_size: bool = False,
    is_half: bool = False,
) -> Path:
    """Return the untrained checkpoint in another format."""
    network, model = read_network(untrained_ckpt(tmp_path_factory))
    meta = DeployedMeta(model, (0, 0), has_dynamic_size, is_half=is_half).at_size(*size_px)
    return shared_file(tmp_path_factory, file_name, lambda path: write(format_name, network, meta, path))


def dynamic_onnx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_untrained(tmp_path_factory, "onnx", "dynamic.onnx", has_dynamic_size=True)
