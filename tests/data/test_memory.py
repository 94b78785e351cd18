"""Memory of whole process trees: one copy of the cache for all, and no growth over epochs."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs /proc")]

SIDE, NUM_IMAGES = 640, 300
CACHE_BYTES = SIDE * SIDE * 3 * NUM_IMAGES

RANK = """
import sys
import numpy as np
from lucid_yolo.data.loader import TrainLoader
from lucid_yolo.data.makers import PixelMaker
from lucid_yolo.data.plan import AugmentPolicy, TrainPlanner
from lucid_yolo.data.sources import PreparedSource
from lucid_yolo.structures import ImageRecord

def main():
    folder, cache = sys.argv[1:3]
    num_workers, world_size, rank, num_epochs, leak_bytes = map(int, sys.argv[3:])
    boxes, labels, flags, areas = np.empty((0, 4)), np.empty(0, np.int64), np.empty(0, bool), np.empty(0)
    records = [ImageRecord(f"{folder}/{i}.jpg", i, 640, 640, boxes, labels, flags, areas, 0) for i in range(300)]
    planner = TrainPlanner(records, 320, AugmentPolicy(), 5, 0, 1000, world_size=world_size, rank=rank)
    loader = TrainLoader(
        planner, PixelMaker(records, PreparedSource(records, 320, cache=cache)), num_workers=num_workers
    )
    leak = []
    for epoch in range(num_epochs):
        for batch in loader:
            leak.append(np.ones(leak_bytes, np.uint8))
        print("epoch", flush=True)
        sys.stdin.readline()

if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("images")
    image = cv2.resize(np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8), (SIDE, SIDE))
    for index in range(NUM_IMAGES):
        cv2.imwrite(str(path / f"{index}.jpg"), np.roll(image, index, 1))
    return path


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "rank.py"
    path.write_text(RANK)
    return path


# The allocator gives back what is freed at once: what is counted is what is held, not what once was.
HELD_ONLY = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}


def start(
    script: Path,
    folder: Path,
    cache: str,
    *,
    num_workers: int,
    world_size: int,
    rank: int,
    num_epochs: int,
    leak_bytes: int = 0,
) -> subprocess.Popen[str]:
    arguments = [script, folder, cache, num_workers, world_size, rank, num_epochs, leak_bytes]
    command = [sys.executable, *map(str, arguments)]
    environment = {**os.environ, **HELD_ONLY}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def await_epoch(rank: subprocess.Popen[str]) -> None:
    assert rank.stdout is not None
    assert rank.stdout.readline() == "epoch\n"


def tree(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            yield from tree(int(child))


def pss_bytes(*pids: int) -> int:
    """Proportional memory of process trees without mapped libraries, whose share other programs change."""
    total = 0
    for pid in {member for root in pids for member in tree(root)}:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                total += int(line.split()[1]) * 1024
    return total


def pss_of_two_ranks(script: Path, folder: Path, cache: str) -> int:
    ranks = [start(script, folder, cache, num_workers=4, world_size=2, rank=rank, num_epochs=2) for rank in range(2)]
    for rank in ranks:
        await_epoch(rank)
    time.sleep(2)
    found = pss_bytes(*(rank.pid for rank in ranks))
    for rank in ranks:
        rank.communicate("\n\n", timeout=120)
    return found


def test_two_ranks_with_four_workers_each_hold_one_copy(script: Path, folder: Path) -> None:
    plain = pss_of_two_ranks(script, folder, "none")
    cached = pss_of_two_ranks(script, folder, "ram")
    assert 0.5 * CACHE_BYTES < cached - plain <= 1.15 * CACHE_BYTES


def sizes_per_epoch(script: Path, folder: Path, cache: str, leak_bytes: int = 0) -> list[int]:
    sizes = []
    with start(
        script, folder, cache, num_workers=2, world_size=1, rank=0, num_epochs=20, leak_bytes=leak_bytes
    ) as rank:
        assert rank.stdin is not None
        for _ in range(20):
            await_epoch(rank)
            sizes.append(pss_bytes(rank.pid))
            rank.stdin.write("\n")
            rank.stdin.flush()
    assert rank.returncode == 0
    return sizes


def growth(sizes: list[int]) -> float:
    return float(np.median(sizes[15:]) / np.median(sizes[5:10]) - 1)


@pytest.mark.parametrize("cache", ["none", "ram"])
def test_memory_is_flat_over_twenty_epochs(script: Path, folder: Path, cache: str) -> None:
    sizes = sizes_per_epoch(script, folder, cache)
    assert growth(sizes) <= 0.02, [size >> 20 for size in sizes]


def test_a_leak_of_a_tenth_of_an_image_per_batch_is_seen(script: Path, folder: Path) -> None:
    assert growth(sizes_per_epoch(script, folder, "ram", leak_bytes=SIDE * SIDE * 3 // 10)) > 0.02
