"""Which files and folders a reader depended on, and one fingerprint of their state on disk."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

_LABEL_SUFFIXES = frozenset({".txt", ".xml", ".json", ".yaml", ".yml", ".names"})


@dataclass(frozen=True)
class Fingerprint:
    """State of a reader's inputs.

    Attributes:
        digest: Equal only if every name, size and time is.
        newest_s: Latest change of any input, seconds since the epoch.
    """

    digest: str
    newest_s: float


@dataclass
class InputTrace:
    """Collects what a reader looked at, also places where it found nothing.

    Attributes:
        folders: Folders whose listing matters: any file that appears, changes or goes may change the result.
        files: Single files.
    """

    folders: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)

    def add_folder(self, folder: Path) -> None:
        """Enter a folder that was or would have been looked into."""
        self.folders.add(str(folder))

    def add_file(self, path: Path) -> None:
        """Enter a file that was or would have been read."""
        self.files.add(str(path))

    def fingerprint(self, image_suffixes: frozenset[str]) -> Fingerprint:
        """Return the present state: names, sizes, modification and change times.

        Args:
            image_suffixes: Lower-case suffixes that count besides those of label files; files without one count too.
        """
        digest, newest_ns = hashlib.sha256(), 0
        for folder in sorted(self.folders):
            lines, changed_ns = _list_folder(folder, image_suffixes | _LABEL_SUFFIXES)
            newest_ns = max(newest_ns, changed_ns)
            digest.update("\n".join([f"folder {folder}", *lines, ""]).encode("utf-8", "surrogatepass"))
        for path in sorted(self.files):
            line, changed_ns = _describe(path)
            newest_ns = max(newest_ns, changed_ns)
            digest.update(f"file {path} {line}\n".encode("utf-8", "surrogatepass"))
        return Fingerprint(digest.hexdigest(), newest_ns / 1e9)


def _list_folder(folder: str, suffixes: frozenset[str]) -> tuple[list[str], int]:
    """Return a line per entry, sorted, and the latest change; sub-folders count by name only."""
    lines, newest_ns = [], 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                suffix = os.path.splitext(entry.name)[1].lower()
                if suffix in suffixes or not suffix or entry.is_dir():
                    line, changed_ns = _describe(entry)
                    lines.append(f"{entry.name} {line}")
                    newest_ns = max(newest_ns, changed_ns)
    except (OSError, ValueError) as error:
        return [type(error).__name__], 0
    return sorted(lines), newest_ns


def _describe(entry: os.DirEntry[str] | str) -> tuple[str, int]:
    try:
        status = entry.stat() if isinstance(entry, os.DirEntry) else os.stat(entry)
    except (OSError, ValueError) as error:
        return type(error).__name__, 0
    if stat.S_ISDIR(status.st_mode):
        return "folder", 0
    times = f"{status.st_mtime_ns} {status.st_ctime_ns}"
    return f"{status.st_size} {times} {status.st_ino}", max(status.st_mtime_ns, status.st_ctime_ns)
