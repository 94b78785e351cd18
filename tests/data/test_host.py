import os
from pathlib import Path

import pytest

from lucid_yolo.data.host import available_ram_bytes, usable_cores

GIB = 2**30
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "limit", "reason"),
    [
        ({}, None, "no cgroups"),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000"}, None, "no quota"),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000"}, 1, "container, version 2"),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000"}, 1, "less than a core"),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "100000 100000"}, 1, "limit of a parent")
        if CORES > 1
        else ({}, None, "one core only"),
        (
            {
                "proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/x\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "100000",
                "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000",
            },
            1,
            "version 1",
        ),
        (
            {
                "proc/self/cgroup": "3:cpu:/x\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            None,
            "version 1 without a quota",
        ),
    ],
)
def test_cores(tmp_path: Path, files: dict[str, str], limit: int | None, reason: str) -> None:
    (tmp_path / "sys/fs/cgroup/a/b").mkdir(parents=True)
    expected = CORES if limit is None else min(limit, CORES)
    assert usable_cores(machine(tmp_path, files)) == expected, reason


@pytest.mark.parametrize(
    ("files", "expected", "reason"),
    [
        ({}, None, "the system does not tell"),
        ({"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:   1048576 kB\n"}, GIB, "no cgroups"),
        (
            {
                "proc/meminfo": "MemAvailable: 8388608 kB\n",
                "proc/self/cgroup": "0::/job\n",
                "sys/fs/cgroup/job/memory.max": str(4 * GIB),
                "sys/fs/cgroup/job/memory.current": str(3 * GIB),
                "sys/fs/cgroup/job/memory.stat": f"anon 5\ninactive_file {2 * GIB}\n",
            },
            3 * GIB,
            "version 2; the page cache gives way",
        ),
        (
            {
                "proc/meminfo": "MemAvailable: 1048576 kB\n",
                "proc/self/cgroup": "0::/\n",
                "sys/fs/cgroup/memory.max": "max",
                "sys/fs/cgroup/memory.current": "5",
            },
            GIB,
            "no limit",
        ),
        (
            {
                "proc/meminfo": "MemAvailable: 8388608 kB\n",
                "proc/self/cgroup": "4:memory:/docker/abc\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": str(2 * GIB),
                "sys/fs/cgroup/memory/memory.usage_in_bytes": str(GIB),
            },
            GIB,
            "version 1 in a container",
        ),
        (
            {
                "proc/self/cgroup": "0::/\n",
                "sys/fs/cgroup/memory.max": "5",
                "sys/fs/cgroup/memory.current": "9",
            },
            0,
            "over the limit",
        ),
    ],
)
def test_memory(tmp_path: Path, files: dict[str, str], expected: int | None, reason: str) -> None:
    assert available_ram_bytes(machine(tmp_path, files)) == expected, reason


def test_this_machine_tells_something() -> None:
    assert 1 <= usable_cores() <= CORES
    available = available_ram_bytes()
    assert available is None or available > 0
