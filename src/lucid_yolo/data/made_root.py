"""Data folders that this package writes itself: whole or not at all, and never over somebody's files."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

MARKER = ".lucid_demo.json"


def make_root(data_root: str | Path, recipe: Mapping[str, Any], write: Callable[[Path], None]) -> bool:
    """Let ``write`` fill a temporary folder, then move it to ``data_root`` in one step.

    Args:
        data_root: Folder to make; it may exist only if it is empty, or was made here by the same recipe.
        recipe: Plain values that name what is written; equal recipes are equal contents.
        write: Writes everything below the folder it is given.

    Returns:
        False when the folder was there already and nothing was written.

    Raises:
        FileExistsError: ``data_root`` holds something else.
    """
    root = Path(os.path.abspath(data_root))
    if _holds(root, recipe):
        return False

    def write_marked(building: Path) -> None:
        write(building)
        (building / MARKER).write_text(json.dumps(dict(recipe), indent=2) + "\n", encoding="utf-8")

    build_root(root, write_marked)
    return True


def build_root(root: str | Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a temporary folder, then move it to ``root`` in one step.

    Args:
        root: Folder to make; new or empty.
        write: Writes everything below the folder it is given.

    Raises:
        FileExistsError: ``root`` holds something.
    """
    root = Path(os.path.abspath(root))
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise FileExistsError(f"expected a new or empty folder to write to, found {root} in use; choose another one")
    root.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{root.name}-", dir=root.parent))
    try:
        write(building)
        building.chmod(0o755)
        if root.is_dir():
            root.rmdir()
        building.rename(root)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def write_yolo_yaml(root: Path, names: tuple[str, ...]) -> None:
    """Write the data YAML of a root with ``images/{train,val}``."""
    lines = ["train: images/train", "val: images/val", "names:", *(f"  {i}: {name}" for i, name in enumerate(names))]
    (root / "data.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def count_split(data_root: str | Path, split: str) -> tuple[int, int]:
    """Return (images, label rows) of a split of a root written here."""
    root = Path(data_root)
    labels = (path.read_text(encoding="utf-8") for path in (root / "labels" / split).glob("*.txt"))
    return len(list((root / "images" / split).iterdir())), sum(text.count("\n") for text in labels)


def _holds(root: Path, recipe: Mapping[str, Any]) -> bool:
    """Tell whether ``root`` was made by ``recipe`` already; an absent or empty folder was not."""
    if not root.exists() or (root.is_dir() and not any(root.iterdir())):
        return False
    marker = root / MARKER
    if not marker.is_file():
        raise FileExistsError(
            f"data_root: expected a new or empty folder, found {root} with other files; choose another one"
        )
    found = json.loads(marker.read_text(encoding="utf-8"))
    if found != json.loads(json.dumps(dict(recipe))):
        raise FileExistsError(
            f"data_root: {root} holds a demo set made with {found}, not {dict(recipe)}; "
            "delete it or choose another folder"
        )
    return True
