from __future__ import annotations

import io
import json
import os
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageShow

from lucid_yolo.evaluate import ImageDetections, evaluate_boxes
from lucid_yolo.predict.boxes import Boxes
from lucid_yolo.predict.results import Results, to_coco
from lucid_yolo.predict.writers import Outputs, ResultsFolder
from lucid_yolo.structures import ClassMap, ImageRecord

HEIGHT, WIDTH = 40, 80
NAMES = {0: "cat", 1: "собака", 2: "x"}


def boxes(rows: list[list[float]]) -> Boxes:
    table = torch.tensor(rows, dtype=torch.float32).reshape(-1, 6)
    return Boxes.clipped(table[:, :4], table[:, 4], table[:, 5].long(), (HEIGHT, WIDTH))


@pytest.fixture
def results() -> Results:
    picture = np.full((HEIGHT, WIDTH, 3), 90, dtype=np.uint8)
    rows = [[8.0, 4, 48, 24, 0.9, 1], [-5, -5, 20, 10.5, 0.25, 0], [60, 30, 99, 99, 0.1, 1]]
    return Results("a folder/bus.jpg", (HEIGHT, WIDTH), NAMES, boxes(rows), picture, {"inference": 1.5})


def test_formats(results: Results) -> None:
    first = results.boxes[0]
    assert first.xyxy.tolist() == [[8, 4, 48, 24]]
    assert first.xywh.tolist() == [[28, 14, 40, 20]]
    assert first.xyxyn[0].tolist() == pytest.approx([0.1, 0.1, 0.6, 0.6])
    assert first.xywhn[0].tolist() == pytest.approx([0.35, 0.35, 0.5, 0.5])
    assert first.conf.item() == pytest.approx(0.9)
    assert first.cls.item() == 1
    assert results.boxes.data.shape == (3, 6)


def test_clipped_keeps_the_promises() -> None:
    wild = torch.randn(500, 4, generator=torch.Generator().manual_seed(0)) * 100
    made = Boxes.clipped(wild, torch.rand(500), torch.zeros(500, dtype=torch.int64), (HEIGHT, WIDTH))
    assert (made.xywh[:, 2:] >= 0).all()
    assert (made.xyxyn >= 0).all()
    assert (made.xyxyn <= 1).all()
    is_upright = (wild[:, 2:] >= wild[:, :2]).all(dim=1)
    expected = wild.clamp(min=0).minimum(torch.tensor([WIDTH, HEIGHT, WIDTH, HEIGHT]))
    assert torch.equal(made.xyxy[is_upright], expected[is_upright])


def test_half_precision_and_gradient_are_shed() -> None:
    raw = torch.tensor([[1.0, 2, 3, 4]], dtype=torch.float16, requires_grad=True)
    made = Boxes.clipped(raw, torch.tensor([0.5]), torch.tensor([0]), (HEIGHT, WIDTH))
    assert made.data.dtype == torch.float32
    assert not made.data.requires_grad


def test_length_iteration_and_choice(results: Results) -> None:
    assert len(results) == len(results.boxes) == 3
    assert [r.boxes.conf.item() for r in results] == results.boxes.conf.tolist()
    assert [b.cls.item() for b in results.boxes] == [1, 0, 1]
    assert len(results[results.boxes.conf > 0.2]) == 2
    assert results[-1].boxes.xyxy.tolist() == [[60, 30, 80, 40]]
    assert results[:0].summary() == []
    assert results[0].path == results.path
    with pytest.raises(IndexError):
        results[3]


def test_plot_and_save(results: Results, tmp_path: Path) -> None:
    drawn = results.plot()
    assert drawn.shape == (HEIGHT, WIDTH, 3)
    assert (drawn != 90).any()
    assert results.orig_img is not None
    assert (results.orig_img == 90).all()
    path = results.save(tmp_path / "новая" / "a.png")
    with Image.open(path) as saved:
        assert (np.asarray(saved) == drawn).all()


def test_plot_without_picture_says_what_to_do() -> None:
    bare = Results("a.jpg", (HEIGHT, WIDTH), NAMES, boxes([]))
    with pytest.raises(ValueError, match="expected orig_img"):
        bare.plot()


def test_save_txt_reads_back(results: Results, tmp_path: Path) -> None:
    table = np.loadtxt(results.save_txt(tmp_path / "labels" / "bus.txt"))
    assert table[:, 0].tolist() == [1, 0, 1]
    assert table[:, 1:5] == pytest.approx(results.boxes.xywhn.numpy(), abs=1e-6)
    assert table[:, 5] == pytest.approx([0.9, 0.25, 0.1])
    assert results[:0].save_txt(tmp_path / "none.txt").read_bytes() == b""


def test_summary_and_json(results: Results) -> None:
    assert results.summary()[1] == {
        "name": "cat",
        "class": 0,
        "confidence": 0.25,
        "box": {"x1": 0.0, "y1": 0.0, "x2": 20.0, "y2": 10.5},
    }
    assert results.summary()[0]["confidence"] == 0.9
    assert json.loads(results.to_json()) == results.summary()
    assert "собака" in results.to_json()


def test_coco_rows_have_source_ids(results: Results) -> None:
    class_map = ClassMap(("cat", "собака", "x"), (17, 18, 90))
    rows = to_coco(iter([results]), class_map)
    assert [r["category_id"] for r in rows] == [18, 17, 18]
    assert rows[0]["image_id"] == "bus"
    assert rows[0]["bbox"] == [8, 4, 40, 20]
    named = Results("a.jpg", (HEIGHT, WIDTH), NAMES, results.boxes, image_id=7)
    assert to_coco([named], class_map)[0]["image_id"] == 7
    json.dumps(rows)


def test_coco_rows_evaluate_like_the_results(results: Results) -> None:
    class_map = ClassMap(("cat", "собака", "x"), (17, 18, 90))
    xyxy = results.boxes.xyxy.numpy()
    labels = results.boxes.cls.long().numpy()
    shifted = xyxy.astype(np.float64)
    shifted[:, 2] += 3
    truth = ImageRecord("bus.jpg", "bus", HEIGHT, WIDTH, shifted, labels, labels < 0, np.full(3, 99.0), 3)
    rows = to_coco([results], class_map)
    xywh = np.array([r["bbox"] for r in rows])
    again = ImageDetections(
        "bus",
        np.concatenate([xywh[:, :2], xywh[:, :2] + xywh[:, 2:]], axis=1),
        np.array([r["score"] for r in rows]),
        np.array([class_map.source_ids.index(r["category_id"]) for r in rows]),
    )
    direct = ImageDetections("bus", xyxy, results.boxes.conf.numpy(), labels)
    metrics = [evaluate_boxes([truth], [d], class_map) for d in (direct, again)]
    assert metrics[0].to_dict() == metrics[1].to_dict()
    assert metrics[0].map50 == 1.0


def test_coco_refuses_other_names(results: Results) -> None:
    with pytest.raises(ValueError, match="expected the names of the results"):
        to_coco([results], ClassMap.from_names(["cat", "dog", "x"]))


def test_to_supervision(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    class Detections:
        def __init__(self, **arrays: Any) -> None:
            self.__dict__ |= arrays

    module = types.ModuleType("supervision")
    module.Detections = Detections  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "supervision", module)
    found = results.to_supervision()
    assert found.xyxy.shape == (3, 4)
    assert found.class_id.tolist() == [1, 0, 1]
    assert found.data["class_name"].tolist() == ["собака", "cat", "собака"]


def test_to_supervision_names_the_extra(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "supervision", None)
    with pytest.raises(ImportError, match="extra `track`"):
        results.to_supervision()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (torch.zeros(2, 5), r"expected float32 \[n, 6\].*found torch.float32 \[2, 5\]"),
        (torch.zeros(2, 6, dtype=torch.float64), "found torch.float64"),
        (torch.tensor([[0.0, 0, 81, 1, 0.5, 0]]), "x2 <= 80.*found .*81"),
        (torch.tensor([[5.0, 0, 4, 1, 0.5, 0]]), "x1 <= x2"),
        (torch.tensor([[0.0, 0, 1, 1, torch.nan, 0]]), "finite"),
    ],
    ids=["columns", "dtype", "outside", "inverted", "nan"],
)
def test_boxes_are_checked(data: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Boxes(data, (HEIGHT, WIDTH))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"orig_img": np.zeros((4, 4, 3), dtype=np.uint8)}, r"expected shape \(40, 80, 3\), found \(4, 4, 3\)"),
        ({"orig_shape": (80, 40)}, r"found 1 for \(40, 80\)"),
        ({"names": {0: "cat"}}, r"none for \[1\]"),
    ],
    ids=["picture", "shape", "names"],
)
def test_results_are_checked(change: dict[str, Any], message: str) -> None:
    good = {"path": "a", "orig_shape": (HEIGHT, WIDTH), "names": NAMES, "boxes": boxes([[0, 0, 9, 9, 0.5, 1]])}
    with pytest.raises(ValueError, match=message):
        Results(**good | change)


@pytest.fixture
def tracked(results: Results) -> Results:
    return replace(results, boxes=results.boxes.with_ids(np.array([7, 2, 9])))


def test_ids_travel_with_the_objects(results: Results, tracked: Results, tmp_path: Path) -> None:
    assert results.boxes.id is None
    assert tracked.boxes.id is not None
    assert tracked.boxes.id.tolist() == [7, 2, 9]
    assert tracked[1:].boxes.id.tolist() == [2, 9]  # type: ignore[union-attr]
    assert [row["track_id"] for row in tracked.summary()] == [7, 2, 9]
    assert [line.split()[-1] for line in tracked.save_txt(tmp_path / "a.txt").read_text().splitlines()] == list("729")
    assert (tracked.plot() != results.plot()).any()
    assert torch.equal(tracked.boxes.data[:, :6], results.boxes.data)


def test_arrays_and_devices(tracked: Results) -> None:
    arrays = tracked.numpy().boxes
    for name in ("data", "xyxy", "xywh", "xyxyn", "xywhn", "conf", "cls", "id"):
        value, expected = getattr(arrays, name), getattr(tracked.boxes, name)
        assert isinstance(value, np.ndarray), name
        assert value.dtype == np.float32
        assert np.array_equal(value, expected.numpy()), name
    assert tracked.numpy()[arrays.conf > 0.2].boxes.cls.tolist() == [1, 0]
    assert torch.equal(tracked.numpy().cpu().boxes.data, tracked.boxes.data)
    assert torch.equal(tracked.to("cpu").boxes.xywhn, tracked.boxes.xywhn)
    assert tracked.numpy().summary() == tracked.summary()
    assert (tracked.numpy().plot() == tracked.plot()).all()


def test_what_detection_does_not_find_is_none(results: Results) -> None:
    assert (results.masks, results.keypoints, results.obb) == (None, None, None)


def test_plot_leaves_out_what_is_not_wanted(results: Results) -> None:
    bare = results.plot(conf=False, labels=False)
    pictures = [results.plot(), results.plot(conf=False), bare, results.plot(line_width=4, conf=False, labels=False)]
    for number, first in enumerate(pictures):
        assert all((first != other).any() for other in pictures[number + 1 :])
    with pytest.raises(ValueError, match="line_width"):
        results.plot(line_width=0)


def test_show_opens_the_picture(results: Results) -> None:
    shown: list[Image.Image] = []

    class Viewer(ImageShow.Viewer):
        def show(self, image: Image.Image, **options: Any) -> int:
            shown.append(image)
            return 1

    before = list(ImageShow._viewers)
    ImageShow.register(Viewer(), 0)
    try:
        results.show()
    finally:
        ImageShow._viewers[:] = before
    assert (np.asarray(shown[0]) == results.plot()).all()
    png = results._repr_png_()
    assert png is not None
    assert (np.asarray(Image.open(io.BytesIO(png))) == results.plot()).all()


def test_save_crop(results: Results, tmp_path: Path) -> None:
    picture = np.arange(HEIGHT * WIDTH * 3, dtype=np.uint32).astype(np.uint8).reshape(HEIGHT, WIDTH, 3)
    names = {0: "a/b: c", 1: "собака", 2: "x"}
    thin = boxes([[8.2, 4.7, 48.5, 24.1, 0.9, 1], [5, 5, 5.5, 20, 0.8, 1], [0, 0, 20, 10.5, 0.25, 0]])
    paths = replace(results, orig_img=picture, boxes=thin, names=names).save_crop(tmp_path)
    assert [p.relative_to(tmp_path).as_posix() for p in paths] == ["собака/bus_1.png", "a_b_ c/bus_3.png"]
    assert (np.asarray(Image.open(paths[0])) == picture[4:25, 8:49]).all()
    assert (np.asarray(Image.open(paths[1])) == picture[0:11, 0:20]).all()
    with pytest.raises(ValueError, match="expected orig_img"):
        replace(results, orig_img=None).save_crop(tmp_path)


def test_save_txt_without_confidence_is_a_label_file(results: Results, tmp_path: Path) -> None:
    table = np.loadtxt(results.save_txt(tmp_path / "bus.txt", save_conf=False))
    assert table.shape == (3, 5)
    assert table[:, 1:] == pytest.approx(results.boxes.xywhn.numpy(), abs=1e-6)


def test_to_df(results: Results, tracked: Results) -> None:
    frame = results.to_df()
    assert frame.columns.tolist() == ["name", "class", "confidence", "x1", "y1", "x2", "y2"]
    assert frame["name"].tolist() == ["собака", "cat", "собака"]
    assert frame[["x1", "y1", "x2", "y2"]].to_numpy() == pytest.approx(results.boxes.xyxy.numpy())
    assert tracked.to_df()["track_id"].tolist() == [7, 2, 9]
    assert results[:0].to_df().columns.tolist() == frame.columns.tolist()


def test_to_df_names_the_package(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        results.to_df()


def test_a_result_knows_its_category_ids(results: Results) -> None:
    with pytest.raises(ValueError, match="expected the classes of the data set"):
        results.to_coco()
    class_map = ClassMap(("cat", "собака", "x"), (17, 18, 90))
    rows = replace(results, source_ids=class_map.source_ids, image_id=5).to_coco()
    assert rows == to_coco([replace(results, image_id=5)], class_map)
    assert [row["category_id"] for row in rows] == [18, 17, 18]
    assert results.to_coco(class_map)[0]["image_id"] == "bus"


def test_the_library_takes_the_results(tracked: Results) -> None:
    supervision = pytest.importorskip("supervision")
    found = tracked.to_supervision()
    assert isinstance(found, supervision.Detections)
    assert found.tracker_id.tolist() == [7, 2, 9]
    assert found.box_area.tolist() == pytest.approx((tracked.boxes.xywh[:, 2] * tracked.boxes.xywh[:, 3]).tolist())


def test_a_picture_whose_name_is_no_utf8_is_written(results: Results, tmp_path: Path) -> None:
    path = os.fsdecode(b"picture_\xe9.jpg")
    odd = replace(results, path=path)
    class_map = ClassMap(tuple(NAMES.values()), tuple(NAMES))
    with ResultsFolder(tmp_path, [Path(path)], class_map, Outputs(has_drawings=False)) as folder:
        folder.add(odd)
    rows = json.loads((tmp_path / "predictions.json").read_text("utf-8"))
    assert {row["file_name"] for row in rows} == {path}


def test_a_folder_takes_results_of_its_sources_alone(results: Results, tmp_path: Path) -> None:
    class_map = ClassMap(tuple(NAMES.values()), tuple(NAMES))
    sources = [Path("a folder/cut.jpg"), Path("a folder/bus.jpg")]  # the first gave no result
    with ResultsFolder(tmp_path / "out", sources, class_map, Outputs()) as folder:
        folder.add(results)
        with pytest.raises(ValueError, match=r"sources that are left.*bus\.jpg"):
            folder.add(results)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["bus.jpg", "predictions.json"]
    assert len(json.loads((tmp_path / "out" / "predictions.json").read_text("utf-8"))) == 3
