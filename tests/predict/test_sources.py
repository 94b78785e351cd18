from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lucid_yolo.predict.sources import list_images


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
    return root


def names(paths: list[Path]) -> list[str]:
    return [p.name for p in paths]


def test_folder_is_sorted_and_sniffed(folder: Path) -> None:
    assert names(list_images(folder)) == ["a.png", "b.JPG", "c.tiff", "nosuffix"]
    assert list_images(str(folder)) == list_images(folder)


def test_file_is_taken_as_it_is(folder: Path) -> None:
    assert list_images(folder / "notes.txt") == [folder / "notes.txt"]


def test_patterns(folder: Path) -> None:
    root = str(folder).replace("[1]", "[[]1]")
    assert names(list_images(f"{root}/*.png")) == ["a.png"]
    assert names(list_images(f"{root}/*")) == ["a.png", "b.JPG", "c.tiff", "nosuffix"]
    assert names(list_images(f"{root}/**/*")) == ["a.png", "b.JPG", "c.tiff", "nosuffix", "d.webp"]


def test_list_keeps_order_and_mixes_kinds(folder: Path) -> None:
    found = list_images([folder / "c.tiff", str(folder / "sub"), folder / "a.png"])
    assert names(found) == ["c.tiff", "d.webp", "a.png"]


def test_relative_paths_stay_relative(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert list_images("sub") == [Path("sub/d.webp")]


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
        list_images(source)


@pytest.mark.parametrize("source", ["", [], "https://example.org/bus.jpg"], ids=["empty text", "empty list", "url"])
def test_refuses(source: str | list[str]) -> None:
    with pytest.raises(ValueError, match="expected"):
        list_images(source)
