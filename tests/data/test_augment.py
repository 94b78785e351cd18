import colorsys
import logging
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from lucid_yolo.data.augment.affine import move_boxes, warp_boxes, warp_image
from lucid_yolo.data.augment.apply import AugmentedSample, apply_plan, move_targets, shown_placements
from lucid_yolo.data.augment.canvas import compose
from lucid_yolo.data.augment.color import shift_hsv
from lucid_yolo.data.collate import BatchWriter
from lucid_yolo.data.plan import (
    IDENTITY_GAINS,
    IDENTITY_MATRIX,
    AugmentPolicy,
    SamplePlan,
    TrainPlanner,
    letterbox_plan,
)
from lucid_yolo.data.sources import PreparedSource
from lucid_yolo.structures import Batch, ImageRecord

FLIP = (-1.0, 0.0, 64.0, 0.0, 1.0, 0.0)
# Colour of the rectangle in each of four images, the channel it shows in, and the sign against the grey ground.
PAINTS = [((255, 114, 114), 0, 1), ((114, 255, 114), 1, 1), ((114, 114, 255), 2, 1), ((0, 114, 114), 0, -1)]


def record(path: Path, image: np.ndarray, boxes: list[list[float]], ignored: list[bool] | None = None) -> ImageRecord:
    cv2.imwrite(str(path), image[..., ::-1])
    corners = np.array(boxes, np.float64).reshape(-1, 4)
    flags = np.array(ignored if ignored is not None else [False] * len(boxes), bool)
    area = np.prod(corners[:, 2:] - corners[:, :2], axis=1)
    labels = np.arange(len(boxes), dtype=np.int64)
    height, width = image.shape[:2]
    return ImageRecord(str(path), path.stem, height, width, corners, labels, flags, area, len(boxes))


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def apply_one(plan: SamplePlan, *records: ImageRecord) -> AugmentedSample:
    return apply_plan(plan, records, PreparedSource(records, plan.output_size_px))


def collate(samples: list[AugmentedSample], batch_size: int, image_size_px: int, capacity: int) -> Batch:
    writer = BatchWriter(batch_size, image_size_px, capacity)
    for slot, sample in enumerate(samples):
        writer.write(slot, sample)
    return writer.batch


@pytest.mark.parametrize(
    ("height", "width", "resized", "interpolation"),
    [
        (48, 64, (48, 64), None),
        (100, 333, (19, 64), cv2.INTER_AREA),
        (31, 17, (64, 35), cv2.INTER_LINEAR),
        (64, 64, (64, 64), None),
        (1, 300, (1, 64), cv2.INTER_AREA),
    ],
)
def test_the_plan_without_augmentation_is_the_letterbox(
    tmp_path: Path, height: int, width: int, resized: tuple[int, int], interpolation: int | None
) -> None:
    image = noise(height, width)
    source = record(tmp_path / "a.png", image, [[0, 0, width, height]])
    planner = TrainPlanner([source], 64, AugmentPolicy.none(), 1, 0, 1)
    sample = apply_one(planner.plan(0).samples[0], source)
    inside = image if interpolation is None else cv2.resize(image, resized[::-1], interpolation=interpolation)
    top, left = (64 - resized[0]) // 2, (64 - resized[1]) // 2
    expected = np.full((64, 64, 3), 114, np.uint8)
    expected[top : top + resized[0], left : left + resized[1]] = inside
    np.testing.assert_array_equal(sample.image, expected)
    if resized[0] >= 2:
        np.testing.assert_allclose(sample.boxes_xyxy_px, [[left, top, left + resized[1], top + resized[0]]])


def test_flip_is_exact_and_undone_by_itself() -> None:
    image = noise(64, 64)
    flipped = warp_image(image, FLIP, 64)
    np.testing.assert_array_equal(flipped, image[:, ::-1])
    np.testing.assert_array_equal(warp_image(flipped, FLIP, 64), image)
    boxes = np.array([[3.0, 4.0, 20.0, 30.0]])
    np.testing.assert_array_equal(warp_boxes(boxes, FLIP), [[44, 4, 61, 30]])
    np.testing.assert_array_equal(warp_boxes(warp_boxes(boxes, FLIP), FLIP), boxes)


def test_whole_pixel_shift_is_exact_and_fills_with_grey() -> None:
    image = noise(64, 64)
    moved = warp_image(image, (1.0, 0.0, 5.0, 0.0, 1.0, -3.0), 64)
    np.testing.assert_array_equal(moved[:61, 5:], image[3:, :59])
    assert (moved[61:] == 114).all()
    assert (moved[:, :5] == 114).all()


def test_boxes_follow_pixels_through_mosaic_rotation_shear_and_flip(tmp_path: Path) -> None:
    records = []
    for index, (paint, _, _) in enumerate(PAINTS):
        image = np.full((96, 128, 3), 114, np.uint8)
        x1, y1, x2, y2 = 30 + index, 20, 90, 70 - 3 * index
        image[y1:y2, x1:x2] = paint
        records.append(record(tmp_path / f"{index}.png", image, [[x1, y1, x2, y2]]))
    records = [replace(r, labels=np.array([i])) for i, r in enumerate(records)]
    policy = AugmentPolicy(close_mosaic=0, degrees=40.0, shear=8.0, scale=0.4, hsv_h=0.0, hsv_s=0.0, hsv_v=0.0)
    planner, prepared = TrainPlanner(records, 128, policy, 1, 0, 1000), PreparedSource(records, 128)
    num_whole, seen_flips = 0, set()
    for index in range(120):
        plan = planner.plan(index).samples[0]
        # One of each paint per mosaic; all sources have the same shape, so the rectangles stay right.
        plan = replace(plan, placements=tuple(replace(p, source_index=i) for i, p in enumerate(plan.placements)))
        sample = apply_plan(plan, records, prepared)
        for box, label in zip(sample.boxes_xyxy_px, sample.labels, strict=True):
            _, channel, sign = PAINTS[label]
            rows, columns = np.nonzero(sign * (sample.image[..., channel].astype(int) - 114) > 28)
            found = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
            assert (found[:2] >= box[:2] - 1).all()
            assert (found[2:] <= box[2:] + 1).all()
            if box.min() > 0 and box.max() < 128:
                np.testing.assert_allclose(box, found, atol=1.0)
                num_whole += 1
                seen_flips.add(plan.is_flipped)
    assert num_whole > 50
    assert seen_flips == {False, True}


def test_placements_that_are_left_out_change_nothing(tmp_path: Path) -> None:
    records = [record(tmp_path / f"{i}.png", noise(64, 64, i), [[5, 5, 60, 60]]) for i in range(4)]
    prepared = PreparedSource(records, 64)
    policy = AugmentPolicy(close_mosaic=0, degrees=20.0, scale=0.9, translate=0.3, hsv_h=0.0, hsv_s=0.0, hsv_v=0.0)
    planner, num_left_out = TrainPlanner(records, 64, policy, 1, 0, 1000), 0
    for index in range(60):
        plan = planner.plan(index).samples[0]
        num_left_out += 4 - len(shown_placements(plan))
        sample = apply_plan(plan, records, prepared)
        canvas = compose(plan.placements, [prepared(p.source_index) for p in plan.placements], plan.canvas_size_px)
        np.testing.assert_array_equal(sample.image, warp_image(canvas, plan.matrix, 64))
        np.testing.assert_array_equal(sample.boxes_xyxy_px, move_targets(plan, plan.placements, records)[0])
    assert num_left_out > 10


@pytest.mark.parametrize(
    ("box", "is_ignored", "expected", "reason"),
    [
        ([10, 10, 20, 20], False, [10, 10, 20, 20], "inside: untouched"),
        ([10, 10, 12, 12], False, [10, 10, 12, 12], "two pixels are enough"),
        ([10, 10, 11.9, 30], False, None, "narrower than two pixels"),
        ([10, 10, 30, 11.9], False, None, "lower than two pixels"),
        ([-40, 0, 10, 10], False, [0, 0, 10, 10], "a fifth is visible"),
        ([-90, 0, 10, 10], False, [0, 0, 10, 10], "exactly a tenth is visible"),
        ([-91, 0, 10, 10], False, None, "less than a tenth is visible"),
        ([-91, 0, 10, 10], True, [0, 0, 10, 10], "what is visible of an ignore region is still ignored"),
        ([-91, 0, 1.5, 10], True, None, "too thin even for an ignore region"),
        ([-20, -20, -5, -5], False, None, "outside"),
        ([70, 10, 90, 30], True, None, "outside, ignore region"),
        ([10, 10, 10, 10], False, None, "empty from the start"),
        ([30, 30, 10, 10], False, None, "inverted"),
        ([-10, -10, 100, 100], False, [0, 0, 64, 64], "larger than the image"),
    ],
)
def test_drop_rule(box: list[float], is_ignored: bool, expected: list[float] | None, reason: str) -> None:
    clip = np.array([[0.0, 0.0, 64.0, 64.0]])
    moved, keep = move_boxes(np.array([box], np.float64), clip, IDENTITY_MATRIX, 64, np.array([is_ignored]))
    assert keep[0] == (expected is not None), reason
    if expected is not None:
        np.testing.assert_allclose(moved[0], expected, err_msg=reason)


def test_drop_rule_after_rotation_ignores_what_the_canvas_cut_off() -> None:
    half = np.sqrt(0.5)
    matrix = (half, -half, 32.0, half, half, -13.0)
    clip = np.array([[0.0, 0.0, 20.0, 64.0]])
    _, keep = move_boxes(np.array([[20.0, 10.0, 40.0, 60.0]]), clip, matrix, 64, np.array([True]))
    assert not keep[0]


def test_ignore_flags_and_labels_travel(tmp_path: Path) -> None:
    boxes = [[0.0, 0.0, 30.0, 30.0], [5.0, 5.0, 6.0, 6.0], [20.0, 20.0, 60.0, 60.0]]
    source = record(tmp_path / "a.png", noise(64, 64), boxes, [False, True, True])
    plan = replace(letterbox_plan(0, source, 64), matrix=FLIP, is_flipped=True)
    sample = apply_one(plan, source)
    assert sample.labels.tolist() == [0, 2]
    assert sample.is_ignored.tolist() == [False, True]
    np.testing.assert_allclose(sample.boxes_xyxy_px, [[34, 0, 64, 30], [4, 20, 44, 60]])


def test_an_image_without_labels_works(tmp_path: Path) -> None:
    source = record(tmp_path / "a.png", noise(40, 64), [])
    for seed in range(3):
        sample = apply_one(TrainPlanner([source], 64, AugmentPolicy(), 1, seed, 20).plan(0).samples[0], source)
        assert sample.image.shape == (64, 64, 3)
        assert sample.boxes_xyxy_px.shape == (0, 4)
        assert (sample.labels.dtype, sample.is_ignored.dtype) == (np.int64, bool)
    batch = collate([sample], 2, 64, 64)
    assert batch.targets.is_padded.all()
    assert batch.sample_index.tolist() == [0, -1]


def test_an_undecodable_image_is_grey_without_targets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    good = record(tmp_path / "good.png", noise(64, 64), [[10, 10, 40, 40]])
    bad = record(tmp_path / "bad.png", noise(32, 64), [[10, 10, 40, 30]])
    Path(bad.path).write_text("<html>not found</html>")
    prepared = PreparedSource([good, bad], 64)
    with caplog.at_level(logging.WARNING):
        samples = [apply_plan(letterbox_plan(i, r, 64), [good, bad], prepared) for i, r in ((0, good), (1, bad)) * 2]
    assert [len(sample.labels) for sample in samples] == [1, 0, 1, 0]
    assert (samples[1].image == 114).all()
    assert prepared.undecodable_indices == [1]
    assert sum("bad.png" in message for message in caplog.messages) == 1


def test_neutral_gains_return_the_same_pixels() -> None:
    image = noise(16, 16)
    assert shift_hsv(image, IDENTITY_GAINS) is image


@pytest.mark.parametrize(
    "gains", [(0.25, 1.0, 1.0), (-0.1, 1.0, 1.0), (0.0, 0.3, 1.0), (0.0, 1.7, 1.0), (0.1, 0.8, 1.3)]
)
def test_gains_equal_the_formula(gains: tuple[float, float, float]) -> None:
    image = noise(16, 16)
    image = np.maximum(image, 40)  # near black the 8-bit codes of hue and saturation are coarse
    shifted = shift_hsv(image, gains)
    expected = np.empty((16, 16, 3))
    for y, x in np.ndindex(16, 16):
        hue, saturation, value = colorsys.rgb_to_hsv(*(image[y, x] / 255).tolist())
        hue, saturation, value = (hue + gains[0]) % 1, min(saturation * gains[1], 1), min(value * gains[2], 1)
        expected[y, x] = colorsys.hsv_to_rgb(hue, saturation, value)
    np.testing.assert_allclose(shifted, 255 * expected, atol=7)


def test_the_input_is_not_changed() -> None:
    image = noise(16, 16)
    kept = image.copy()
    shift_hsv(image, (0.2, 0.5, 0.9))
    warp_image(image, FLIP, 16)
    np.testing.assert_array_equal(image, kept)


def test_collate_pads_and_keeps_order(tmp_path: Path) -> None:
    boxes = [[0.0, 0.0, 30.0, 30.0], [20.0, 20.0, 60.0, 60.0]]
    source = record(tmp_path / "a.png", noise(64, 64), boxes, [False, True])
    sample = apply_one(letterbox_plan(5, source, 64), *[source] * 6)
    batch = collate([sample, sample], 2, 64, 64)
    targets = batch.targets
    np.testing.assert_array_equal(targets.boxes_xyxy_px[1, :2].numpy(), boxes)
    assert targets.labels[0, :3].tolist() == [0, 1, 0]
    assert targets.is_object[0].nonzero().flatten().tolist() == [0]
    assert targets.is_ignored[0].nonzero().flatten().tolist() == [1]
    assert (~targets.is_padded).sum(1).tolist() == [2, 2]
    assert not targets.boxes_xyxy_px[0, 2:].any()
    np.testing.assert_array_equal(batch.images[0].permute(1, 2, 0).numpy(), sample.image)


def test_more_targets_than_planned_is_a_bug(tmp_path: Path) -> None:
    source = record(tmp_path / "a.png", noise(64, 64), [[0, 0, 10, 10]] * 65)
    sample = apply_one(letterbox_plan(0, source, 64), source)
    with pytest.raises(AssertionError, match="65 targets"):
        collate([sample], 1, 64, 64)
