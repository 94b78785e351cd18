"""COCO 2017 (train, val and their annotations), fetched from its own host and unpacked as the reader expects it.

The host speaks plain HTTP and publishes no hashes. Sizes and MD5 sums are those in common use for these files; they
were not compared with the host's when this table was written. They show that the bytes arrived whole, not where they
come from; the archives' own checksums are verified while unpacking.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lucid_yolo.data.transfer import RemoteFile, ShowProgress, fetch_file, require_space, unpack_zip

HOST = "http://images.cocodataset.org"


@dataclass(frozen=True)
class Archive:
    """One archive of the data set.

    Attributes:
        remote: The zip file.
        folder: Its top folder, which is also where it ends up.
        num_unpacked_bytes: About what it unpacks to.
    """

    remote: RemoteFile
    folder: str
    num_unpacked_bytes: int


ARCHIVES: dict[str, Archive] = {
    "annotations": Archive(
        RemoteFile(f"{HOST}/annotations/annotations_trainval2017.zip", 252907541, "f4bbac642086de4f52a3fdda2de5fa2c"),
        "annotations",
        850_000_000,
    ),
    "val": Archive(
        RemoteFile(f"{HOST}/zips/val2017.zip", 815585330, "442b8da7639aecaf257c1dceb8ba8c80"),
        "val2017",
        820_000_000,
    ),
    "train": Archive(
        RemoteFile(f"{HOST}/zips/train2017.zip", 19336861798, "cced6f7f71b7629ddf16f17bbcfab6b2"),
        "train2017",
        19_500_000_000,
    ),
}

_DOWNLOADS = ".download"


def fetch_coco2017(
    data_root: str | Path,
    splits: Sequence[str] = ("train", "val"),
    show: ShowProgress | None = None,
    archives: Mapping[str, Archive] = ARCHIVES,
) -> Iterator[str]:
    """Fill a folder with ``annotations``, ``train2017`` and ``val2017``; what is there already is not fetched again.

    A folder appears whole or not at all, and its archive is deleted then.

    Args:
        data_root: Folder to fill; it may hold the result of an earlier, interrupted run.
        splits: Which images.
        show: Called with name, bytes so far and bytes in all.
        archives: What to fetch, by split.

    Yields:
        A line per archive that says what was done.

    Raises:
        DownloadError: See :func:`lucid_yolo.data.transfer.fetch_file` and ``unpack_zip``.
    """
    root = Path(data_root)
    wanted = [archives[name] for name in ("annotations", *splits)]
    missing = [archive for archive in wanted if not (root / archive.folder).is_dir()]
    downloads = root / _DOWNLOADS
    if missing:
        require_space(root, _bytes_needed(missing, downloads))
    for archive in wanted:
        if archive not in missing:
            yield f"{root / archive.folder}: there already, left as it is"
            continue
        path = fetch_file(archive.remote, downloads, show)
        unpacked = downloads / f"{archive.folder}.unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)
        unpack_zip(path, unpacked)
        (unpacked / archive.folder).rename(root / archive.folder)
        shutil.rmtree(unpacked)
        path.unlink()
        yield f"{root / archive.folder}: written"
    shutil.rmtree(downloads, ignore_errors=True)


def _bytes_needed(missing: Sequence[Archive], downloads: Path) -> int:
    """Return the most that is on the disk at once, less what is there: all folders, and the archive being unpacked."""
    needed, unpacked, there = 0, 0, 0
    for archive in missing:
        size = archive.remote.num_bytes or 0
        unpacked += archive.num_unpacked_bytes
        needed = max(needed, unpacked + size)
        parts = (downloads / archive.remote.name, downloads / f"{archive.remote.name}.part")
        there += sum(path.stat().st_size for path in parts if path.exists())
    return max(0, needed - there)
