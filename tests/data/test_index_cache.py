"""The index cache is used while nothing changed, and never after."""

import json
import logging
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lucid_yolo.data import dataset, index_cache
from lucid_yolo.data.dataset import DataSplit, open_split, read_class_map
from lucid_yolo.data.readers.layout import DataConfig, Split
from lucid_yolo.structures import Polygons


@pytest.fixture(autouse=True)
def no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust files that were written a moment ago; the tests change sizes or times that differ for certain."""
    monkeypatch.setattr(index_cache, "SETTLE_S", -3600.0)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the splits that were really read."""
    done: list[str] = []
    original = dataset._read_split

    def counted(config: DataConfig, split: Split, *others: Any) -> index_cache.Index:
        done.append(split)
        return original(config, split, *others)

    monkeypatch.setattr(dataset, "_read_split", counted)
    return done


def write_image(path: Path, size: tuple[int, int] = (40, 20)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size).save(path)


def write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def make_yolo(root: Path) -> Path:
    for split in ("train", "val"):
        for name in "ab":
            write_image(root / f"images/{split}/{name}.png")
            write_text(root / f"labels/{split}/{name}.txt", "0 0.5 0.5 0.5 0.5\n1 0.01 0.5 0.1 0.1\n9 1 1 1 1\n")
    write_image(root / "lists/c.png")
    write_text(root / "more.txt", "lists/c.png\n")
    write_text(root / "data.yaml", "train: [images/train, more.txt]\nval: images/val\nnames: [cat, 犬]\n")
    return root


def make_coco(root: Path) -> Path:
    write_image(root / "train/a.png")
    images = [{"id": 3, "file_name": "a.png", "width": 40, "height": 20}]
    annotations = [{"id": 1, "image_id": 3, "category_id": 5, "bbox": [1, 2, 3, 4], "iscrowd": 1}]
    content = {"images": images, "annotations": annotations, "categories": [{"id": 5, "name": "犬"}]}
    write_text(root / "annotations/instances_train.json", json.dumps(content))
    return root


def make_outlines(root: Path) -> Path:
    write_image(root / "images/train/a.png")
    write_image(root / "images/train/b.png")
    write_text(root / "labels/train/b.txt", "0 0.1 0.1 0.4 0.1 0.3 0.8\n0 0.5 0.5 0.5 0.5\n0 0 0 1 0 1 1 0 1\n")
    write_text(root / "data.yaml", "train: images/train\nnames: [cat]\n")
    return root


def make_voc(root: Path) -> Path:
    box = "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>9</xmax><ymax>8</ymax></bndbox>"
    write_image(root / "train/a.png")
    write_text(root / "train/a.xml", f"<annotation><object><name>cat</name>{box}</object></annotation>")
    return root


def same(one: DataSplit, other: DataSplit) -> None:
    assert one.account == other.account
    assert (one.class_map, one.source_format, one.root) == (other.class_map, other.source_format, other.root)
    assert len(one.records) == len(other.records)
    for a, b in zip(one.records, other.records, strict=True):
        for name, value in vars(a).items():
            if isinstance(value, Polygons):
                for part, content in vars(value).items():
                    np.testing.assert_array_equal(content, vars(vars(b)[name])[part])
            elif isinstance(value, np.ndarray):
                np.testing.assert_array_equal(value, vars(b)[name])
                assert value.dtype == vars(b)[name].dtype
            else:
                assert (value, type(value)) == (vars(b)[name], type(vars(b)[name]))


@pytest.mark.parametrize("make", [make_yolo, make_coco, make_voc, make_outlines])
def test_second_opening_reads_nothing_and_is_equal(
    tmp_path: Path, reads: list[str], make: Callable[[Path], Path]
) -> None:
    root, cache = make(tmp_path / "set"), tmp_path / "cache"
    before = sorted(root.rglob("*"))
    one, other = open_split(root, "train", cache_dir=cache), open_split(root, "train", cache_dir=cache)
    assert reads == ["train"]
    same(one, other)
    assert sorted(root.rglob("*")) == before


CHANGES: list[tuple[str, Callable[[Path], object], str]] = [
    ("train", lambda r: write_text(r / "labels/train/a.txt", "0 0.5 0.5 0.5 0.5\n"), "a label file"),
    ("train", lambda r: os.utime(r / "labels/train/a.txt", ns=(5, 5)), "the time of a label file"),
    ("train", lambda r: os.remove(r / "labels/train/b.txt"), "a label file goes"),
    ("train", lambda r: write_text(r / "lists/c.txt", "0 0.5 0.5 0.5 0.5\n"), "a label file comes"),
    ("train", lambda r: write_image(r / "images/train/a.png", (80, 20)), "the size of an image"),
    ("train", lambda r: write_image(r / "images/train/z.png"), "an image comes"),
    ("train", lambda r: write_image(r / "images/train/deep.er/z.png"), "a folder of images comes"),
    ("train", lambda r: os.remove(r / "images/train/b.png"), "an image goes"),
    ("train", lambda r: shutil.move(r / "images/train/b.png", r / "images/train/y.png"), "an image is renamed"),
    ("train", lambda r: write_text(r / "more.txt", "lists/c.png\nimages/val/a.png\n"), "the list of images"),
    ("train", lambda r: os.remove(r / "lists/c.png"), "an image of the list goes"),
    ("train", lambda r: shutil.copytree(r / "labels", r / "lists/labels"), "nothing of the split"),
    ("train", lambda r: write_text(r / "labels/train/orphan.txt", "0 0.5 0.5 0.5 0.5\n"), "a label without image"),
    ("train", lambda r: write_text(r / "data.yaml", (r / "data.yaml").read_text() + "nc: 2\n"), "the YAML"),
    ("train", lambda r: write_text(r / "data.yaml", (r / "data.yaml").read_text().replace("cat", "dog")), "a name"),
]


@pytest.mark.parametrize(("split", "change", "what"), CHANGES, ids=[row[2] for row in CHANGES])
def test_any_change_is_seen(
    tmp_path: Path, reads: list[str], split: str, change: Callable[[Path], object], what: str
) -> None:
    root, cache = make_yolo(tmp_path / "set"), tmp_path / "cache"
    open_split(root, "train", cache_dir=cache)
    open_split(root, "val", cache_dir=cache)
    change(root)
    found = open_split(root, "train", cache_dir=cache)
    assert len(reads) >= (2 if what == "nothing of the split" else 3), what
    same(found, open_split(root, "train", cache_dir=tmp_path / "other cache"))


@pytest.mark.parametrize("name", ["annotations/instances_train.json", "train/a.png"])
def test_changes_of_a_coco_set_are_seen(tmp_path: Path, reads: list[str], name: str) -> None:
    root, cache = make_coco(tmp_path / "set"), tmp_path / "cache"
    open_split(root, "train", cache_dir=cache)
    os.utime(root / name, ns=(5, 5))
    open_split(root, "train", cache_dir=cache)
    assert reads == ["train", "train"]


def test_image_that_appears_in_a_likelier_folder_is_seen(tmp_path: Path) -> None:
    root, cache = make_coco(tmp_path / "set"), tmp_path / "cache"
    shutil.move(root / "train/a.png", root / "a.png")
    assert open_split(root, "train", cache_dir=cache).records[0].path == f"{root}/a.png"
    write_image(root / "train/a.png")
    assert open_split(root, "train", cache_dir=cache).records[0].path == f"{root}/train/a.png"


def test_names_that_only_labels_give_are_seen(tmp_path: Path) -> None:
    root, cache = make_voc(tmp_path / "set"), tmp_path / "cache"
    assert read_class_map(root, cache_dir=cache).names == ("cat",)
    text = (root / "train/a.xml").read_text()
    write_text(root / "train/a.xml", text.replace("cat", "dog"))
    assert read_class_map(root, cache_dir=cache).names == ("dog",)
    assert open_split(root, "train", cache_dir=cache).class_map.names == ("dog",)


def test_splits_are_separate(tmp_path: Path, reads: list[str]) -> None:
    root, cache = make_yolo(tmp_path / "set"), tmp_path / "cache"
    for split in ("train", "val"):
        open_split(root, split, cache_dir=cache)  # type: ignore[arg-type]
    write_text(root / "labels/val/a.txt", "")
    for split in ("train", "val"):
        open_split(root, split, cache_dir=cache)  # type: ignore[arg-type]
    assert reads == ["train", "val", "val"]


def test_fresh_files_are_not_trusted(tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_cache, "SETTLE_S", 2.0)
    root, cache = make_yolo(tmp_path / "set"), tmp_path / "cache"
    open_split(root, "train", cache_dir=cache)
    open_split(root, "train", cache_dir=cache)
    assert reads == ["train", "train"]


def test_change_while_reading_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_cache, "SETTLE_S", 0.0)
    cache, inputs = index_cache.IndexCache(tmp_path / "cache"), tmp_path / "a.txt"
    inputs.write_text("old")
    monkeypatch.setattr(index_cache.time, "time", lambda: inputs.stat().st_ctime + 1)
    codec = index_cache.Codec(lambda text: {"text": np.array(text)}, lambda arrays: str(arrays["text"]))

    def read(trace: index_cache.InputTrace) -> str:
        trace.add_file(inputs)
        text = inputs.read_text()
        os.utime(inputs, (4e9, 4e9))
        return text

    assert cache.fetch({}, codec, read) == "old"
    inputs.write_text("new")
    assert cache.fetch({}, codec, read) == "new"


def test_default_folder_follows_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    open_split(make_yolo(tmp_path / "set"), "train")
    assert [path.suffix for path in sorted((tmp_path / "home/lucid-yolo/index").iterdir())] == [".lock", ".npz"]


@pytest.mark.parametrize("damage", [b"", b"no archive", None])
def test_damaged_cache_is_read_anew(
    tmp_path: Path, reads: list[str], caplog: pytest.LogCaptureFixture, damage: bytes | None
) -> None:
    root, cache = make_yolo(tmp_path / "set"), tmp_path / "cache"
    one = open_split(root, "train", cache_dir=cache)
    (path,) = cache.glob("*.npz")
    path.write_bytes(path.read_bytes()[:500] if damage is None else damage)
    with caplog.at_level(logging.WARNING):
        same(one, open_split(root, "train", cache_dir=cache))
    assert "cannot be used" in caplog.text
    open_split(root, "train", cache_dir=cache)
    assert reads == ["train", "train"]


def test_folder_that_cannot_be_made_is_said_and_done_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        split = open_split(make_yolo(tmp_path / "set"), "train", cache_dir=tmp_path / "file/cache")
    assert len(split.records) == 3
    assert "cannot be made" in caplog.text


def test_many_at_once_read_once(tmp_path: Path, reads: list[str]) -> None:
    root = make_yolo(tmp_path / "set")
    threads = [
        threading.Thread(target=open_split, args=(root, "train"), kwargs={"cache_dir": tmp_path / "cache"})
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reads == ["train"]
