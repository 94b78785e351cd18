import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lucid_yolo.data.dataset import DataSplit, open_split, read_class_map
from lucid_yolo.structures import ClassMap

WIDTH, HEIGHT = 200, 100
CATEGORIES = [{"id": 90, "name": "犬"}, {"id": 3, "name": "cat"}]
TURNED = {
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def image_entry(image_id: int | str = 1, file_name: str = "a.png", **other: Any) -> dict[str, Any]:
    return {"id": image_id, "file_name": file_name, "width": WIDTH, "height": HEIGHT, **other}


def make_root(
    root: Path,
    annotations: list[Any],
    images: list[Any] | None = None,
    *,
    json_name: str = "annotations/instances_train2017.json",
    image_name: str = "train2017/a.png",
    categories: list[Any] = CATEGORIES,
) -> Path:
    for path in (root / json_name, root / image_name):
        path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (WIDTH, HEIGHT)).save(root / image_name)
    content = {"images": images or [image_entry()], "annotations": annotations, "categories": categories}
    (root / json_name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return root


def box(bbox: Any = (20, 10, 40, 30), **other: Any) -> dict[str, Any]:
    return {"id": 5, "image_id": 1, "category_id": 3, "bbox": bbox, **other}


def read_one(root: Path, annotation: Any) -> DataSplit:
    return open_split(make_root(root, [box(), annotation]), "train")


ROWS: list[tuple[Any, str, str, str]] = [
    (box(), "kept", "", "plain"),
    (box([20.5, 1e1, "40", 30]), "kept", "", "numbers in other spellings"),
    (box(None, segmentation=[[10, 10, 30, 10, 30, 40], [50, 50, 60, 50, 60, 60]]), "kept", "", "polygons only"),
    (box([-4, 10, 40, 30]), "clipped", "beyond the border", "2 % beyond"),
    (box(iscrowd=1), "ignored", "iscrowd", "crowd"),
    (box(ignore=1, iscrowd=0), "ignored", "ignore", "ignore region"),
    (box(iscrowd=0), "kept", "", "not a crowd"),
    (box([-30, 10, 60, 30]), "dropped", "outside the image", "15 % beyond the left"),
    (box([190, 10, 60, 30]), "dropped", "outside the image", "25 % beyond the right"),
    (box([20, 10, 0, 30]), "dropped", "empty box", "no width"),
    (box([float("nan"), 10, 40, 30]), "dropped", "not finite", "NaN"),
    (box([0.1, 0.1, 0.2, 0.2]), "dropped", "not pixels", "fractions"),
    (box([20, 10, 40]), "dropped", "not a box", "three numbers"),
    (box([20, 10, 40, 10**400]), "dropped", "not a box", "a number beyond floats"),
    (box(area=10**400), "kept", "", "an area beyond floats"),
    (box(None, segmentation={"size": [9, 9], "counts": [10**30]}), "dropped", "not a mask", "a run beyond integers"),
    (box(None), "dropped", "no box", "neither box nor polygon"),
    (box(None, segmentation={"size": [100, 200], "counts": [2010, 5, 17985]}), "kept", "", "run lengths only"),
    (box(None, segmentation={"size": [9, 9], "counts": [81]}), "dropped", "empty box", "mask without a pixel"),
    (box(None, segmentation={"size": [9, 9], "counts": [9, 9]}), "dropped", "not a mask", "runs end early"),
    (box(None, segmentation={"size": [9, 9], "counts": "~"}), "dropped", "not a mask", "text that is no mask"),
    (box(None, segmentation={"size": [9, 9]}), "dropped", "not a mask", "no runs"),
    (box(category_id=7), "dropped", "category id unknown", "category 7"),
    (box(category_id=None), "dropped", "category id unknown", "no category"),
    (box(image_id=99), "dropped", "image id unknown", "no such image"),
    (17, "dropped", "not an annotation", "a number"),
]


@pytest.mark.parametrize(("annotation", "row_bin", "reason", "why"), ROWS, ids=[row[3] for row in ROWS])
def test_annotation_ends_in_its_bin(tmp_path: Path, annotation: Any, row_bin: str, reason: str, why: str) -> None:
    split = read_one(tmp_path, annotation)
    counts = {str(name): count for name, count in split.account.counts.items()}
    assert counts.pop("kept") == (2 if row_bin == "kept" else 1)
    if row_bin != "kept":
        assert counts.pop(row_bin) == 1
        (entry,) = split.account.entries
        assert entry.reason == reason
        assert entry.where == f"{tmp_path}/annotations/instances_train2017.json:annotations[1]"
    assert not any(counts.values())
    assert len(split.records[0].labels) == (1 if row_bin == "dropped" else 2)


def test_values_of_a_record(tmp_path: Path) -> None:
    annotations = [box(area=345.5), box(category_id=90, iscrowd=1, area=0), box([180, 80, 24, 20])]
    split = open_split(make_root(tmp_path, annotations), "train")
    assert split.class_map == ClassMap(("cat", "犬"), (3, 90))
    assert split.source_format == "coco"
    (record,) = split.records
    np.testing.assert_allclose(record.boxes_xyxy_src, [[20, 10, 60, 40], [20, 10, 60, 40], [180, 80, 200, 100]])
    np.testing.assert_allclose(record.area_src, [345.5, 1200, 400])
    assert record.labels.tolist() == [0, 1, 0]
    assert record.is_ignored.tolist() == [False, True, False]
    assert (record.height_src, record.width_src) == (HEIGHT, WIDTH)
    assert record.num_label_rows == 3


def test_polygons_without_bbox_give_their_common_box(tmp_path: Path) -> None:
    rings = [[10, 10, 30, 10, 30, 40], [50, 50, 60, 50, 60, 60]]
    (record,) = open_split(make_root(tmp_path, [box([], segmentation=rings)]), "train").records
    np.testing.assert_allclose(record.boxes_xyxy_src, [[10, 10, 60, 60]])


def test_outlines_are_kept_with_all_parts_and_run_lengths_counted(tmp_path: Path) -> None:
    rings = [[10, 10, 30, 10, 30, 40], [50, 50, 60, 50, 60, 60, 50, 101]]
    bad: list[Any] = [[1, 2, 3, 4], [1, 2, 3, 4, 5], ["x"], 7, [1, 2, 3, 4, 5, float("nan")]]
    runs = {"size": [100, 200], "counts": [2010, 5, 17985]}
    annotations = [box(), box(segmentation=rings), box(segmentation=runs), box(segmentation=[*bad, rings[0]])]
    split = open_split(make_root(tmp_path, annotations), "train")
    polygons = split.records[0].polygons
    assert polygons is not None
    assert polygons.has_rings.tolist() == [False, True, False, True]
    first, second = polygons.rings(1)
    np.testing.assert_allclose(first, [[10, 10], [30, 10], [30, 40]], rtol=1e-6)
    np.testing.assert_allclose(second, [[50, 50], [60, 50], [60, 60], [50, 100]], rtol=1e-6)
    np.testing.assert_allclose(polygons.rings(3), [first])
    counts = {note.kind: note.count for note in split.account.notes}
    assert counts["run-length mask (no outline for copy-paste)"] == 1
    assert counts["part of a mask that is no polygon (left out)"] == 5


def test_boxes_alone_have_no_outlines(tmp_path: Path) -> None:
    assert open_split(make_root(tmp_path, [box()]), "train").records[0].polygons is None


@pytest.mark.parametrize("image_id", [139, "000139", "图 1"])
def test_image_ids_come_back_unchanged(tmp_path: Path, image_id: int | str) -> None:
    root = make_root(tmp_path, [box(image_id=image_id)], [image_entry(image_id)])
    (record,) = open_split(root, "train").records
    assert record.image_id == image_id
    assert type(record.image_id) is type(image_id)
    assert len(record.labels) == 1


LAYOUTS = [
    ("annotations/instances_val2017.json", "val2017/a.png", "COCO"),
    ("annotations/instances_val2017.json", "images/val2017/a.png", "COCO below images"),
    ("annotations/instances_val.json", "images/a.png", "one image folder"),
    ("annotations/val.json", "images/val/a.png", "JSON per split"),
    ("val.json", "val/a.png", "JSON per split at the top"),
    ("valid.json", "valid/images/a.png", "valid"),
    ("valid/_annotations.coco.json", "valid/a.png", "JSON in the split's folder"),
    ("annotations/instances_val2017.json", "a.png", "images at the top"),
]


@pytest.mark.parametrize(("json_name", "image_name", "why"), LAYOUTS, ids=[row[2] for row in LAYOUTS])
def test_layout(tmp_path: Path, json_name: str, image_name: str, why: str) -> None:
    make_root(tmp_path, [box()], json_name=json_name, image_name=image_name)
    split = open_split(tmp_path, "val")
    assert split.source_format == "coco"
    assert [record.path for record in split.records] == [str(tmp_path / image_name)], why


def test_yaml_may_name_the_json(tmp_path: Path) -> None:
    make_root(tmp_path, [box()], json_name="marks/train.json", image_name="images/a.png")
    (tmp_path / "data.yaml").write_text("train: marks/train.json\n")
    assert open_split(tmp_path / "data.yaml", "train").account.counts["kept"] == 1


def test_other_tasks_files_do_not_disturb_but_two_candidates_are_an_error(tmp_path: Path) -> None:
    make_root(tmp_path, [box()])
    for name in ("captions_train2017", "person_keypoints_train2017"):
        (tmp_path / f"annotations/{name}.json").write_text('{"images": [], "annotations": []}')
    assert open_split(tmp_path, "train").account.counts["kept"] == 1
    make_root(tmp_path, [box()], json_name="annotations/instances_train2014.json")
    with pytest.raises(ValueError, match="expected one COCO JSON"):
        open_split(tmp_path, "train")


def test_missing_and_repeated_images_are_left_out(tmp_path: Path) -> None:
    images = [image_entry(), image_entry(2, "gone\0.png"), image_entry(1, "b.png"), {"id": 4}, "x"]
    split = open_split(make_root(tmp_path, [box(), box(image_id=2)], images), "train")
    assert len(split.records) == 1
    assert sorted(item.path.rsplit("/", 1)[-1] for item in split.account.left_out) == [
        "None",
        "None",
        "b.png",
        "gone\0.png",
    ]
    assert split.account.reasons("dropped") == {"image unusable": 1}


@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
def test_boxes_of_unturned_pixels_are_turned_with_the_image(tmp_path: Path, orientation: int) -> None:
    upright = np.zeros((WIDTH, HEIGHT, 3), np.uint8)
    upright[30:70, 10:30] = 255
    stored = Image.fromarray(upright).transpose(TURNED[orientation])
    assert stored.size == (WIDTH, HEIGHT)
    x1, y1, x2, y2 = stored.convert("L").getbbox() or (0, 0, 0, 0)
    ring = [x1, y1, x2, y1, x2, y2, x1, y2]
    root = make_root(tmp_path, [box([x1, y1, x2 - x1, y2 - y1], segmentation=[ring])])
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(root / "train2017/a.png", exif=exif)
    split = open_split(root, "train")
    (record,) = split.records
    assert (record.height_src, record.width_src) == (WIDTH, HEIGHT)
    np.testing.assert_allclose(record.boxes_xyxy_src, [[10, 30, 30, 70]], atol=1e-9)
    assert record.polygons is not None
    corners = {tuple(point) for point in np.round(record.polygons.rings(0)[0], 3).tolist()}
    assert corners == {(10, 30), (30, 30), (30, 70), (10, 70)}
    assert [note.count for note in split.account.notes if "EXIF" in note.kind] == [1]


@pytest.mark.parametrize(
    ("size", "expected", "area", "remark", "why"),
    [
        ((WIDTH, HEIGHT), [20, 10, 60, 40], 100, "", "agrees"),
        ((2 * WIDTH, 2 * HEIGHT), [10, 5, 30, 20], 25, "scaled", "resized after labelling"),
        ((WIDTH, 3 * HEIGHT), [20, 10, 60, 40], 100, "pixels of the file", "another shape"),
        ((None, None), [20, 10, 60, 40], 100, "taken from the file", "not declared"),
        ((10**400, 100), [20, 10, 60, 40], 100, "taken from the file", "declared beyond reason"),
    ],
)
def test_declared_size(
    tmp_path: Path, size: tuple[int, int], expected: list[float], area: float, remark: str, why: str
) -> None:
    root = make_root(tmp_path, [box(area=100)], [image_entry(width=size[0], height=size[1])])
    split = open_split(root, "train")
    np.testing.assert_allclose(split.records[0].boxes_xyxy_src, [expected], err_msg=why)
    assert split.records[0].area_src.tolist() == [area]
    assert (split.records[0].height_src, split.records[0].width_src) == (HEIGHT, WIDTH)
    notes = [note.kind for note in split.account.notes if note.kind.startswith("COCO size")]
    assert len(notes) == bool(remark)
    assert all(remark in kind for kind in notes)


def test_images_without_annotations_are_background(tmp_path: Path) -> None:
    split = open_split(make_root(tmp_path, []), "train")
    assert len(split.records[0].labels) == 0
    assert split.account.num_rows == 0
    assert any("background" in note.kind for note in split.account.notes)


def test_classes_are_those_of_the_training_split(tmp_path: Path) -> None:
    make_root(tmp_path, [box()])
    make_root(
        tmp_path,
        [box()],
        json_name="annotations/instances_val2017.json",
        image_name="val2017/a.png",
        categories=CATEGORIES[1:],
    )
    assert read_class_map(tmp_path) == ClassMap(("cat", "犬"), (3, 90))
    assert open_split(tmp_path, "val").class_map == read_class_map(tmp_path)


def test_contradicting_categories_are_an_error(tmp_path: Path) -> None:
    make_root(tmp_path, [box()])
    renamed = [{"id": 3, "name": "dog"}]
    make_root(tmp_path, [box()], json_name="annotations/instances_val.json", image_name="val/a.png", categories=renamed)
    with pytest.raises(ValueError, match="category 3 is 'dog', but 'cat' in the training split"):
        open_split(tmp_path, "val")


@pytest.mark.parametrize(
    ("text", "message", "reason"),
    [
        ("{", "expected JSON", "broken"),
        ("[]", "expected COCO JSON", "a list"),
        ('{"images": [], "annotations": []}', "expected a list `categories`", "no categories"),
        ('{"images": [], "categories": [{"id": "x", "name": "y"}]}', "an integer `id`", "category id is text"),
    ],
)
def test_wrong_json_is_one_clear_error(tmp_path: Path, text: str, message: str, reason: str) -> None:
    json_name = "train/_annotations.coco.json"
    make_root(tmp_path, [], json_name=json_name)
    (tmp_path / json_name).write_text(text)
    with pytest.raises(ValueError, match=message):
        open_split(tmp_path, "train", source_format="coco")


def test_format_can_be_chosen(tmp_path: Path) -> None:
    make_root(tmp_path, [box()], image_name="images/train/a.png")
    (tmp_path / "labels/train").mkdir(parents=True)
    (tmp_path / "labels/train/a.txt").write_text("0 0.5 0.5 0.5 0.5\n0 0.5 0.5 0.1 0.1\n")
    (tmp_path / "classes.txt").write_text("cat\n")
    assert open_split(tmp_path, "train").source_format == "coco"
    split = open_split(tmp_path, "train", source_format="yolo")
    assert split.account.counts["kept"] == 2


def test_split_of_several_files_and_image_folders(tmp_path: Path) -> None:
    for part in ("p", "q"):
        entry = image_entry(7, f"{part}.png")
        make_root(
            tmp_path,
            [box(image_id=7)],
            [entry],
            json_name=f"marks/{part}.json",
            image_name=f"{part}_pictures/{part}.png",
        )
    (tmp_path / "data.yaml").write_text("train: [marks/p.json, p_pictures, marks/q.json, q_pictures]\n")
    split = open_split(tmp_path, "train")
    assert [record.path for record in split.records] == [f"{tmp_path}/{p}_pictures/{p}.png" for p in "pq"]
    assert [record.image_id for record in split.records] == [7, "q/7"]
    assert split.account.counts["kept"] == 2
    assert any("several files" in note.kind for note in split.account.notes)


def test_absolute_names_of_another_machine_are_found_by_their_last_part(tmp_path: Path) -> None:
    names = ["/elsewhere/set/a.png", "D:\\set\\b.png", "other/a.png"]
    root = make_root(tmp_path, [box()], [image_entry(i, name) for i, name in enumerate(names, 1)])
    Image.new("RGB", (WIDTH, HEIGHT)).save(root / "train2017/b.png")
    split = open_split(root, "train")
    assert [record.image_id for record in split.records] == [1, 2]
    assert [item.path for item in split.account.left_out] == [f"{root}/train2017/other/a.png"]


def test_repeated_annotation_is_kept_and_noted(tmp_path: Path) -> None:
    account = open_split(make_root(tmp_path, [box(), box(category_id=90), box()]), "train").account
    assert account.counts["kept"] == 3
    assert [note.count for note in account.notes if "repeated" in note.kind] == [1]
