import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lucid_yolo.data.dataset import DataSplit, open_split, read_class_map
from lucid_yolo.data.readers.boxes import RowError
from lucid_yolo.data.readers.yolo import parse_row
from lucid_yolo.structures import ClassMap

WIDTH, HEIGHT = 200, 100
CLASSES = ClassMap.from_names(["cat", "traffic light", "犬"])
YAML = "train: images/train\nval: images/val\nnames: [cat, traffic light, 犬]\n"


def write_image(path: Path, size: tuple[int, int] = (WIDTH, HEIGHT), orientation: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.new("RGB", size).save(path, exif=exif)


def write_text(path: Path, text: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)


def make_root(root: Path, label: str | bytes, yaml: str = YAML, split: str = "train") -> Path:
    write_text(root / "data.yaml", yaml)
    write_image(root / "images" / split / "a.png")
    write_text(root / "labels" / split / "a.txt", label)
    return root


def only_boxes(split: DataSplit) -> list[list[float]]:
    return [box for record in split.records for box in record.boxes_xyxy_src.tolist()]


ROWS: list[tuple[str | bytes, str, str, str]] = [
    ("0 0.5 0.5 0.2 0.4", "kept", "", "plain"),
    ("0.0 .5 5e-1 0.2 0.4", "kept", "", "float class, bare point, exponent"),
    ("0\t0.5\t0.5  0.2 0.4  ", "kept", "", "tabs and trailing blanks"),
    ("0 0.5 0.5 1.0000005 1", "kept", "", "rounding of six digits"),
    ("0 0.4 0.3 0.6 0.3 0.6 0.7", "kept", "", "triangle"),
    ("0 0.4 0.3 0.6 0.3 0.6 0.7 0.4 0.7", "kept", "", "oriented corners"),
    ("0 0.04 0.5 0.1 0.4", "clipped", "beyond the border", "1 % beyond"),
    ("0 -0.04 0.5 0.5 0.5 0.5 1.04", "clipped", "beyond the border", "polygon 4 % beyond"),
    ("0 0.0 0.5 0.2 0.4", "dropped", "outside the image", "10 % beyond"),
    ("0 -0.04 0.5 0.02 0.4", "dropped", "empty box", "nothing is left inside"),
    ("0 0.5 0.5 0 0.4", "dropped", "empty box", "no width"),
    ("0 0.5 0.5 -0.2 0.4", "dropped", "empty box", "negative width"),
    ("0 0.2 0.2 0.4 0.2 0.3 0.2", "dropped", "empty box", "flat polygon"),
    ("0 100 50 40 40", "dropped", "not fractions", "pixels"),
    ("0 nan 0.5 0.2 0.4", "dropped", "not finite", "NaN"),
    ("0 inf 0.5 0.2 0.4", "dropped", "not finite", "infinity"),
    ("0 0.5 0.5 0.2", "dropped", "wrong number of fields", "four fields"),
    ("0 0.5 0.5 0.2 0.4 0.9", "dropped", "wrong number of fields", "a prediction with confidence"),
    ("0", "dropped", "wrong number of fields", "class only"),
    ("0 0.5 0.5 x 0.4", "dropped", "not a number", "a letter"),
    ("0,0.5,0.5,0.2,0.4", "dropped", "wrong separator", "commas"),
    ("cat 0.5 0.5 0.2 0.4", "dropped", "class name instead of id", "name"),
    ("traffic light 0.5 0.5 0.2 0.4", "dropped", "class name instead of id", "name of two words"),
    ("dog 0.5 0.5 0.2 0.4", "dropped", "class is not a number", "unknown name"),
    ("0.5 0.5 0.5 0.2 0.4", "dropped", "class is not an integer", "half a class"),
    ("nan 0.5 0.5 0.2 0.4", "dropped", "class is not an integer", "NaN class"),
    ("3 0.5 0.5 0.2 0.4", "dropped", "class id unknown", "id is nc"),
    ("-1 0.5 0.5 0.2 0.4", "dropped", "class id unknown", "negative id"),
    (b"0 0.5 0.5 0.2 0.4\xff", "dropped", "not UTF-8 text", "a stray byte"),
]


@pytest.mark.parametrize(("row", "row_bin", "reason", "why"), ROWS, ids=[row[3] for row in ROWS])
def test_row_ends_in_its_bin(tmp_path: Path, row: str | bytes, row_bin: str, reason: str, why: str) -> None:
    data = row if isinstance(row, bytes) else row.encode()
    split = open_split(make_root(tmp_path, b"1 0.5 0.5 0.5 0.5\n" + data + b"\n"), "train")
    counts = {str(name): count for name, count in split.account.counts.items()}
    assert counts.pop("kept") == (2 if row_bin == "kept" else 1)
    if row_bin != "kept":
        assert counts.pop(row_bin) == 1
        (entry,) = split.account.entries
        assert entry.reason == reason
        assert entry.where == f"{tmp_path}/labels/train/a.txt:2"
    assert not any(counts.values())
    assert len(split.records[0].labels) == (1 if row_bin == "dropped" else 2)
    assert split.records[0].num_label_rows == 2


def test_whole_table_sums_to_all_rows(tmp_path: Path) -> None:
    data = b"\r\n\r\n".join(row if isinstance(row, bytes) else row.encode() for row, *_ in ROWS)
    account = open_split(make_root(tmp_path, b"\xef\xbb\xbf" + data), "train").account
    assert account.num_rows == len(ROWS)
    for row_bin, count in account.counts.items():
        assert count == sum(row[1] == row_bin for row in ROWS)


def test_boxes_are_pixels_of_the_upright_image(tmp_path: Path) -> None:
    root = make_root(tmp_path, "2 0.5 0.5 0.2 0.4\n0 -0.04 0.5 0.5 0.5 0.5 1.04\n")
    write_image(root / "images/train/a.png", (HEIGHT, WIDTH), orientation=6)
    (record,) = open_split(root, "train").records
    assert (record.height_src, record.width_src) == (HEIGHT, WIDTH)
    np.testing.assert_allclose(record.boxes_xyxy_src, [[80, 30, 120, 70], [0, 50, 100, 100]])
    np.testing.assert_allclose(record.area_src, [1600, 5000])
    assert record.labels.tolist() == [2, 0]
    assert record.is_ignored.tolist() == [False, False]
    assert record.image_id == "a"


def test_polygon_rows_keep_their_outline(tmp_path: Path) -> None:
    root = make_root(tmp_path, "2 0.5 0.5 0.2 0.4\n0 -0.04 0.5 0.5 0.5 0.5 1.04\n0 0.1 0.2 0.3 0.2\n")
    (record,) = open_split(root, "train").records
    assert record.polygons is not None
    assert record.polygons.has_rings.tolist() == [False, True, False]
    assert record.polygons.rings(0) == []
    np.testing.assert_allclose(record.polygons.rings(1), [[[0, 50], [100, 50], [100, 100]]])
    (plain,) = open_split(make_root(tmp_path / "boxes", "2 0.5 0.5 0.2 0.4"), "train").records
    assert plain.polygons is None


def test_message_tells_found_and_expected() -> None:
    with pytest.raises(RowError, match=r"found 51 fields, expected 5 or 5 \+ K·D = 56 with K=17, D=3 from `kpt_shape`"):
        parse_row("0 " + "0.5 " * 50, CLASSES, (17, 3))
    with pytest.raises(RowError, match=r"found 7, expected an integer 0\.\.2"):
        parse_row("7 0.5 0.5 0.1 0.1", CLASSES)


def test_keypoint_row_is_its_box(tmp_path: Path) -> None:
    root = make_root(tmp_path, "0 0.5 0.5 0.2 0.4" + " 0.1 0.9" * 4, YAML + "kpt_shape: [4, 2]\n")
    np.testing.assert_allclose(only_boxes(open_split(root, "train")), [[80, 30, 120, 70]])


def test_images_without_labels_are_background_and_counted(tmp_path: Path) -> None:
    root = make_root(tmp_path, "\n \n")
    write_image(root / "images/train/b.png")
    split = open_split(root, "train")
    assert [len(record.labels) for record in split.records] == [0, 0]
    (note,) = [n for n in split.account.notes if "background" in n.kind]
    assert note.count == 1
    assert note.examples[0].endswith("labels/train/b.txt")
    with pytest.raises(ValueError, match="at least one image with an object"):
        split.account.check()


def test_unusable_image_is_left_out_with_its_rows(tmp_path: Path) -> None:
    root = make_root(tmp_path, "0 0.5 0.5 0.2 0.4")
    write_text(root / "images/train/b.jpg", "<!doctype html>")
    write_text(root / "labels/train/b.txt", "0 0.5 0.5 0.2 0.4\n0 0.5 0.5 0.1 0.1\n")
    split = open_split(root, "train")
    assert len(split.records) == 1
    assert [item.path for item in split.account.left_out] == [str(root / "images/train/b.jpg")]
    assert split.account.reasons("dropped") == {"image unusable": 2}


def test_label_file_without_image_is_dropped_row_by_row(tmp_path: Path) -> None:
    root = make_root(tmp_path, "0 0.5 0.5 0.2 0.4")
    write_text(root / "labels/train/gone.txt", "0 0.5 0.5 0.2 0.4\n\n1 0.5 0.5 0.2 0.4\n")
    write_text(root / "labels/train/classes.txt", "cat\n")
    account = open_split(root, "train").account
    assert [entry.where for entry in account.entries] == [f"{root}/labels/train/gone.txt:{line}" for line in (1, 3)]
    assert account.reasons("dropped") == {"no image for this label file": 2}


def test_repeated_row_is_kept_and_noted(tmp_path: Path) -> None:
    account = open_split(make_root(tmp_path, "0 0.5 0.5 0.2 0.4\n" * 3), "train").account
    assert account.counts["kept"] == 3
    assert [note.count for note in account.notes if "repeated" in note.kind] == [2]


LAYOUTS = [
    ("images/val/a.png", "labels/val/a.txt", "val: images/val", "usual"),
    ("images/valid/a.png", "labels/valid/a.txt", "val: images/val", "valid for val"),
    ("valid/images/a.png", "valid/labels/a.txt", "val: ../valid/images", "leading .. of an exporter"),
    ("valid/images/a.png", "valid/labels/a.txt", "valid: valid/images", "key valid"),
    ("valid/images/a.png", "valid/labels/a.txt", "", "found by looking"),
    ("images/valid/a.png", "labels/valid/a.txt", "", "found by looking, images first"),
    ("d/images/val/a.png", "d/labels/val/a.txt", "path: d\nval: images/val", "path"),
    ("images/val/a.png", "labels/val/a.txt", "path: /nowhere/else\nval: images/val", "path of another machine"),
    ("images/x/images/a.png", "images/x/labels/a.txt", "val: images/x/images", "last images folder"),
    ("images/val/deep/a.png", "labels/val/deep/a.txt", "val: images/val", "nested"),
    ("pictures/a.png", "pictures/a.txt", "val: pictures", "label beside the image"),
    ("images/val/a.png", "labels_v2/val/a.txt", "val: images/val\nlabels: labels_v2", "labels override"),
    ("pictures/a.png", "marks/a.txt", "val: pictures\nlabels: marks", "override without images folder"),
    ("bilder/größe/图/a.png", "bilder/größe/图/a.txt", "val: bilder/größe", "non-ASCII"),
    ("images/val/a.PNG", "labels/val/a.txt", "val: [images/val]", "list and upper-case suffix"),
    ("images/val/a.b.png", "labels/val/a.b.txt", "val: images/val", "dots in the name"),
    ("images/val/a.png", "labels/val/a.txt", "val: images/val/a.png", "a single image"),
]


@pytest.mark.parametrize(("image", "label", "yaml", "why"), LAYOUTS, ids=[row[3] for row in LAYOUTS])
def test_layout(tmp_path: Path, image: str, label: str, yaml: str, why: str) -> None:
    write_image(tmp_path / image)
    write_text(tmp_path / label, "1 0.5 0.5 0.2 0.4")
    write_text(tmp_path / "data.yaml", f"{yaml}\nnames: [cat, dog]\n")
    for data_root in (tmp_path, tmp_path / "data.yaml"):
        split = open_split(data_root, "val")
        assert [record.path for record in split.records] == [str(tmp_path / image)], why
        assert split.account.counts["kept"] == 1, why
        assert split.source_format == "yolo"


def test_text_file_of_images(tmp_path: Path) -> None:
    make_root(tmp_path, "0 0.5 0.5 0.2 0.4", "train: lists/train.txt\nnames: [cat]\n")
    absolute = tmp_path / "images/other/b.png"
    write_image(absolute)
    listed = f"\ufeff./images/train/a.png\r\n\r\n{absolute}\r\nimages/train/a.png\r\nimages/train/gone.png\r\n"
    write_text(tmp_path / "lists/train.txt", listed)
    split = open_split(tmp_path, "train")
    assert [record.image_id for record in split.records] == ["images/other/b", "images/train/a"]
    assert [item.reason for item in split.account.left_out] == ["no such file"]
    assert [note.count for note in split.account.notes if "listed twice" in note.kind] == [1]


def test_several_folders_with_equal_names_have_distinct_ids(tmp_path: Path) -> None:
    for part in "pq":
        write_image(tmp_path / part / "images/a.png")
    write_image(tmp_path / "p/images/b.png")
    write_image(tmp_path / "p/images/b.jpg")
    write_text(tmp_path / "data.yaml", "train: [q/images, p/images]\nnames: [cat]\n")
    ids = [record.image_id for record in open_split(tmp_path, "train").records]
    assert ids == ["p/images/a.png", "p/images/b.jpg", "p/images/b.png", "q/images/a.png"]


def test_links_are_followed_under_their_own_name(tmp_path: Path) -> None:
    write_image(tmp_path / "store/blob1.png")
    root = make_root(tmp_path / "set", "0 0.5 0.5 0.2 0.4")
    os.remove(root / "images/train/a.png")
    os.symlink(tmp_path / "store/blob1.png", root / "images/train/a.png")
    os.symlink(root / "images/train", root / "images/train/loop")
    split = open_split(root, "train")
    assert [record.path for record in split.records] == [str(root / "images/train/a.png")]
    assert split.account.counts["kept"] == 1


def test_classes_from_map_keep_their_ids_and_text(tmp_path: Path) -> None:
    root = make_root(tmp_path, "7 0.5 0.5 0.2 0.4\n0 0.5 0.5 0.2 0.4\n")
    write_text(root / "data.yaml", "train: images/train\nnames: {7: 'no', 1: yes, 3: 1.0}\nnc: 3\n")
    class_map = read_class_map(root)
    assert class_map == ClassMap(("yes", "1.0", "no"), (1, 3, 7))
    split = open_split(root, "train")
    assert split.class_map == class_map
    assert split.records[0].labels.tolist() == [2]
    assert split.account.entries[0].detail == "found 0, expected one of [1, 3, 7]"


def test_folder_without_yaml_takes_names_from_classes_txt(tmp_path: Path) -> None:
    root = make_root(tmp_path, "1 0.5 0.5 0.2 0.4")
    os.remove(root / "data.yaml")
    with pytest.raises(ValueError, match="class names: expected"):
        open_split(root, "train")
    write_text(root / "classes.txt", "cat\n犬\n")
    split = open_split(root, "train")
    assert split.class_map.names == ("cat", "犬")
    assert split.account.counts["kept"] == 1


@pytest.mark.parametrize(
    ("yaml", "message", "reason"),
    [
        ("train: images/train\nnc: 2\nnames: [cat]\n", "`nc` is 2 but `names` holds 1", "contradiction"),
        ("train: images/train\nnames: {a: cat}\n", "integer ids as keys", "names the wrong way round"),
        ("train: images/gone\nnames: [cat]\n", "found nothing at .*gone", "no such folder"),
        ("- a\n- b\n", "expected a mapping", "a list"),
        ("train: [\n", "expected UTF-8 YAML", "broken YAML"),
        ("train: images/empty\nnames: [cat]\n", "expected images, found none", "empty folder"),
        ("val: images/val\nnames: [cat]\nkpt_shape: 17\n", r"`kpt_shape` expected \[K, D\]", "keypoint shape"),
    ],
)
def test_wrong_yaml_is_one_clear_error(tmp_path: Path, yaml: str, message: str, reason: str) -> None:
    make_root(tmp_path, "0 0.5 0.5 0.2 0.4", yaml)
    (tmp_path / "images/empty").mkdir()
    with pytest.raises(ValueError, match=message):
        open_split(tmp_path, "train")


def test_missing_split_and_missing_root(tmp_path: Path) -> None:
    make_root(tmp_path, "0 0.5 0.5 0.2 0.4")
    with pytest.raises(ValueError, match="split 'test'"):
        open_split(tmp_path, "test")
    with pytest.raises(FileNotFoundError, match="data_root"):
        open_split(tmp_path / "gone", "train")


def test_reading_twice_is_equal_and_writes_nothing(tmp_path: Path) -> None:
    root = make_root(tmp_path, "0 0.5 0.5 0.2 0.4\n9 0.5 0.5 0.2 0.4\n")
    for name in "edcb":
        write_image(root / f"images/train/{name}.png")
    before = sorted(tmp_path.rglob("*"))
    one, other = open_split(root, "train"), open_split(root, "train")
    assert [record.image_id for record in one.records] == list("abcde")
    assert one.account == other.account
    assert sorted(tmp_path.rglob("*")) == before
