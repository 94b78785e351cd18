"""Downloads against servers on this machine: with and without ranges, broken, wrong; and hostile archives."""

import hashlib
import io
import json
import shutil
import stat
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lucid_yolo.cli.data import main
from lucid_yolo.data import coco2017, transfer
from lucid_yolo.data.coco2017 import Archive, fetch_coco2017
from lucid_yolo.data.dataset import open_split
from lucid_yolo.data.transfer import DownloadError, RemoteFile, fetch_file, unpack_zip

CONTENT = bytes(range(256)) * 5000


@dataclass
class Behaviour:
    """What the server does, and what it was asked."""

    files: dict[str, bytes]
    has_ranges: bool = True
    tag: str | None = '"one"'
    cut_after: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    ranges_asked: list[str | None] = field(default_factory=list)


@contextmanager
def serve(behaviour: Behaviour) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            behaviour.ranges_asked.append(asked)
            status = behaviour.statuses.pop(0) if behaviour.statuses else 200
            content = behaviour.files.get(self.path.strip("/"))
            if content is None or status != 200:
                self.send_error(404 if content is None else status)
                return
            start = 0
            if asked and behaviour.has_ranges and self.headers.get("If-Range") == behaviour.tag:
                start = int(asked.removeprefix("bytes=").rstrip("-"))
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            else:
                self.send_response(200)
            if behaviour.tag:
                self.send_header("ETag", behaviour.tag)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            stop = start + behaviour.cut_after.pop(0) if behaviour.cut_after else len(content)
            self.wfile.write(content[start:stop])
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def remote(url: str, content: bytes = CONTENT, **other: object) -> RemoteFile:
    known = {"num_bytes": len(content), "md5": hashlib.md5(content).hexdigest(), **other}
    return RemoteFile(f"{url}/a.bin", **known)  # type: ignore[arg-type]


def test_whole_download_reports_progress_and_is_not_repeated(tmp_path: Path) -> None:
    behaviour, seen = Behaviour({"a.bin": CONTENT}), []
    with serve(behaviour) as url:
        path = fetch_file(remote(url), tmp_path, lambda *values: seen.append(values))
        assert path.read_bytes() == CONTENT
        assert seen[-1] == ("a.bin", len(CONTENT), len(CONTENT))
        assert fetch_file(remote(url), tmp_path) == path
    assert len(behaviour.ranges_asked) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]


@pytest.mark.parametrize(
    ("has_ranges", "tag", "expected", "why"),
    [
        (True, '"one"', [None, "bytes=700000-", "bytes=1000000-"], "continued"),
        (False, '"one"', [None, "bytes=700000-", "bytes=300000-"], "server without ranges: begun again"),
        (True, None, [None, None, None], "no version to hold on to: begun again"),
        (True, 'W/"one"', [None, None, None], "weak version: begun again"),
    ],
)
def test_broken_transfer_is_continued(
    tmp_path: Path, has_ranges: bool, tag: str | None, expected: list[str | None], why: str
) -> None:
    behaviour = Behaviour({"a.bin": CONTENT}, has_ranges, tag, cut_after=[700_000, 300_000])
    with serve(behaviour) as url:
        assert fetch_file(remote(url), tmp_path, first_wait_s=0.0).read_bytes() == CONTENT
    assert behaviour.ranges_asked == expected, why


def test_later_run_continues_and_a_changed_file_is_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "NUM_TRIES", 1)
    behaviour = Behaviour({"a.bin": CONTENT}, cut_after=[400_000, 100_000])
    with serve(behaviour) as url:
        with pytest.raises(DownloadError, match="400000 bytes are kept"):
            fetch_file(remote(url), tmp_path)
        with pytest.raises(DownloadError, match="500000 bytes are kept"):
            fetch_file(remote(url), tmp_path)
        behaviour.files["a.bin"], behaviour.tag = CONTENT[::-1], '"two"'
        assert fetch_file(remote(url, CONTENT[::-1]), tmp_path).read_bytes() == CONTENT[::-1]
    assert behaviour.ranges_asked == [None, "bytes=400000-", "bytes=500000-"]


@pytest.mark.parametrize("num_bytes", [len(CONTENT), None])
def test_wrong_hash_is_an_error_and_leaves_nothing(tmp_path: Path, num_bytes: int | None) -> None:
    with serve(Behaviour({"a.bin": CONTENT})) as url, pytest.raises(DownloadError, match="expected MD5 0000, found"):
        fetch_file(remote(url, num_bytes=num_bytes, md5="0000"), tmp_path)
    assert not list(tmp_path.glob("*.bin*part"))
    assert not (tmp_path / "a.bin").exists()


def test_wrong_size_is_an_error_before_the_transfer(tmp_path: Path) -> None:
    with (
        serve(Behaviour({"a.bin": CONTENT})) as url,
        pytest.raises(DownloadError, match="expected 17 bytes"),
    ):
        fetch_file(remote(url, num_bytes=17), tmp_path)


def test_file_from_before_is_verified(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"other")
    with pytest.raises(DownloadError, match="removed"):
        fetch_file(remote("http://127.0.0.1:1"), tmp_path)
    assert not (tmp_path / "a.bin").exists()


@pytest.mark.parametrize(("statuses", "num_asked"), [([503, 500], 3), ([403], 1)])
def test_passing_faults_are_tried_again_and_refusals_are_not(
    tmp_path: Path, statuses: list[int], num_asked: int
) -> None:
    behaviour = Behaviour({"a.bin": CONTENT}, statuses=list(statuses))
    with serve(behaviour) as url:
        if num_asked == 3:
            assert fetch_file(remote(url), tmp_path, first_wait_s=0.0).read_bytes() == CONTENT
        else:
            with pytest.raises(DownloadError, match="403"):
                fetch_file(remote(url), tmp_path, first_wait_s=0.0)
    assert len(behaviour.ranges_asked) == num_asked


def test_unreachable_server_ends_after_its_tries(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="after 6 tries"):
        fetch_file(remote("http://127.0.0.1:1"), tmp_path, first_wait_s=0.0)


def test_full_disk_is_said_before_the_transfer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1_000_000)
    monkeypatch.setattr(transfer.shutil, "disk_usage", lambda _: usage)
    with serve(Behaviour({"a.bin": CONTENT})) as url, pytest.raises(DownloadError, match="are free; make room"):
        fetch_file(remote(url), tmp_path)


def zip_bytes(files: dict[str, bytes], mode: int = 0) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            member = zipfile.ZipInfo("placeholder")
            member.filename = name
            member.external_attr = mode << 16
            archive.writestr(member, content)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "mode", "why"),
    [
        ("../a.txt", 0, "up"),
        ("b/../../a.txt", 0, "up from below"),
        ("/elsewhere/a.txt", 0, "absolute"),
        ("..\\a.txt", 0, "up, as Windows writes it"),
        ("C:\\a.txt", 0, "a drive"),
        ("link", stat.S_IFLNK | 0o777, "a link"),
        ("pipe", stat.S_IFIFO | 0o777, "a pipe"),
    ],
)
def test_archive_that_would_leave_its_folder_is_refused_whole(tmp_path: Path, name: str, mode: int, why: str) -> None:
    archive = tmp_path / "a.zip"
    archive.write_bytes(
        zip_bytes({"good.txt": b"x"}) if not name else zip_bytes({"good.txt": b"x", name: b"/etc"}, mode)
    )
    with pytest.raises(DownloadError, match="refused to unpack"):
        unpack_zip(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists(), why


def test_damaged_archives_are_named(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    content = bytearray(zip_bytes({"a.txt": bytes(1000) + b"end"}))
    for damaged in (b"no zip", bytes(content[: len(content) // 2])):
        archive.write_bytes(damaged)
        with pytest.raises(DownloadError, match="damaged"):
            unpack_zip(archive, tmp_path / "out")
    content[content.index(b"a.txt") + 8] ^= 255
    archive.write_bytes(content)
    with pytest.raises(DownloadError, match="damaged"):
        unpack_zip(archive, tmp_path / "out")


@pytest.fixture
def small_coco() -> dict[str, bytes]:
    """Archives that look like those of COCO 2017."""
    from PIL import Image

    picture = io.BytesIO()
    Image.new("RGB", (40, 20)).save(picture, "JPEG")
    content = {
        "images": [{"id": 9, "file_name": "9.jpg", "width": 40, "height": 20}],
        "categories": [{"id": 5, "name": "c"}],
        "annotations": [{"id": 1, "image_id": 9, "category_id": 5, "bbox": [1, 2, 3, 4], "iscrowd": 0}],
    }
    json_text = json.dumps(content)
    annotations = {f"annotations/instances_{split}2017.json": json_text.encode() for split in ("train", "val")}
    return {
        "annotations.zip": zip_bytes(annotations),
        "train2017.zip": zip_bytes({"train2017/": b"", "train2017/9.jpg": picture.getvalue()}),
        "val2017.zip": zip_bytes({"val2017/9.jpg": picture.getvalue()}),
    }


def small_archives(url: str, files: dict[str, bytes]) -> dict[str, Archive]:
    names = {"annotations": "annotations", "train": "train2017", "val": "val2017"}
    return {
        split: Archive(RemoteFile(f"{url}/{folder}.zip", len(files[f"{folder}.zip"])), folder, 1000)
        for split, folder in names.items()
    }


def test_coco_is_filled_continued_and_read(tmp_path: Path, small_coco: dict[str, bytes]) -> None:
    root = tmp_path / "coco"
    with serve(Behaviour(small_coco)) as url:
        lines = list(fetch_coco2017(root, ["val"], archives=small_archives(url, small_coco)))
        assert len(lines) == 2
        lines = list(fetch_coco2017(root, archives=small_archives(url, small_coco)))
    assert ["there already" in line for line in lines] == [True, False, True]
    assert sorted(path.name for path in root.iterdir()) == ["annotations", "train2017", "val2017"]
    for split in ("train", "val"):
        assert open_split(root, split).account.counts["kept"] == 1  # type: ignore[arg-type]


def test_interrupted_unpacking_leaves_no_half_folder(tmp_path: Path, small_coco: dict[str, bytes]) -> None:
    files = {**small_coco, "val2017.zip": small_coco["val2017.zip"][:-30]}
    with serve(Behaviour(files)) as url, pytest.raises(DownloadError, match="damaged"):
        list(fetch_coco2017(tmp_path, ["val"], archives=small_archives(url, files)))
    assert not (tmp_path / "val2017").exists()
    assert (tmp_path / "annotations").is_dir()


def test_command(
    tmp_path: Path, small_coco: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve(Behaviour(small_coco)) as url:
        monkeypatch.setattr(
            coco2017, "fetch_coco2017", partial(fetch_coco2017, archives=small_archives(url, small_coco))
        )
        assert main(["download", "--name", "coco2017", "--data_root", str(tmp_path / "coco"), "--split", "val"]) == 0
        assert "val2017: written" in capsys.readouterr().out
    monkeypatch.setattr(coco2017, "fetch_coco2017", partial(fetch_coco2017, archives=small_archives(url, small_coco)))
    monkeypatch.setattr(transfer, "NUM_TRIES", 1)
    assert main(["download", "--name", "coco2017", "--data_root", str(tmp_path / "coco")]) == 1
    assert "run again to continue" in capsys.readouterr().err


def test_table_is_that_of_the_data_set() -> None:
    total = sum(archive.remote.num_bytes or 0 for archive in coco2017.ARCHIVES.values())
    assert total == pytest.approx(20.4e9, rel=0.01)
    assert all(len(archive.remote.md5 or "") == 32 for archive in coco2017.ARCHIVES.values())
