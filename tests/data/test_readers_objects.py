"""VOC XML and labelme JSON: object by object, layouts, classes."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lucid_yolo.data.dataset import DataSplit, list_splits, open_split, read_class_map

WIDTH, HEIGHT = 200, 100
VOC_HEAD = f"<size><width>{WIDTH}</width><height>{HEIGHT}</height><depth>3</depth></size>"


def write_image(path: Path, size: tuple[int, int] = (WIDTH, HEIGHT), orientation: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.new("RGB", size).save(path, exif=exif)


def write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def voc_object(
    corners: tuple[object, ...] = (20, 10, 60, 40), name: str | None = "cat", more: str = "", bndbox: str | None = None
) -> str:
    sides = zip(("xmin", "ymin", "xmax", "ymax"), corners, strict=False)
    box = "".join(f"<{side}>{value}</{side}>" for side, value in sides) if bndbox is None else bndbox
    title = "" if name is None else f"<name>{name}</name>"
    return f"<object>{title}{more}<bndbox>{box}</bndbox></object>"


def voc(*objects: str, head: str = VOC_HEAD) -> str:
    return f"<annotation><filename>x.jpg</filename>{head}{''.join(objects)}</annotation>"


def shape(points: Any = ((20, 10), (60, 40)), label: Any = "cat", kind: Any = "rectangle", **other: Any) -> Any:
    return {"label": label, "points": points, "shape_type": kind, "flags": {}, **other}


def labelme(*shapes: Any, **other: Any) -> str:
    content = {"version": "5.0", "flags": {}, "shapes": list(shapes), "imagePath": "x.jpg", "imageData": None}
    return json.dumps({**content, "imageHeight": HEIGHT, "imageWidth": WIDTH, **other}, ensure_ascii=False)


def make_root(root: Path, label: str, suffix: str, names: str = "cat\n犬\n") -> Path:
    write_image(root / "train/a.png")
    write_text(root / f"train/a{suffix}", label)
    write_text(root / "classes.txt", names)
    return root


VOC_OBJECTS: list[tuple[str, str, str, str]] = [
    (voc_object(), "kept", "", "plain"),
    (voc_object((20.5, " 10 ", "6e1", 40)), "kept", "", "numbers in other spellings"),
    (voc_object(name=" 犬 "), "kept", "", "another script, blanks around"),
    (voc_object(more="<truncated>1</truncated><difficult>0</difficult>"), "kept", "", "truncated is no reason"),
    (voc_object((-4, 10, 40, 30)), "clipped", "beyond the border", "2 % beyond"),
    (voc_object(more="<difficult>1</difficult>"), "ignored", "difficult", "difficult"),
    (voc_object(more="<part><bndbox><xmin>1</xmin></bndbox></part>"), "kept", "", "parts of an object"),
    (voc_object((-30, 10, 40, 30)), "dropped", "outside the image", "15 % beyond"),
    (voc_object((20, 10, 20, 40)), "dropped", "empty box", "no width"),
    (voc_object((60, 10, 20, 40)), "dropped", "empty box", "corners the wrong way round"),
    (voc_object(("nan", 10, 40, 30)), "dropped", "not finite", "NaN"),
    (voc_object((0.1, 0.1, 0.4, 0.5)), "dropped", "not pixels", "fractions"),
    (voc_object((20, 10, 40)), "dropped", "no box", "three sides"),
    (voc_object(bndbox=""), "dropped", "no box", "no sides"),
    (voc_object(name=None), "dropped", "no class name", "no name"),
    (voc_object(name="dog"), "dropped", "class name unknown", "unknown name"),
]

LABELME_SHAPES: list[tuple[Any, str, str, str]] = [
    (shape(), "kept", "", "plain"),
    (shape(((60, 40), (20, 10))), "kept", "", "dragged from the lower right"),
    (shape(((20, 10), (60, 10), (60, 40)), kind="polygon"), "kept", "", "polygon"),
    (shape(((40, 25), (40, 35)), kind="circle"), "kept", "", "circle"),
    (shape(flags={"ignore": True}), "ignored", "ignore", "ignore flag"),
    (shape(flags={"ignore": False}), "kept", "", "ignore flag not set"),
    (shape(label="__ignore__"), "ignored", "__ignore__", "the name for what is not used"),
    (shape(((-4, 10), (40, 30))), "clipped", "beyond the border", "2 % beyond"),
    (shape(((20, 10),), kind="point"), "dropped", "no box", "a point"),
    (shape(((20, 10), (60, 40)), kind="polygon"), "dropped", "no box", "polygon of two"),
    (shape(((20, 10), (20, 40))), "dropped", "empty box", "no width"),
    (shape(((20, float("nan")), (40, 40))), "dropped", "not finite", "NaN"),
    (shape("far away"), "dropped", "no box", "text for points"),
    (shape(label="dog"), "dropped", "class name unknown", "unknown name"),
    (shape(label=None), "dropped", "not a shape", "no label"),
    (shape(kind=["rectangle"]), "dropped", "no box", "a list for a type"),
    (17, "dropped", "not a shape", "a number"),
]


def check_bin(split: DataSplit, row_bin: str, reason: str, where: str) -> None:
    counts = {str(name): count for name, count in split.account.counts.items()}
    assert counts.pop("kept") == (2 if row_bin == "kept" else 1)
    if row_bin != "kept":
        assert counts.pop(row_bin) == 1
        (entry,) = split.account.entries
        assert (entry.reason, entry.where) == (reason, where)
    assert not any(counts.values())
    (record,) = split.records
    assert len(record.labels) == (1 if row_bin == "dropped" else 2)
    assert record.is_ignored.tolist()[1:] == ([row_bin == "ignored"] if row_bin != "dropped" else [])


@pytest.mark.parametrize(("item", "row_bin", "reason", "why"), VOC_OBJECTS, ids=[row[3] for row in VOC_OBJECTS])
def test_voc_object_ends_in_its_bin(tmp_path: Path, item: str, row_bin: str, reason: str, why: str) -> None:
    root = make_root(tmp_path, voc(voc_object((30, 30, 50, 50)), item), ".xml")
    split = open_split(root, "train")
    assert split.source_format == "voc"
    check_bin(split, row_bin, reason, f"{root}/train/a.xml:object[1]")


@pytest.mark.parametrize(("item", "row_bin", "reason", "why"), LABELME_SHAPES, ids=[row[3] for row in LABELME_SHAPES])
def test_labelme_shape_ends_in_its_bin(tmp_path: Path, item: Any, row_bin: str, reason: str, why: str) -> None:
    root = make_root(tmp_path, labelme(shape(((30, 30), (50, 50))), item), ".json")
    split = open_split(root, "train")
    assert split.source_format == "labelme"
    check_bin(split, row_bin, reason, f"{root}/train/a.json:shapes[1]")


@pytest.mark.parametrize("origin", ["", "Unknown", "The VOC2007 Database"])
def test_voc_counts_from_one_in_its_own_data_sets_only(tmp_path: Path, origin: str) -> None:
    head = f"<source><database>{origin}</database></source>{VOC_HEAD}"
    split = open_split(make_root(tmp_path, voc(voc_object((1, 1, WIDTH, HEIGHT)), head=head), ".xml"), "train")
    first = 0 if "VOC" in origin else 1
    assert split.records[0].boxes_xyxy_src.tolist() == [[first, first, WIDTH, HEIGHT]]


def test_circle_is_bounded_by_its_radius(tmp_path: Path) -> None:
    label = labelme(shape(((50, 40), (53, 44)), kind="circle"))
    split = open_split(make_root(tmp_path, label, ".json"), "train")
    np.testing.assert_allclose(split.records[0].boxes_xyxy_src, [[45, 35, 55, 45]])


@pytest.mark.parametrize(("suffix", "make"), [(".xml", "voc"), (".json", "labelme")])
def test_boxes_of_unturned_pixels_are_turned(tmp_path: Path, suffix: str, make: str) -> None:
    label = voc(voc_object((20, 10, 60, 40))) if make == "voc" else labelme(shape(((20, 10), (60, 40))))
    root = make_root(tmp_path, label, suffix)
    write_image(root / "train/a.png", (WIDTH, HEIGHT), orientation=6)
    split = open_split(root, "train")
    (record,) = split.records
    assert (record.height_src, record.width_src) == (WIDTH, HEIGHT)
    np.testing.assert_allclose(record.boxes_xyxy_src, [[60, 20, 90, 60]])
    assert [note.count for note in split.account.notes if "EXIF" in note.kind] == [1]


@pytest.mark.parametrize(
    ("suffix", "label"), [(".xml", "<html>"), (".xml", "<html></html>"), (".json", "{"), (".json", '{"shapes": 3}')]
)
def test_image_with_an_unreadable_label_file_is_no_background(tmp_path: Path, suffix: str, label: str) -> None:
    good = voc(voc_object()) if suffix == ".xml" else labelme(shape())
    root = make_root(tmp_path, good, suffix)
    write_image(root / "train/b.png")
    write_text(root / f"train/b{suffix}", label)
    split = open_split(root, "train")
    assert [record.image_id for record in split.records] == ["a"]
    assert [item.path for item in split.account.left_out] == [f"{root}/train/b.png"]
    assert split.account.counts["dropped"] == 1


def test_image_without_a_file_is_background_and_repeated_objects_are_noted(tmp_path: Path) -> None:
    root = make_root(tmp_path, voc(voc_object(), voc_object()), ".xml")
    write_image(root / "train/b.png")
    split = open_split(root, "train")
    assert [len(record.labels) for record in split.records] == [2, 0]
    kinds = [note.kind for note in split.account.notes]
    assert any("background" in kind for kind in kinds)
    assert any("repeated" in kind for kind in kinds)


def test_classes_without_a_list_are_the_names_of_all_splits(tmp_path: Path) -> None:
    root = make_root(tmp_path, voc(voc_object(name="zebra"), voc_object(name="ant")), ".xml")
    os.remove(root / "classes.txt")
    write_image(root / "valid/b.png")
    write_text(root / "valid/b.xml", voc(voc_object(name="犬")))
    assert read_class_map(root).names == ("ant", "zebra", "犬")
    assert open_split(root, "val").records[0].labels.tolist() == [2]
    assert list_splits(root) == ("train", "val")


def test_voc_layout_with_image_sets(tmp_path: Path) -> None:
    for name in ("000001", "000002", "000003"):
        write_image(tmp_path / f"JPEGImages/{name}.jpg")
        write_text(tmp_path / f"Annotations/{name}.xml", voc(voc_object()))
    write_text(tmp_path / "ImageSets/Main/train.txt", "000001\r\n000003\r\n000009\r\n")
    write_text(tmp_path / "ImageSets/Main/val.txt", "000002  -1\n")
    write_text(tmp_path / "ImageSets/Main/cat_train.txt", "000001  1\n")
    train = open_split(tmp_path, "train")
    assert train.source_format == "voc"
    assert [record.image_id for record in train.records] == ["000001", "000003"]
    assert [item.reason for item in train.account.left_out] == ["no such file"]
    assert train.account.counts["kept"] == 2
    assert [record.image_id for record in open_split(tmp_path, "val").records] == ["000002"]


def test_several_roots_in_one_split(tmp_path: Path) -> None:
    for year in ("2007", "2012"):
        write_image(tmp_path / f"VOC{year}/JPEGImages/1.jpg")
        write_text(tmp_path / f"VOC{year}/Annotations/1.xml", voc(voc_object()))
        write_text(tmp_path / f"VOC{year}/ImageSets/Main/train.txt", "1\n")
    lists = ", ".join(f"VOC{year}/ImageSets/Main/train.txt" for year in ("2007", "2012"))
    write_text(tmp_path / "data.yaml", f"train: [{lists}]\nnames: [cat]\n")
    split = open_split(tmp_path, "train")
    assert [record.image_id for record in split.records] == ["VOC2007/JPEGImages/1.jpg", "VOC2012/JPEGImages/1.jpg"]
    assert split.account.counts["kept"] == 2


@pytest.mark.parametrize("folder", ["labels", "annotations", "Annotations", "images"])
def test_label_folders_of_named_images(tmp_path: Path, folder: str) -> None:
    write_image(tmp_path / "images/train/a.jpg")
    write_text(tmp_path / f"{folder}/train/a.xml", voc(voc_object()))
    write_text(tmp_path / "data.yaml", "train: images/train\nnames: [cat]\n")
    split = open_split(tmp_path, "train")
    assert (split.source_format, split.account.counts["kept"]) == ("voc", 1)


def test_text_labels_win_over_others_and_the_format_can_be_chosen(tmp_path: Path) -> None:
    root = make_root(tmp_path, voc(voc_object(), voc_object((1, 2, 30, 40))), ".xml")
    write_text(root / "train/a.txt", "0 0.5 0.5 0.2 0.4\n")
    assert open_split(root, "train").source_format == "yolo"
    assert open_split(root, "train", "voc").account.counts["kept"] == 2
