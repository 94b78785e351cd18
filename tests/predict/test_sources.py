from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lucid_yolo.predict.sources import VideoSource, list_sources


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "bilder [1] ü"
    (root / "sub").mkdir(parents=True)
    picture = Image.fromarray(np.zeros((4, 4, 3), dtype=np.uint8))
    for name in ("b.JPG", "a.png", "c.tiff", "sub/d.webp", "._a.png"):
        picture.save(root / name)
    picture.save(root / "nosuffix", format="png")
    (root / "README").write_text("no picture")
    (root / "notes.txt").write_text("no picture")
    (root / "clip.MP4").touch()
    return root


def names(sources: list[Path | VideoSource]) -> list[str]:
    return [Path(s.name).name if isinstance(s, VideoSource) else s.name for s in sources]


def test_folder_is_sorted_and_sniffed(folder: Path) -> None:
    assert names(list_sources(folder)) == ["a.png", "b.JPG", "c.tiff", "clip.MP4", "nosuffix"]
    assert list_sources(str(folder)) == list_sources(folder)


def test_file_is_taken_as_it_is(folder: Path) -> None:
    assert list_sources(folder / "README") == [folder / "README"]
    assert list_sources(folder / "clip.MP4") == [VideoSource(folder / "clip.MP4")]


def test_a_text_file_is_a_list_relative_to_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    (folder / "notes.txt").write_text("\ufeffsub/d.webp\n\nclip.MP4\r\na.png \nrtsp://127.0.0.1/a\n", "utf-8")
    found = [folder / "sub" / "d.webp", VideoSource(folder / "clip.MP4"), folder / "a.png"]
    assert list_sources(folder / "notes.txt") == [*found, VideoSource("rtsp://127.0.0.1/a")]


@pytest.mark.parametrize("text", ["a.png\ngone.png", "notes.txt\ngone.txt", "*.png", "", "\n \n"])
def test_a_list_that_leads_nowhere_is_named(folder: Path, text: str) -> None:
    (folder / "notes.txt").write_text(text)
    with pytest.raises(FileNotFoundError, match=r"notes\.txt"):
        list_sources(folder / "notes.txt")


def test_cameras_and_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "7").write_bytes(b"")
    sources = [0, "2", "7", "https://127.0.0.1/bus.mp4"]
    found = list_sources(sources)
    assert found == [VideoSource(0), VideoSource(2), Path("7"), VideoSource("https://127.0.0.1/bus.mp4")]
    assert [s.name for s in found if isinstance(s, VideoSource)] == ["camera_0", "camera_2", sources[3]]
    assert all(s.is_live for s in found if isinstance(s, VideoSource))
    assert not VideoSource(Path("a.mp4")).is_live


def test_patterns(folder: Path) -> None:
    root = str(folder).replace("[1]", "[[]1]")
    assert names(list_sources(f"{root}/*.png")) == ["a.png"]
    assert names(list_sources(f"{root}/*")) == ["a.png", "b.JPG", "c.tiff", "clip.MP4", "nosuffix"]
    assert names(list_sources(f"{root}/**/*")) == ["a.png", "b.JPG", "c.tiff", "clip.MP4", "nosuffix", "d.webp"]


def test_list_keeps_order_and_mixes_kinds(folder: Path) -> None:
    found = list_sources([folder / "c.tiff", str(folder / "sub"), folder / "a.png"])
    assert names(found) == ["c.tiff", "d.webp", "a.png"]


def test_relative_paths_stay_relative(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert list_sources("sub") == [Path("sub/d.webp")]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere", "'nowhere' is no file, no folder and no pattern; looked in"),
        ("*.bmp", r"no image in pattern '\*.bmp', only 0 other files"),
        ("texts", r"no image in folder 'texts', only 1 other files and 1 folders; looked for .*\.png.*'texts/\*\*/\*'"),
    ],
    ids=["missing", "pattern", "folder"],
)
def test_says_what_was_looked_for(source: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "texts" / "deep").mkdir(parents=True)
    (tmp_path / "texts" / "a.txt").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=message):
        list_sources(source)


@pytest.mark.parametrize("source", ["", [], "ftp://example.org/bus.jpg", "file:///bus.jpg", -1, True], ids=str)
def test_refuses(source: str | list[str]) -> None:
    with pytest.raises(ValueError, match="expected"):
        list_sources(source)
