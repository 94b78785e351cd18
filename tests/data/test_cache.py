import gc
import logging
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from lucid_yolo.data import cache as cache_module
from lucid_yolo.data import host
from lucid_yolo.data.cache import CacheKind, default_cache_dir
from lucid_yolo.data.sources import PreparedSource
from lucid_yolo.structures import ImageRecord

SIZE = 48
KINDS: list[tuple[CacheKind, bool]] = [("ram", False), ("ram", True), ("disk", False), ("disk", True), ("none", True)]


@pytest.fixture(autouse=True)
def shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test instead of the machine's shared memory and cache folder."""
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.setattr(host, "SHARED_MEMORY_DIR", folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return folder


@pytest.fixture
def records(tmp_path: Path) -> list[ImageRecord]:
    rng, made = np.random.default_rng(0), []
    (tmp_path / "set").mkdir()
    for index, (height, width) in enumerate([(48, 48), (30, 90), (90, 31), (20, 10), (1, 60)]):
        path = tmp_path / "set" / f"{index}.png"
        cv2.imwrite(str(path), rng.integers(0, 256, (height, width, 3), np.uint8))
        empty = np.empty(0)
        flags, labels = np.empty(0, bool), np.empty(0, np.int64)
        made.append(ImageRecord(str(path), index, height, width, np.empty((0, 4)), labels, flags, empty, 0))
    return made


def files(folder: Path, suffix: str = ".images") -> list[Path]:
    return sorted(folder.glob(f"*{suffix}"))


@pytest.mark.parametrize(("kind", "is_prepared"), KINDS)
def test_no_cache_changes_a_pixel(records: list[ImageRecord], kind: CacheKind, is_prepared: bool) -> None:
    plain, cached = (
        PreparedSource(records, SIZE),
        PreparedSource(records, SIZE, cache=kind, is_cache_prepared=is_prepared),
    )
    copied = pickle.loads(pickle.dumps(cached))
    for path in Path(records[0].path).parent.iterdir():
        assert path.stat().st_size  # the originals stay, but are not read again: see the next test
    for index in range(len(records)):
        np.testing.assert_array_equal(cached(index), plain(index))
        np.testing.assert_array_equal(copied(index), plain(index))


@pytest.mark.parametrize(("kind", "is_prepared"), KINDS)
def test_cached_images_are_not_read_again(records: list[ImageRecord], kind: CacheKind, is_prepared: bool) -> None:
    expected = [PreparedSource(records, SIZE)(index) for index in range(len(records))]
    cached = PreparedSource(records, SIZE, cache=kind, is_cache_prepared=is_prepared)
    for record in records:
        Path(record.path).unlink()
    for index, image in enumerate(expected):
        np.testing.assert_array_equal(cached(index), image)


def test_cached_images_cannot_be_written(records: list[ImageRecord]) -> None:
    image = PreparedSource(records, SIZE, cache="ram", is_cache_prepared=True)(0)
    with pytest.raises(ValueError, match="read-only"):
        image[0, 0] = 1


def test_a_ram_cache_is_shared_and_goes_with_its_last_user(records: list[ImageRecord], shared_memory: Path) -> None:
    first = PreparedSource(records, SIZE, cache="ram")
    (path,) = files(shared_memory)
    inode, num_bytes = path.stat().st_ino, path.stat().st_size
    assert num_bytes < sum(r.height_src * r.width_src * 3 for r in records) + 24 * len(records) + 4096
    second = PreparedSource(records, SIZE, cache="ram")
    assert [p.stat().st_ino for p in files(shared_memory)] == [inode]
    image = second(0)
    first.close()
    first.close()
    assert files(shared_memory) == [path]
    second.close()
    assert list(shared_memory.iterdir()) == []
    np.testing.assert_array_equal(image, PreparedSource(records, SIZE)(0))


def test_a_forgotten_ram_cache_goes_too(records: list[ImageRecord], shared_memory: Path) -> None:
    source = PreparedSource(records, SIZE, cache="ram")
    assert files(shared_memory)
    del source
    gc.collect()
    assert list(shared_memory.iterdir()) == []


def test_what_a_killed_run_left_is_removed(
    records: list[ImageRecord], shared_memory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = PreparedSource(records[:2], SIZE, cache="ram")
    (used,) = files(shared_memory)
    for name in ("stale.images", "stale.lock", "half.partial", "half.lock"):
        (shared_memory / f"lucid-yolo-{os.getuid()}-{name}").write_bytes(b"x")
    (shared_memory / "another program").write_bytes(b"x")
    with caplog.at_level(logging.INFO):
        other = PreparedSource(records, SIZE, cache="ram")
    assert "stale.images" in caplog.text
    assert len(files(shared_memory)) == 2
    assert used in files(shared_memory)
    assert not files(shared_memory, ".partial")
    source.close()
    other.close()
    assert [path.name for path in shared_memory.iterdir()] == ["another program"]


def test_a_disk_cache_stays_and_is_found_again(
    records: list[ImageRecord], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    PreparedSource(records, SIZE, cache="disk").close()
    (path,) = files(default_cache_dir())
    assert tmp_path / "home" in path.parents
    caplog.set_level(logging.INFO)
    again = PreparedSource(records, SIZE, cache="disk", cache_dir=default_cache_dir())
    assert "caching" not in caplog.text
    np.testing.assert_array_equal(again(1), PreparedSource(records, SIZE)(1))
    assert sorted(p.name for p in (tmp_path / "set").iterdir()) == [f"{i}.png" for i in range(5)]


@pytest.mark.parametrize("change", ["time", "content", "image size", "form", "images"])
def test_another_content_is_another_cache(records: list[ImageRecord], tmp_path: Path, change: str) -> None:
    folder, size, is_prepared = tmp_path / "caches", SIZE, True
    PreparedSource(records, size, cache="disk", is_cache_prepared=True, cache_dir=folder)
    if change == "time":
        os.utime(records[2].path, ns=(1, 1))
    elif change == "content":
        cv2.imwrite(records[0].path, np.zeros((48, 48, 3), np.uint8))
    elif change == "image size":
        size = 32
    elif change == "form":
        is_prepared = False
    else:
        records = records[1:]
    cached = PreparedSource(records, size, cache="disk", is_cache_prepared=is_prepared, cache_dir=folder)
    assert len(files(folder)) == 2
    np.testing.assert_array_equal(cached(0), PreparedSource(records, size)(0))


def test_decoded_images_do_not_depend_on_the_image_size(records: list[ImageRecord], tmp_path: Path) -> None:
    sources = [PreparedSource(records, size, cache="disk", cache_dir=tmp_path / "caches") for size in (SIZE, 32)]
    assert len(files(tmp_path / "caches")) == 1
    assert max(sources[1](1).shape) == 32


def test_a_torn_file_is_built_again(records: list[ImageRecord], tmp_path: Path) -> None:
    PreparedSource(records, SIZE, cache="disk", cache_dir=tmp_path / "caches").close()
    (path,) = files(tmp_path / "caches")
    path.write_bytes(path.read_bytes()[:-1])
    cached = PreparedSource(records, SIZE, cache="disk", cache_dir=tmp_path / "caches")
    np.testing.assert_array_equal(cached(4), PreparedSource(records, SIZE)(4))


@pytest.mark.parametrize(("kind", "is_prepared"), KINDS)
def test_damaged_and_mislabelled_images_are_as_without_a_cache(
    records: list[ImageRecord], kind: CacheKind, is_prepared: bool, caplog: pytest.LogCaptureFixture
) -> None:
    Path(records[1].path).write_bytes(b"no image")
    records[2] = replace(records[2], height_src=91)  # a header that lied
    plain, cached = (
        PreparedSource(records, SIZE),
        PreparedSource(records, SIZE, cache=kind, is_cache_prepared=is_prepared),
    )
    assert cached.undecodable_indices == []
    for index in range(5):
        np.testing.assert_array_equal(cached(index), plain(index))
    assert cached.undecodable_indices == plain.undecodable_indices == [1]
    assert sum("1.png cannot be decoded" in message for message in caplog.messages) == 2


def test_a_missing_image_is_an_error_and_leaves_nothing(records: list[ImageRecord], shared_memory: Path) -> None:
    Path(records[1].path).unlink()
    with pytest.raises(FileNotFoundError, match=r"1\.png"):
        PreparedSource(records, SIZE, cache="ram")
    assert not files(shared_memory)
    assert not files(shared_memory, ".partial")


@pytest.mark.parametrize(
    ("kind", "free", "ram", "expected"),
    [
        ("ram", 64, 10**9, r"'ram': 0.00 GiB needed, but .*shm has only .* --shm-size; use cache_prepared_.* disk or"),
        ("ram", 10**9, 64, r"RAM are available .*container.*; use cache_prepared.*, cache_train_images: disk or"),
        ("disk", 64, 64, r"'disk': .* needed, but .*caches has only .*; use .*another cache folder or .*: none"),
    ],
)
def test_a_cache_that_does_not_fit_is_refused_before_anything_is_read(
    records: list[ImageRecord],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: CacheKind,
    free: int,
    ram: int,
    expected: str,
) -> None:
    monkeypatch.setattr(host, "free_bytes", lambda _folder: free)
    monkeypatch.setattr(host, "available_ram_bytes", lambda: ram)
    monkeypatch.setattr(cache_module, "_fill", lambda *_arguments: pytest.fail("images were read"))
    with pytest.raises(ValueError, match=expected):
        PreparedSource(records, SIZE, cache=kind, cache_dir=tmp_path / "caches")


def test_a_machine_without_shared_memory_is_named(records: list[ImageRecord], shared_memory: Path) -> None:
    shared_memory.rmdir()
    with pytest.raises(ValueError, match=r"shm, which is missing here; use .*disk"):
        PreparedSource(records, SIZE, cache="ram")


def test_no_images_need_no_cache(shared_memory: Path) -> None:
    PreparedSource([], SIZE, cache="ram")
    assert list(shared_memory.iterdir()) == []


STARTED = """
import logging, sys, numpy as np
from pathlib import Path
from lucid_yolo.data import host
from lucid_yolo.data.sources import PreparedSource
from lucid_yolo.structures import ImageRecord
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
host.SHARED_MEMORY_DIR = Path(sys.argv[1])
empty = np.empty(0)
records = [
    ImageRecord(path, 0, 90, 31, np.empty((0, 4)), np.empty(0, np.int64), np.empty(0, bool), empty, 0)
    for path in sys.argv[2:]
]
source = PreparedSource(records, 48, cache="ram")
print("ready", flush=True)
sys.stdin.readline()
print(int(source(0).sum()))
"""


def test_ranks_that_start_together_build_once(records: list[ImageRecord], shared_memory: Path) -> None:
    command = [sys.executable, "-c", STARTED, str(shared_memory), *[records[2].path] * 300]
    pipe = subprocess.PIPE
    ranks = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(3)]
    texts = []
    for rank in ranks:
        assert rank.stdout is not None
        lines = []
        while not lines or lines[-1] != "ready":
            lines.append(rank.stdout.readline().strip())
            assert rank.poll() is None
        texts.append("\n".join(lines))
    assert sum("caching 300 images" in text for text in texts) == 1
    assert len(files(shared_memory)) == 1
    outputs = [rank.communicate("go\n", timeout=30)[0].strip() for rank in ranks]
    assert outputs == [str(int(PreparedSource(records, SIZE)(2).sum()))] * 3
    assert list(shared_memory.iterdir()) == []
