import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from faulty_roots import make_coco, snapshot, write_picture, write_text
from lucid_yolo.data.dataset import DataSplit, list_splits, open_split
from lucid_yolo.data.image import read_image
from lucid_yolo.doctor.convert import convert
from lucid_yolo.doctor.writers import TargetFormat

FORMATS: tuple[TargetFormat, ...] = ("yolo", "coco", "voc", "labelme")
BOX_TOLERANCE_PX = 1e-3


def boxes_by_picture(split: DataSplit, has_ignored: bool = True) -> list[tuple[bytes, list[str], list[bool]]]:
    """What a split shows, independent of names and ids: pixels, boxes with class names, ignore flags."""
    shown = []
    for record in split.records:
        rows = []
        columns = (record.boxes_xyxy_src.tolist(), record.labels.tolist(), record.is_ignored.tolist())
        for box, label, is_ignored in zip(*columns, strict=True):
            if has_ignored or not is_ignored:
                rows.append((split.class_map.names[label], is_ignored, box))
        shown.append((read_image(record.path).tobytes(), rows))
    return sorted(shown, key=lambda item: item[0])


def assert_same_boxes(one: DataSplit, other: DataSplit, has_ignored: bool = True) -> None:
    pairs = zip(boxes_by_picture(one, has_ignored), boxes_by_picture(other, has_ignored), strict=True)
    for (pixels, rows), (other_pixels, other_rows) in pairs:
        assert pixels == other_pixels
        assert [row[:2] for row in rows] == [row[:2] for row in other_rows]
        np.testing.assert_allclose([r[2] for r in rows], [r[2] for r in other_rows], rtol=0, atol=BOX_TOLERANCE_PX)


@pytest.mark.parametrize("target", FORMATS)
def test_one_step_keeps_boxes_names_and_ignored(tmp_path: Path, target: TargetFormat) -> None:
    source = make_coco(tmp_path / "in")
    before = snapshot(source)
    report = convert(source, tmp_path / "out", target)
    assert snapshot(source) == before
    assert list_splits(tmp_path / "out") == ("train", "val")
    for name in list_splits(source):
        one, other = open_split(source, name), open_split(tmp_path / "out", name)
        assert other.source_format == target
        assert_same_boxes(one, other, has_ignored=target != "yolo")
        assert set(other.class_map.names) == {"犬", "traffic light"}
        assert other.account.counts["dropped"] == 0
        assert not [note for note in other.account.notes if "kind" not in note.kind]
    assert report.num_images == {"train": 3, "val": 1}
    assert report.num_boxes == {"train": 6, "val": 2}
    assert (report.num_ignored, report.num_ignored_lost) == ((0, 4) if target == "yolo" else (4, 0))
    assert report.has_new_ids == (target != "coco")


@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(FORMATS, 2)))
def test_there_and_back(tmp_path: Path, one: TargetFormat, other: TargetFormat) -> None:
    source = make_coco(tmp_path / "in")
    for number, target in enumerate((one, other, one)):
        convert(source if number == 0 else tmp_path / str(number - 1), tmp_path / str(number), target)
    for name in ("train", "val"):
        first, last = (open_split(tmp_path / str(number), name) for number in (0, 2))
        assert_same_boxes(first, last, has_ignored="yolo" not in (one, other))
        assert first.class_map.names == last.class_map.names
        if one != "coco":  # VOC has one flat folder
            ids = [str(r.image_id).replace("/", "_" if other == "voc" else "/") for r in first.records]
            assert ids == [str(r.image_id).removeprefix("val_" if other == "voc" else "") for r in last.records]


def test_coco_to_coco_keeps_ids_areas_and_names(tmp_path: Path) -> None:
    source = make_coco(tmp_path / "in")
    report = convert(source, tmp_path / "out", "coco")
    one, other = open_split(source, "train"), open_split(tmp_path / "out", "train")
    assert one.class_map == other.class_map
    assert {r.image_id for r in one.records} == {7, "b 1", 139} == {r.image_id for r in other.records}
    for record in other.records:
        assert set(record.area_src.tolist()) == {12.5}
    names = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out/train").rglob("*.png"))
    assert names == ["train/0.png", "train/deep/größe 1.png", "train/deep/größe 2.png"]
    assert not report.has_new_ids


def test_yolo_ids_survive_in_coco(tmp_path: Path) -> None:
    source = make_coco(tmp_path / "in")
    convert(source, tmp_path / "yolo", "yolo")
    convert(tmp_path / "yolo", tmp_path / "coco", "coco")
    content = json.loads((tmp_path / "coco/annotations/instances_train.json").read_text(encoding="utf-8"))
    assert [image["id"] for image in content["images"]] == ["0", "deep/größe 1", "deep/größe 2"]
    assert [image["file_name"] for image in content["images"]][1] == "deep/größe 1.png"


def test_links_point_to_the_source_and_are_read_the_same(tmp_path: Path) -> None:
    source = make_coco(tmp_path / "in")
    convert(source, tmp_path / "out", "yolo", is_linked=True)
    link = tmp_path / "out/images/train/0.png"
    assert link.is_symlink()
    assert link.resolve() == (source / "train/0.png").resolve()
    assert_same_boxes(open_split(source, "train"), open_split(tmp_path / "out", "train"), has_ignored=False)


@pytest.mark.parametrize("target", FORMATS)
def test_names_that_collide_or_mislead(tmp_path: Path, target: TargetFormat) -> None:
    """Equal stems, stems that differ by case, folders named images, no suffix, one name in two splits."""
    source = tmp_path / "in"
    names = ["images/p/a.png", "images/p/a.jpg", "images/p/A.jpg", "images/q/images/a.png", "images/noext"]
    for number, name in enumerate(names):
        path = source / name
        write_picture(path.with_suffix(path.suffix or ".png"), number)
        if not path.suffix:
            path.with_suffix(".png").rename(path)
        write_text(source / "labels" / f"{number}.txt", "")
    write_text(source / "train.txt", "\n".join(names))
    write_text(source / "val.txt", "images/p/a.png\n")
    write_text(source / "labels/p/a.txt", "0 0.5 0.5 0.25 0.125\n")
    write_text(source / "labels/p/A.txt", "0 0.5 0.5 0.5 0.25\n")
    write_text(source / "labels/noext.txt", "0 0.5 0.5 0.125 0.25\n")
    write_text(source / "images/q/labels/a.txt", "0 0.5 0.5 0.25 0.25\n")
    write_text(source / "data.yaml", "train: train.txt\nval: val.txt\nnames: ['no']\n")
    convert(source, tmp_path / "out", target)
    for name in ("train", "val"):
        assert_same_boxes(open_split(source, name), open_split(tmp_path / "out", name))
        assert open_split(tmp_path / "out", name).class_map.names == ("no",)


@pytest.mark.parametrize("target", ["voc", "labelme"])
def test_formats_that_know_classes_by_name_refuse_equal_names(tmp_path: Path, target: TargetFormat) -> None:
    source = make_coco(tmp_path / "in")
    path = source / "annotations/instances_train.json"
    path.write_text(path.read_text(encoding="utf-8").replace("traffic light", "犬"), encoding="utf-8")
    (source / "annotations/instances_val.json").unlink()
    with pytest.raises(ValueError, match="class names"):
        convert(source, tmp_path / "out", target)
    assert not (tmp_path / "out").exists()


def test_used_folder_is_refused(tmp_path: Path) -> None:
    source = make_coco(tmp_path / "in")
    write_text(tmp_path / "out/thesis.txt", "mine")
    with pytest.raises(FileExistsError, match="new or empty"):
        convert(source, tmp_path / "out", "yolo")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.txt"]
