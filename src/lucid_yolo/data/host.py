"""What this process may use of the machine: cores and memory, container limits included."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/")
SHARED_MEMORY_DIR = Path("/dev/shm")


def usable_cores(root: Path = _ROOT) -> int:
    """Return the cores that this process may use: its affinity, cut down to the CPU quota of its cgroups; at least 1.

    Args:
        root: Folder that stands for ``/``.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([cores, *(int(quota) for quota in _cpu_quotas(root))]))


def available_ram_bytes(root: Path = _ROOT) -> int | None:
    """Return the bytes of RAM that can still be used without swapping; None where the system does not tell.

    Args:
        root: Folder that stands for ``/``.
    """
    free = [_meminfo_available(root), *_free_in_cgroups(root)]
    return min((max(value, 0) for value in free if value is not None), default=None)


def free_bytes(folder: Path) -> int:
    """Return the bytes that can still be written to a file system."""
    return shutil.disk_usage(folder).free


def _meminfo_available(root: Path) -> int | None:
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _cpu_quotas(root: Path) -> Iterator[float]:
    for folder in _cgroup_folders(root, "cpu"):
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        quota, period = quota or _read(folder / "cpu.cfs_quota_us"), period or _read(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):
            yield int(quota) / int(period)


def _free_in_cgroups(root: Path) -> Iterator[int]:
    names = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
    for folder in _cgroup_folders(root, "memory"):
        for limit_name, usage_name in names:
            limit, usage = _read(folder / limit_name), _read(folder / usage_name)
            if limit.isdigit() and usage.isdigit():
                # The page cache counts as used, but gives way.
                yield int(limit) - int(usage) + _reclaimable(folder)


def _reclaimable(folder: Path) -> int:
    values = dict(line.split()[:2] for line in _read(folder / "memory.stat").splitlines() if " " in line)
    return int(values.get("total_inactive_file", values.get("inactive_file", 0)))


def _cgroup_folders(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folder of this process's cgroup and those above it, in both versions' layouts."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / (controller if controllers else "")
        # Inside a container the path may be the host's, which is not mounted: then only the top exists.
        folder = top / path.lstrip("/")
        yield top
        while folder != top and top in folder.parents:
            if folder.is_dir():
                yield folder
            folder = folder.parent


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
