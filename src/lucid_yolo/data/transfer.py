"""Large files from the network: resumed, checked, and unpacked without leaving their folder.

A download grows in ``<name>.part`` beside its target and takes its name only when size and hash are right. It is
continued by an HTTP range request where the server allows it and still has the same file (``ETag`` or
``Last-Modified``), else begun again.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import logging
import shutil
import stat
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

NUM_TRIES = 6
TIMEOUT_S = 60.0

_CHUNK_BYTES = 1 << 20
_FREE_MARGIN_BYTES = 1 << 28
_PASSING_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})

ShowProgress = Callable[[str, int, int], None]

_log = logging.getLogger(__name__)


class DownloadError(RuntimeError):
    """A file could not be fetched or is not what was expected; the message says why."""


@dataclass(frozen=True)
class RemoteFile:
    """A file to fetch and what is known of it.

    Attributes:
        url: HTTP or HTTPS.
        num_bytes: Its exact size; None if not known.
        md5: Its MD5 in hexadecimal, against damage in transfer; None if not known.
    """

    url: str
    num_bytes: int | None = None
    md5: str | None = None

    @property
    def name(self) -> str:
        """Last part of the address."""
        return PurePosixPath(self.url).name


class _LostConnectionError(Exception):
    """The transfer broke off; what arrived is kept."""


def fetch_file(remote: RemoteFile, folder: Path, show: ShowProgress | None = None, first_wait_s: float = 1.0) -> Path:
    """Download a file, continuing an earlier attempt; a file that is there already and right is left as it is.

    Args:
        remote: What to fetch.
        folder: Where to put it.
        show: Called with name, bytes so far and bytes in all.
        first_wait_s: Pause after the first failure; doubled after each.

    Returns:
        The file.

    Raises:
        DownloadError: Not reachable after several tries, refused, too little disk space, or another size or hash.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target, part = folder / remote.name, folder / f"{remote.name}.part"
    if target.exists():
        _verify(remote, target)
        return target
    for attempt in range(NUM_TRIES):
        before = _size(part)
        try:
            _continue(remote, part, show)
            break
        except (_LostConnectionError, OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code not in _PASSING_STATUS:
                raise DownloadError(f"{remote.url}: the server answers {error.code} {error.reason}") from error
            if attempt == NUM_TRIES - 1:
                arrived = f"{_size(part)} bytes are kept in {part}, run again to continue"
                raise DownloadError(f"{remote.url}: {error} after {NUM_TRIES} tries; {arrived}") from error
            wait_s = first_wait_s * 2**attempt
            _log.warning("%s: %s after %d bytes; again in %g s", remote.url, error, _size(part) - before, wait_s)
            time.sleep(wait_s)
    _verify(remote, part)
    part.rename(target)
    _tag_path(part).unlink(missing_ok=True)
    return target


def unpack_zip(archive: Path, folder: Path) -> None:
    """Unpack a zip archive below a folder.

    Args:
        archive: The archive.
        folder: Made if it is not there.

    Raises:
        DownloadError: A member would leave the folder or is a link, a checksum is wrong, or the disk is too small.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            members = opened.infolist()
            for member in members:
                _check_member(member, archive)
            require_space(folder, sum(member.file_size for member in members))
            for member in members:
                _unpack_member(opened, member, folder)
    except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        raise DownloadError(f"{archive}: damaged ({error}); delete it and run again") from error


def require_space(folder: Path, num_bytes: int) -> None:
    """Refuse to begin what the disk cannot hold.

    Raises:
        DownloadError: Less than ``num_bytes`` and a margin are free.
    """
    place = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    free = shutil.disk_usage(place).free
    if free < num_bytes + _FREE_MARGIN_BYTES:
        raise DownloadError(
            f"{folder}: needs {num_bytes / 1e9:.1f} GB, {free / 1e9:.1f} GB are free; make room or choose another disk"
        )


def _continue(remote: RemoteFile, part: Path, show: ShowProgress | None) -> None:
    """Fetch what is missing of a part file."""
    start, tag = _size(part), _read_tag(part)
    if remote.num_bytes is not None and start >= remote.num_bytes:
        if start == remote.num_bytes:
            return
        start = 0
    headers = {"Accept-Encoding": "identity", "User-Agent": "lucid-yolo"}
    if start and tag:
        headers |= {"Range": f"bytes={start}-", "If-Range": tag}
    try:
        response = urllib.request.urlopen(urllib.request.Request(remote.url, headers=headers), timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        error.close()
        part.unlink()  # the server's file is no longer than the part: it is another one
        raise _LostConnectionError("the server cannot continue the transfer") from error
    with response:
        is_continued = response.status == http.client.PARTIAL_CONTENT
        if is_continued and not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            raise _LostConnectionError(f"asked for byte {start}, got {response.headers.get('Content-Range')}")
        start = start if is_continued else 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length is not None else remote.num_bytes
        if remote.num_bytes is not None and total != remote.num_bytes:
            raise DownloadError(f"{remote.url}: expected {remote.num_bytes} bytes, the server has {total}")
        require_space(part.parent, (total or 0) - start)
        _write_tag(part, response.headers.get("ETag") or response.headers.get("Last-Modified"))
        with part.open("r+b" if is_continued else "wb") as file:
            file.seek(start)
            done = start
            while chunk := response.read(_CHUNK_BYTES):
                file.write(chunk)
                done += len(chunk)
                if show is not None:
                    show(remote.name, done, total or done)
    if total is not None and done < total:
        raise _LostConnectionError(f"the connection closed {total - done} bytes early")


def _verify(remote: RemoteFile, path: Path) -> None:
    """Compare size and hash; a wrong file is removed so that the next run fetches it anew."""
    found = path.stat().st_size
    problem = ""
    if remote.num_bytes is not None and found != remote.num_bytes:
        problem = f"expected {remote.num_bytes} bytes, found {found}"
    elif remote.md5 is not None and (digest := _md5(path)) != remote.md5:
        problem = f"expected MD5 {remote.md5}, found {digest}"
    if problem:
        path.unlink()
        raise DownloadError(f"{remote.url}: {problem}; the file was removed, run again to fetch it anew")


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _tag_path(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _read_tag(part: Path) -> str | None:
    """Return what the server called the version of the file that the part belongs to."""
    try:
        tag = json.loads(_tag_path(part).read_text(encoding="utf-8"))["tag"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    # A weak tag may stand for other bytes.
    return tag if isinstance(tag, str) and not tag.startswith("W/") else None


def _write_tag(part: Path, tag: str | None) -> None:
    _tag_path(part).write_text(json.dumps({"tag": tag}), encoding="utf-8")


def _check_member(member: zipfile.ZipInfo, archive: Path) -> None:
    name = member.filename
    parts = PurePosixPath(name.replace("\\", "/")).parts
    mode = member.external_attr >> 16
    is_strange = stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR)
    if not parts or ".." in parts or parts[0].startswith("/") or ":" in parts[0] or "\0" in name or is_strange:
        raise DownloadError(f"{archive}: refused to unpack {name!r}: a link, a device or a path out of the folder")


def _unpack_member(opened: zipfile.ZipFile, member: zipfile.ZipInfo, folder: Path) -> None:
    path = folder.joinpath(*PurePosixPath(member.filename.replace("\\", "/")).parts)
    if member.is_dir():
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with opened.open(member) as source, path.open("wb") as target:
        shutil.copyfileobj(source, target, _CHUNK_BYTES)
