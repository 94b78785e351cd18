"""Numbered folders for the files of a run."""

from __future__ import annotations

from pathlib import Path


def next_run_folder(root: str | Path) -> Path:
    """Make and return ``root/<n>`` with the number after the highest there is, beginning at 1.

    Args:
        root: Parent of the numbered folders; missing folders are made. Two processes never get the same number.
    """
    root = Path(root)
    root.mkdir(parents=True, exist_ok=True)
    number = max((int(entry.name) for entry in root.iterdir() if entry.name.isdecimal()), default=0)
    while True:
        number += 1
        folder = root / str(number)
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
