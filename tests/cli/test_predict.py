from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from pycocotools.coco import COCO

from lucid_yolo.cli.predict import main
from lucid_yolo.predict.sources import VideoSource
from lucid_yolo.predict.video import read_frames, video_fps
from lucid_yolo.predict.writers import unique_stems
from samples import CLASS_MAP, SIZES, write_coco, write_pictures, write_untrained, write_video


@pytest.fixture(scope="module")
def ckpt_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_untrained(tmp_path_factory.mktemp("ckpt") / "last.ckpt")


@pytest.fixture
def pictures(tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_pictures(tmp_path / "in", rng)
    return tmp_path / "in"


def arguments(ckpt_path: Path, source: Path, *more: str) -> list[str]:
    return ["--ckpt_path", str(ckpt_path), "--source", str(source), "--device", "cpu", "--conf", "0.3", *more]


def test_pictures_texts_and_coco_rows(
    ckpt_path: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(arguments(ckpt_path, pictures, "--save_dir", str(out), "--save_txt")) == 0
    stems = [f"p{i}" for i in range(len(SIZES))]
    assert sorted(p.name for p in out.glob("*.jpg")) == [f"{stem}.jpg" for stem in stems]
    for stem, (height, width) in zip(stems, SIZES, strict=True):
        with Image.open(out / f"{stem}.jpg") as drawn:
            assert drawn.size == (width, height)
    rows = json.loads((out / "predictions.json").read_text("utf-8"))
    names = dict(zip(CLASS_MAP.source_ids, CLASS_MAP.names, strict=True))
    assert {row["image_id"] for row in rows} <= set(stems)
    assert all(row["category_name"] == names[row["category_id"]] and row["score"] >= 0.3 for row in rows)
    for stem, (height, width) in zip(stems, SIZES, strict=True):
        own = [row for row in rows if row["image_id"] == stem]
        assert {row["file_name"] for row in own} <= {str(pictures / f"{stem}.png")}
        lines = (out / "labels" / f"{stem}.txt").read_text("utf-8").splitlines()
        assert len(lines) == len(own)
        for line, row in zip(lines, own, strict=True):
            label, *fractions = line.split()
            x, y, w, h = row["bbox"]
            expected = [(x + w / 2) / width, (y + h / 2) / height, w / width, h / height, row["score"]]
            assert CLASS_MAP.source_ids[int(label)] == row["category_id"]
            assert [float(f) for f in fractions] == pytest.approx(expected, abs=1e-5)
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.count("\n") == 1
    assert printed.out.startswith(f"5 pictures, {len(rows)} objects (")


def test_nothing_found_is_an_empty_list(pictures: Path, tmp_path: Path) -> None:
    blind = write_untrained(tmp_path / "blind.ckpt", class_std=0.0)
    assert main(arguments(blind, pictures / "p0.png", "--save_dir", "out")) == 0
    assert json.loads((tmp_path / "out" / "predictions.json").read_text("utf-8")) == []


def test_runs_are_numbered(ckpt_path: Path, pictures: Path, tmp_path: Path) -> None:
    for number in ("1", "2"):
        assert main(arguments(ckpt_path, pictures / "p0.png")) == 0
        assert (tmp_path / "runs" / "predict" / number / "p0.jpg").is_file()


def test_an_undecodable_picture_ends_the_run_with_its_name(
    ckpt_path: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (pictures / "p3.png").write_bytes(b"<html>")
    assert main([*arguments(ckpt_path, pictures), "--batch_size", "2", "--save_dir", "out"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "p3.png" in error
    assert error.count("\n") == 1
    rows = json.loads((tmp_path / "out" / "predictions.json").read_text("utf-8"))
    assert {row["image_id"] for row in rows} <= {"p0", "p1"}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"--ckpt_path": "missing.ckpt"}, "missing.ckpt"),
        ({"--source": "nowhere"}, "nowhere"),
        ({"--conf": "2"}, "conf"),
        ({"--conf": "x"}, "conf"),
        ({"--batch_size": "0"}, "batch_size"),
        ({"--device": "toaster"}, "toaster"),
        ({"--precision": "fp8"}, "precision"),
        ({"--save_dir": "in"}, "save_dir"),
        ({"--sauce": "in"}, "sauce"),
        ({"--config": "missing.yaml"}, "missing.yaml"),
        ({"--classes": "pink"}, "pink"),
        ({"--vid_stride": "0"}, "vid_stride"),
        ({"--data_root": "in"}, "both"),
    ],
    ids=str,
)
def test_wrong_use_is_one_line(
    ckpt_path: Path, pictures: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, str], message: str
) -> None:
    flags = {"--ckpt_path": str(ckpt_path), "--source": str(pictures), "--device": "cpu"} | changed
    assert main([text for flag in flags.items() for text in flag]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert message in printed.err
    assert not Path("runs").exists()


def test_missing_arguments_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--source", "x"]) == 2
    assert "ckpt_path" in capsys.readouterr().err


def test_config_file_and_printed_config(
    ckpt_path: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as done:
        main([*arguments(ckpt_path, pictures), "--print_config"])
    assert done.value.code == 0
    text = capsys.readouterr().out
    assert yaml.safe_load(text)["conf"] == 0.3
    (tmp_path / "c.yaml").write_text(text)
    assert main(["--config", "c.yaml", "--source", "in/p0.png", "in/p1.png", "--save_dir", "out"]) == 0
    assert sorted(p.stem for p in (tmp_path / "out").glob("*.jpg")) == ["p0", "p1"]


def frame_rows(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text("utf-8"))


def test_a_video_gives_a_drawn_video(
    ckpt_path: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], rng: np.random.Generator
) -> None:
    patches = [rng.integers(0, 256, (8, 12, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1) for _ in range(7)]
    write_video(pictures / "clip.avi", patches, fps=20)
    sources = [str(pictures / name) for name in ("p0.png", "clip.avi", "p1.png")]
    flags = ["--vid_stride", "2", "--save_txt", "--save_crop", "--save_dir", "out", "--classes", "bus", "0"]
    assert main(["--ckpt_path", str(ckpt_path), "--device", "cpu", "--conf", "0.01", "--source", *sources, *flags]) == 0
    out = tmp_path / "out"
    assert sorted(p.name for p in out.iterdir()) == [
        "clip.mp4",
        "crops",
        "labels",
        "p0.jpg",
        "p1.jpg",
        "predictions.json",
    ]
    frames = list(read_frames(VideoSource(out / "clip.mp4")))
    assert [f.image_rgb.shape for f in frames] == [(64, 96, 3)] * 4
    assert video_fps(VideoSource(out / "clip.mp4")) == pytest.approx(10)
    rows = frame_rows(out / "predictions.json")
    ids = [row["image_id"] for row in rows]
    assert set(ids) == {"p0", "clip_000000", "clip_000002", "clip_000004", "clip_000006", "p1"}
    assert {row["category_name"] for row in rows} <= {"bus", CLASS_MAP.names[0]}
    assert all(row["frame_index"] == int(row["image_id"][-6:]) for row in rows if "clip" in row["image_id"])
    for stem in set(ids):
        assert len((out / "labels" / f"{stem}.txt").read_text().splitlines()) == ids.count(stem)
    assert list(out.glob("crops/*/clip_000004_*.png"))
    assert capsys.readouterr().out.startswith(f"2 pictures, 4 frames, {len(rows)} objects (")


def test_objects_are_tracked_through_a_video(ckpt_path: Path, pictures: Path, tmp_path: Path) -> None:
    pytest.importorskip("trackers")
    still = np.asarray(Image.open(pictures / "p2.png"))
    write_video(pictures / "clip.avi", [still] * 5)
    for flags in (["--track"], ["--track", "ocsort"]):
        assert main(arguments(ckpt_path, pictures / "clip.avi", "--save_txt", "--save_dir", "out", *flags)) == 0
        rows = frame_rows(tmp_path / "out" / "predictions.json")
        assert {row["frame_index"] for row in rows} >= {3, 4}
        assert min(row["track_id"] for row in rows) == 1
        lines = (tmp_path / "out" / "labels" / "clip_000004.txt").read_text().splitlines()
        tracks = [row["track_id"] for row in rows if row["frame_index"] == 4]
        assert [int(line.split()[-1]) for line in lines] == tracks
        assert len(set(tracks)) == len(tracks) > 0


def test_tracking_without_the_extra_is_one_line(
    ckpt_path: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "trackers", None)
    assert main(arguments(ckpt_path, pictures / "p0.png", "--track")) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: ")
    assert "extra `track`" in printed
    assert printed.count("\n") == 1
    assert not Path("runs").exists()


def test_a_data_set_gives_its_own_ids(ckpt_path: Path, tmp_path: Path, rng: np.random.Generator) -> None:
    truth = write_coco(tmp_path / "set", rng)
    flags = [
        "--data_root",
        str(tmp_path / "set"),
        "--save_dir",
        str(tmp_path / "out"),
        "--device",
        "cpu",
        "--conf",
        "0",
    ]
    assert main(["--ckpt_path", str(ckpt_path), *flags]) == 0
    rows = frame_rows(tmp_path / "out" / "predictions.json")
    assert {row["image_id"] for row in rows} == {entry["id"] for entry in json.loads(truth.read_text())["images"]}
    assert {row["category_id"] for row in rows} <= set(CLASS_MAP.source_ids)
    found = COCO(str(truth)).loadRes(str(tmp_path / "out" / "predictions.json"))
    assert len(found.getImgIds()) == len(SIZES)


def test_what_cannot_be_decoded_is_left_out_on_demand(ckpt_path: Path, pictures: Path, tmp_path: Path) -> None:
    (pictures / "p3.png").write_bytes(b"<html>")
    flags = ["--on_error", "skip", "--save_dir", "out", "--save_json", "false"]
    assert main(arguments(ckpt_path, pictures, *flags)) == 0
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["p0.jpg", "p1.jpg", "p2.jpg", "p4.jpg"]


def test_stems_are_unique_where_case_does_not_count() -> None:
    paths = [Path(p) for p in ("a/x.png", "b/x.jpg", "c/X.jpg", "d/x_2.png", "e/y", "f/x.jpg")]
    assert unique_stems(paths) == ["x", "x_2", "X_3", "x_2_2", "y", "x_4"]
