"""The gate, on detections with known differences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from exported import untrained_ckpt
from lucid_yolo.export.pictures import draw_pictures, load_pictures, save_pair, spread
from lucid_yolo.export.verify import FP16, FP32, EagerReference, Found, Tolerance, compare, run_gate
from lucid_yolo.geometry.letterbox import FILL_VALUE
from lucid_yolo.models.head import DEPLOYED
from lucid_yolo.runtime.detector import Detector, read_network
from lucid_yolo.structures import Detections


def make_found() -> Found:
    boxes = torch.tensor([[10.0, 10, 50, 50], [60, 60, 100, 90], [20, 5, 40, 45], [0, 0, 30, 30]])
    return Found(boxes, torch.tensor([0.9, 0.6, 0.2502, 0.1]), torch.tensor([0, 1, 1, 0]))


def changed(change: Callable[[Found], object]) -> Found:
    found = make_found()
    change(found)
    return found


def swap(found: Found) -> None:
    for column in (found.boxes_xyxy_px, found.score, found.label):
        column[[0, 1]] = column[[1, 0]]


@pytest.mark.parametrize(
    ("change", "tolerance", "num_missing"),
    [
        (lambda f: None, FP32, 0),
        (lambda f: f.boxes_xyxy_px[0].add_(0.05), FP32, 0),
        (lambda f: f.boxes_xyxy_px[0].add_(0.15), FP32, 2),  # IoU 0.985, missing on either side
        (lambda f: f.boxes_xyxy_px[0].add_(0.15), FP16, 0),
        (lambda f: f.boxes_xyxy_px[3].add_(9), FP32, 0),  # below the score that counts
        (lambda f: f.label[1].sub_(1), FP32, 2),
        (lambda f: f.score[1].add_(0.002), FP32, 2),
        (lambda f: f.score[1].add_(0.002), FP16, 0),
        (lambda f: f.score[2].sub_(0.0005), FP32, 0),  # falls below what counts, within the tolerance
        (lambda f: f.score[2].sub_(0.01), FP32, 1),  # counts on one side only
        (lambda f: f.score[3].add_(0.2), FP32, 1),  # an object that eager has not
        (lambda f: f.score[:3].zero_(), FP32, 3),
    ],
)
def test_what_counts_as_missing(change: Callable[[Found], object], tolerance: Tolerance, num_missing: int) -> None:
    result = compare(make_found(), changed(change), tolerance)
    assert result.num_missing == num_missing
    assert result.num_compared >= 3
    assert result.is_same_order or num_missing


def test_numbers_of_the_worst_detection() -> None:
    def change(found: Found) -> None:
        found.boxes_xyxy_px[0, 2] += 0.1
        found.score[1] += 4e-4

    result = compare(make_found(), changed(change), FP32)
    assert result.worst_iou == pytest.approx(40 * 40 / (40.1 * 40), abs=1e-6)
    assert result.worst_score == pytest.approx(4e-4, abs=1e-6)


def test_another_order_is_told_but_no_difference() -> None:
    eager, exported = make_found(), changed(swap)
    result = compare(eager, exported, FP32)
    assert (result.num_missing, result.is_same_order) == (0, False)


def test_one_row_is_no_counterpart_of_two() -> None:
    def twice(found: Found) -> None:
        found.boxes_xyxy_px[1], found.score[1], found.label[1] = found.boxes_xyxy_px[0], 0.9, 0

    assert (
        compare(changed(twice), make_found(), FP32).num_missing == 2
    )  # the second row of one, the lost one of the other


def test_what_may_have_been_cut_off_at_the_end_is_not_missed() -> None:
    eager, exported = make_found().head(3), changed(lambda f: f.boxes_xyxy_px[2].add_(20)).head(3)
    assert compare(eager, exported, FP32).num_missing == 0
    assert compare(make_found(), changed(lambda f: f.boxes_xyxy_px[2].add_(20)), FP32).num_missing == 2


def test_a_box_without_area_is_its_own_counterpart() -> None:
    found = changed(lambda f: f.boxes_xyxy_px[0, 2].fill_(10))
    assert compare(found, found, FP32).num_missing == 0
    moved = changed(lambda f: (f.boxes_xyxy_px[0, 2].fill_(10), f.boxes_xyxy_px[0].add_(0.02)))
    assert compare(found, moved, FP32).num_missing == 2


class Wrong:
    """A detector whose answers were changed."""

    def __init__(self, detector: Detector, change: Callable[[torch.Tensor, torch.Tensor], object]) -> None:
        self.meta, self.device, self.precision, self.branches = detector.meta, detector.device, "fp32", (DEPLOYED,)
        self._detector, self._change = detector, change
        self.batch_sizes: list[int] = []

    def detect(self, images: torch.Tensor) -> dict[str, Detections]:
        with torch.inference_mode():
            found = self._detector.detect(images)
            self._change(found[DEPLOYED].boxes_xyxy_px, found[DEPLOYED].score)
        self.batch_sizes.append(len(images))
        return found


def test_the_gate_on_a_whole_network(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    ckpt_path = untrained_ckpt(tmp_path_factory)
    network, meta = read_network(ckpt_path)
    reference = EagerReference(network, meta.build_task())
    pictures = draw_pictures((64, 64))
    fused = Detector.from_checkpoint(ckpt_path, "cpu", "fp32", (DEPLOYED,), is_fused=True)
    good = Wrong(fused, lambda boxes, score: None)
    result, found = run_gate(reference, good, pictures, FP32)
    assert result.is_passed
    assert result.num_compared > 10
    assert good.batch_sizes == [1, 2, 1]
    assert list(found) == [picture.name for picture in pictures]
    bad = run_gate(reference, Wrong(fused, lambda boxes, score: boxes.add_(3)), pictures, FP32)[0]
    assert not bad.is_passed
    assert bad.worst.worst_iou < 0.99
    with pytest.raises(ValueError, match="finite"):
        run_gate(reference, Wrong(fused, lambda boxes, score: score.fill_(torch.nan)), pictures, FP32)
    save_pair(pictures[0], found[pictures[0].name], meta.class_map.names, 0.25, tmp_path / "worst.png")
    with Image.open(tmp_path / "worst.png") as drawn:
        assert drawn.size == (64 + 8 + 64, 64)


def test_without_detections_the_best_are_compared_and_nothing_is_no_pass() -> None:
    low = changed(lambda f: f.score.mul_(0.1))
    moved = changed(lambda f: (f.score.mul_(0.1), f.boxes_xyxy_px[2].add_(5)))
    assert compare(low, moved, FP32).num_compared == 0
    assert compare(low, moved, FP32, only_best=True).num_missing == 2


def test_pictures_lie_in_the_middle_of_any_canvas(tmp_path: Path) -> None:
    for number in range(3):
        Image.fromarray(np.full((20, 40, 3), 10 * (number + 1), np.uint8)).save(tmp_path / f"{number}.png")
    (tmp_path / "3.png").write_bytes(b"no picture")
    paths = sorted(tmp_path.iterdir())
    loaded = load_pictures(paths, (64, 96), has_dynamic_size=True)
    assert [tuple(picture.canvas.shape) for picture in loaded] == [(3, 64, 96), (3, 64, 96), (3, 96, 96)]
    canvas = loaded[1].canvas[0]
    assert (canvas[16:48, 16:80] == 20).all()
    assert (canvas[:16] == FILL_VALUE).all()
    assert (canvas[:, :16] == FILL_VALUE).all()
    assert spread(paths, 2) == [paths[0], paths[2]]
    assert spread(paths, 9) == paths
