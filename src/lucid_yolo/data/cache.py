"""Images kept as uint8 in one memory-mapped file, one copy for all workers and ranks of a machine.

The whole file is built before training, by whichever process takes the lock first, with one thread per usable core;
the others wait for it. Building ahead is what lets every reader map it read-only, without flags that change under it,
and lets a disk cache appear by one rename, whole or not at all. The name is a digest of every image's path, size and
modification time, so ranks and later runs meet at the same file and a changed data set never meets an old one.

``ram`` files live in shared memory and go with their last user; one that a killed run left behind is removed by the
next run that builds a RAM cache. ``disk`` files stay, in the user's cache folder, never in the data set.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import mmap
import os
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import cv2
import numpy as np
import PIL

from lucid_yolo.data import host
from lucid_yolo.data.image import UndecodableImageError

CacheKind = Literal["none", "ram", "disk"]

logger = logging.getLogger(__name__)

_VERSION = 1
# Shares of what is free that a cache may take; the rest is for the run itself.
_RAM_SHARE, _SHARED_MEMORY_SHARE, _DISK_SHARE = 0.8, 0.9, 0.95
_LOCK_PAUSE_S = 0.05
_TABLE_COLUMNS = 3  # start (-1: not kept), height, width


@dataclass(frozen=True)
class CacheContent:
    """What a cache is to hold.

    Attributes:
        paths: File of each image.
        sizes_px: ``[n, 2]`` height and width of each image as kept.
        form: What is kept of a file, as in ``"decoded"``; part of the cache's identity.
        read: Returns an image as it is kept; may raise ``UndecodableImageError``.
    """

    paths: Sequence[str]
    sizes_px: np.ndarray
    form: str
    read: Callable[[int], np.ndarray]

    @property
    def num_bytes(self) -> int:
        """Size of the whole file."""
        return self.table_bytes + int(self.sizes_px.prod(1).sum()) * 3

    @property
    def table_bytes(self) -> int:
        """Size of the table before the pixels; it starts with this number itself."""
        return 8 + len(self.sizes_px) * _TABLE_COLUMNS * 8

    def digest(self) -> str:
        """Return the identity: form, decoder versions, and path, size and modification time of every file."""
        versions = [_VERSION, PIL.__version__, cv2.__version__]
        sha = hashlib.sha256(json.dumps([self.form, versions]).encode())
        for path, size_px in zip(self.paths, self.sizes_px.tolist(), strict=True):
            status = os.stat(path)
            sha.update(json.dumps([os.path.abspath(path), status.st_size, status.st_mtime_ns, size_px]).encode())
        return sha.hexdigest()[:32]


class ImageCache:
    """Read-only images by position; cheap to send to other processes, which map the same file.

    Args:
        content: What to keep.
        kind: ``"ram"`` or ``"disk"``.
        folder: Where disk caches are kept; None for :func:`default_cache_dir`.
        alternative: What to use instead when there is no room, for the error message.

    Raises:
        ValueError: There is no room for the images.

    Attributes:
        pixels: Values of all images in a row, not writable.
    """

    def __init__(self, content: CacheContent, kind: CacheKind, folder: Path | None, alternative: str) -> None:
        is_temporary = kind == "ram"
        folder = host.SHARED_MEMORY_DIR if is_temporary else folder or default_cache_dir()
        if is_temporary:
            _require_shared_memory(alternative)
            remove_unused(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{_prefix()}{content.digest()}.images"
        lock = _open_or_build(self.path, content, lambda: _require_room(kind, content.num_bytes, folder, alternative))
        self._map()
        self._release = weakref.finalize(self, _release, os.getpid(), lock, self.path, is_temporary)

    def __call__(self, index: int) -> np.ndarray | None:
        """Return an image as ``[h, w, 3]`` uint8, not writable; None when it is not kept (it cannot be decoded).

        Args:
            index: Position among the content's paths.
        """
        start, height, width = self._table[index].tolist()
        if start < 0:
            return None
        image: np.ndarray = self.pixels[start : start + height * width * 3].reshape(height, width, 3)
        return image

    def close(self) -> None:
        """Let go of the file; the last user of a RAM cache removes it. Images handed out stay valid."""
        self._release()

    def __getstate__(self) -> Path:
        return self.path

    def __setstate__(self, path: Path) -> None:
        self.path = path
        self._map()

    def _map(self) -> None:
        with self.path.open("rb") as file:
            data = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        table_bytes = int(data[:8].view(np.int64)[0])
        self._table = data[8:table_bytes].view(np.int64).reshape(-1, _TABLE_COLUMNS)
        self.pixels = data[table_bytes:]


def default_cache_dir() -> Path:
    """Return ``$XDG_CACHE_HOME/lucid-yolo/images``, or the same below ``~/.cache``."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "lucid-yolo" / "images"


def remove_unused(folder: Path) -> None:
    """Remove this user's RAM caches that no process uses any more.

    Args:
        folder: Where RAM caches are.
    """
    for lock_path in folder.glob(f"{_prefix()}*.lock"):
        if (lock := _try_lock(lock_path, is_exclusive=True)) is not None:
            path = lock_path.with_suffix(".images")
            if path.exists():
                logger.info("removing the RAM cache of a run that has ended without cleaning up: %s", path)
            _remove(path)
            lock.close()


def _open_or_build(path: Path, content: CacheContent, check_room: Callable[[], None]) -> BinaryIO:
    """Return the shared lock of a finished cache file, after building it if need be."""
    lock_path, is_waiting = path.with_suffix(".lock"), False
    while True:
        if (lock := _try_lock(lock_path, is_exclusive=False)) is not None:
            if _is_built(path, content):
                return lock
            lock.close()
        if (lock := _try_lock(lock_path, is_exclusive=True)) is not None:
            try:
                if not _is_built(path, content):
                    check_room()
                    _build(path, content)
            except BaseException:
                lock.close()
                raise
            fcntl.flock(lock, fcntl.LOCK_SH)
            if _is_built(path, content):
                return lock
            lock.close()
        if not is_waiting:
            logger.info("waiting for the process that builds the image cache %s", path)
            is_waiting = True
        time.sleep(_LOCK_PAUSE_S)


def _is_built(path: Path, content: CacheContent) -> bool:
    return path.exists() and path.stat().st_size == content.num_bytes


def _build(path: Path, content: CacheContent) -> None:
    """Write the file under another name and rename it when it is complete."""
    started, size, partial = time.perf_counter(), content.num_bytes, path.with_suffix(".partial")
    logger.info("caching %d images (%s, %s) in %s", len(content.paths), content.form, _gib(size), path)
    try:
        with partial.open("w+b") as file:
            # All of it now: to run out of room later would kill the process that writes.
            os.posix_fallocate(file.fileno(), 0, size) if hasattr(os, "posix_fallocate") else file.truncate(size)
            mapped = mmap.mmap(file.fileno(), size)
            num_kept = _fill(np.frombuffer(mapped, np.uint8), content)
            mapped.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    seconds = time.perf_counter() - started
    logger.info("cached %d of %d images in %.1f s", num_kept, len(content.paths), seconds)


def _fill(data: np.ndarray, content: CacheContent) -> int:
    """Write the table and every image that can be decoded; return their number."""
    data[:8].view(np.int64)[0] = content.table_bytes
    table = data[8 : content.table_bytes].view(np.int64).reshape(-1, _TABLE_COLUMNS)
    pixels, num_values = data[content.table_bytes :], content.sizes_px.prod(1) * 3
    starts = np.cumsum(num_values) - num_values
    table[:, 0], table[:, 1:] = -1, content.sizes_px

    def keep(index: int) -> bool:
        try:
            image = content.read(index)
        except UndecodableImageError:
            return False
        # A header may lie about the size: such an image is decoded whenever it is asked for.
        if image.shape[:2] != tuple(content.sizes_px[index]):
            return False
        pixels[starts[index] : starts[index] + image.size] = image.reshape(-1)
        table[index, 0] = starts[index]
        return True

    with ThreadPoolExecutor(host.usable_cores()) as pool:
        try:
            return sum(pool.map(keep, range(len(table))))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _try_lock(path: Path, is_exclusive: bool) -> BinaryIO | None:
    """Return the open, locked file; None when another process holds it or has just removed it."""
    try:
        file = path.open("a+b")
    except PermissionError:
        return None
    try:
        fcntl.flock(file, (fcntl.LOCK_EX if is_exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        if os.fstat(file.fileno()).st_ino == path.stat().st_ino:
            return file
    except (BlockingIOError, FileNotFoundError):
        pass
    file.close()
    return None


def _release(owner: int, lock: BinaryIO, path: Path, is_temporary: bool) -> None:
    if os.getpid() != owner:  # a forked child shares the lock, but does not own the file
        return
    if is_temporary:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path)
        except BlockingIOError:
            logger.debug("another process still uses %s", path)
    lock.close()


def _remove(path: Path) -> None:
    for suffix in (".images", ".partial", ".lock"):
        path.with_suffix(suffix).unlink(missing_ok=True)


def _require_shared_memory(alternative: str) -> None:
    if not host.SHARED_MEMORY_DIR.is_dir():
        raise ValueError(f"image cache 'ram' needs {host.SHARED_MEMORY_DIR}, which is missing here; {alternative}")


def _require_room(kind: CacheKind, num_bytes: int, folder: Path, alternative: str) -> None:
    """Refuse a cache that does not fit, before anything is read."""
    share = _SHARED_MEMORY_SHARE if kind == "ram" else _DISK_SHARE
    free = host.free_bytes(folder)
    if num_bytes > share * free:
        hint = "a container gets more with --shm-size; " if kind == "ram" else ""
        raise ValueError(
            f"image cache {kind!r}: {_gib(num_bytes)} needed, but {folder} has only {_gib(free)} free, of which "
            f"{share:.0%} may be taken; {hint}{alternative}"
        )
    ram = host.available_ram_bytes() if kind == "ram" else None
    if ram is not None and num_bytes > _RAM_SHARE * ram:
        raise ValueError(
            f"image cache 'ram': {_gib(num_bytes)} needed, but only {_gib(ram)} of RAM are available here (limits of "
            f"the container included), of which {_RAM_SHARE:.0%} may be taken; {alternative}"
        )


def _prefix() -> str:
    return f"lucid-yolo-{os.getuid()}-"


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.2f} GiB"
