import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from faulty_roots import make_coco, make_faulty, picture, snapshot, write_picture, write_text
from lucid_yolo.data.dataset import open_split
from lucid_yolo.data.image import decode_image
from lucid_yolo.doctor.check import CheckReport, check
from lucid_yolo.doctor.fix import fix
from lucid_yolo.doctor.scan import find_equal, find_near, find_repeated, scan_image
from lucid_yolo.doctor.sheet import draw_sheet


def kinds(report: CheckReport, level: str) -> dict[str, int]:
    return {finding.kind: finding.count for finding in report.findings if finding.level == level}


def test_every_fault_is_found_once(tmp_path: Path) -> None:
    root = make_faulty(tmp_path / "set")
    before = snapshot(root)
    report = check(root)
    assert snapshot(root) == before
    assert kinds(report, "error") == {
        "train: rows dropped, class id unknown": 1,
        "train: rows dropped, image unusable": 1,
        "train: images that cannot be used": 2,
    }
    assert kinds(report, "warning") == {
        "train: boxes clipped to the image": 1,
        "train: row repeated in its file (kept)": 2,
        "train: image without a label file (background)": 2,
        "train: images truncated, the decodable part is used": 1,
        "train: classes without an object": 1,
        "val: classes without an object": 2,
        "same image in train and val": 1,
        "nearly the same image in train and val": 1,
    }
    by_kind = {finding.kind: finding.examples for finding in report.findings}
    assert by_kind["same image in train and val"] == (f"{root}/images/train/2.png = {root}/images/val/same.png",)
    assert by_kind["nearly the same image in train and val"] == (
        f"{root}/images/train/3.png ~ {root}/images/val/near.jpg",
    )
    assert by_kind["train: classes without an object"] == ("absent",)
    unusable = by_kind["train: images that cannot be used"]
    assert [place.partition(":")[0].rpartition("/")[2] for place in unusable] == ["header.png", "page.jpg"]


def test_report_is_plain_json_and_its_counts_agree(tmp_path: Path) -> None:
    report = check(make_faulty(tmp_path / "set"))
    content = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    train = content["splits"]["train"]
    assert train["class_counts"] == {"cat": 7, "犬": 4, "absent": 0}
    assert train["account"]["rows"]["total"] == sum(train["account"]["rows"][b] for b in ("kept", "clipped", "dropped"))
    assert content["num_errors"] == 3
    for text in ("train (yolo)", "class 犬", "ERROR: train: images that cannot be used: 2", "object side at 640 px"):
        assert text in report.to_table()


def test_summary_of_known_boxes(tmp_path: Path) -> None:
    write_picture(tmp_path / "images/train/a.png", 0, (200, 100))
    write_text(tmp_path / "labels/train/a.txt", "0 0.5 0.5 0.2 0.4\n0 0.5 0.5 0.8 0.8\n")
    write_text(tmp_path / "data.yaml", "train: images/train\nnames: [cat]\n")
    (summary,) = check(tmp_path, image_size_px=400).summaries
    assert summary.side_px[0] == pytest.approx(80)
    assert summary.side_px[-1] == pytest.approx(2 * (160 * 80) ** 0.5, abs=1e-3)
    assert summary.aspect == pytest.approx((1, 1.05, 1.5, 1.95, 2))
    assert summary.size_shares == {"small": 0.0, "medium": 0.5, "large": 0.5}
    assert summary.width_src[2] == 200


def test_clean_set_has_no_findings(tmp_path: Path) -> None:
    report = check(make_coco(tmp_path))
    assert not report.findings
    assert report.num_errors == 0
    assert [summary.num_ignored for summary in report.summaries] == [3, 1]


def test_share_of_dropped_rows_decides_between_warning_and_error(tmp_path: Path) -> None:
    write_picture(tmp_path / "images/train/a.png", 0)
    write_text(tmp_path / "labels/train/a.txt", "0 0.5 0.5 0.2 0.4\n" * 3 + "5 0.5 0.5 0.2 0.4\n")
    write_text(tmp_path / "data.yaml", "train: images/train\nnames: [cat]\n")
    assert check(tmp_path, max_dropped_fraction=0.25).num_errors == 0
    assert check(tmp_path, max_dropped_fraction=0.24).num_errors == 1


@pytest.mark.parametrize(
    ("yaml", "kind", "reason"),
    [
        ("train: images/train\n", "split train cannot be read", "no names"),
        ("train: images/gone\nnames: [cat]\n", "split train cannot be read", "no such folder"),
        ("names: [cat]\n", "no split found", "no split"),
        ("train: images/train\nnames: [cat]\n", "train: no image has an object", "no object"),
    ],
)
def test_roots_that_cannot_train_are_errors(tmp_path: Path, yaml: str, kind: str, reason: str) -> None:
    write_picture(tmp_path / "images" / ("other" if reason == "no split" else "train") / "a.png", 0)
    write_text(tmp_path / "data.yaml", yaml)
    report = check(tmp_path)
    assert report.num_errors == 1, reason
    assert report.findings[0].kind.startswith(kind)


def test_declared_and_true_sizes_that_disagree_are_named(tmp_path: Path) -> None:
    root = make_coco(tmp_path)
    path = root / "annotations/instances_train.json"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"width": 64, "height": 48', '"width": 48, "height": 64'), encoding="utf-8")
    assert any("size contradicts" in kind for kind in kinds(check(root), "warning"))


def test_mended_copy_checks_clean(tmp_path: Path) -> None:
    root = make_faulty(tmp_path / "set")
    before = snapshot(root)
    report = fix(root, tmp_path / "mended")
    assert snapshot(root) == before
    assert report.num_repeated_rows == 2
    assert [Path(path).name for path in report.left_out] == ["header.png", "page.jpg"]
    assert [Path(path).name for path in report.reencoded] == ["half.jpg"]
    after = check(tmp_path / "mended")
    leaks_and_classes = {kind for kind in kinds(after, "warning") if "image in" in kind or "classes" in kind}
    assert set(kinds(after, "warning")) == leaks_and_classes
    assert not kinds(after, "error")
    split = open_split(tmp_path / "mended", "train")
    assert split.account.counts == {"kept": 9, "clipped": 0, "dropped": 0, "ignored": 0}
    half = decode_image(tmp_path / "mended/images/train/half.png")
    assert not half.is_truncated
    np.testing.assert_array_equal(half.pixels, decode_image(root / "images/train/half.jpg").pixels)
    for number in range(4):
        name = f"images/train/{number}.png"
        assert (tmp_path / "mended" / name).read_bytes() == (root / name).read_bytes()


def test_mended_coco_stays_coco_with_its_ids_and_crowds(tmp_path: Path) -> None:
    root = make_coco(tmp_path / "set")
    fix(root, tmp_path / "mended")
    one, other = open_split(root, "train"), open_split(tmp_path / "mended", "train")
    assert other.source_format == "coco"
    assert one.class_map == other.class_map
    assert [record.image_id for record in one.records] == [record.image_id for record in other.records]
    assert sum(int(record.is_ignored.sum()) for record in other.records) == 3


@pytest.mark.parametrize(
    ("change", "is_near", "why"),
    [
        (lambda image: image.resize((80, 60)), True, "resized"),
        (lambda image: image.point(lambda value: min(255, value + 2)), True, "slightly brighter"),
        (lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT), False, "mirrored"),
        (lambda _: picture(1), False, "another picture"),
    ],
)
def test_near_images(tmp_path: Path, change: object, is_near: bool, why: str) -> None:
    write_picture(tmp_path / "images/train/a.png", 0)
    path = tmp_path / "images/val/b.png"
    path.parent.mkdir(parents=True)
    change(picture(0)).save(path)  # type: ignore[operator]
    write_text(tmp_path / "data.yaml", "train: images/train\nval: images/val\nnames: [cat]\n")
    one, other = ([scan_image(r) for r in open_split(tmp_path, s).records] for s in ("train", "val"))
    assert bool(find_near(one, other)) == is_near, why
    assert not find_equal(one, other)


def test_flat_images_are_equal_but_never_near(tmp_path: Path) -> None:
    for split, level in (("train", 7), ("train", 8), ("val", 7)):
        path = tmp_path / f"images/{split}/{level}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (64, 48), (level, level, level)).save(path)
    write_text(tmp_path / "data.yaml", "train: images/train\nval: images/val\nnames: [cat]\n")
    one, other = ([scan_image(r) for r in open_split(tmp_path, s).records] for s in ("train", "val"))
    assert not find_near(one, other)
    assert [Path(a).name for a, _ in find_equal(one, other)] == ["7.png"]
    assert find_repeated([*one, *other]) == [(other[0].path, one[0].path)]


def test_sheet_shows_both_splits_and_is_the_same_every_time(tmp_path: Path) -> None:
    root = make_faulty(tmp_path / "set")
    splits = {name: open_split(root, name) for name in ("train", "val")}  # type: ignore[arg-type]
    one, other = draw_sheet(splits, 64), draw_sheet(splits, 64)
    np.testing.assert_array_equal(one, other)
    only_val = draw_sheet({"val": splits["val"]}, 64)
    np.testing.assert_array_equal(one[-only_val.shape[0] :, : only_val.shape[1]], only_val)
    assert one.shape[0] > only_val.shape[0]
    assert (draw_sheet(splits, 64, seed=1) != one).any()
