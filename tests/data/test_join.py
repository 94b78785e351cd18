"""Perspective, upside-down flip, channel swap, cut-mix and mix-up: identity, inverse, boxes that follow pixels."""

from collections.abc import Sequence
from dataclasses import replace

import cv2
import numpy as np
import pytest

from lucid_yolo.data.augment.affine import visible_rectangle, warp_boxes, warp_image
from lucid_yolo.data.augment.apply import AugmentedSample, apply_plan
from lucid_yolo.data.augment.canvas import compose
from lucid_yolo.data.augment.color import shift_hsv
from lucid_yolo.data.augment.join import blend, cut_boxes, is_region_free, paste_region
from lucid_yolo.data.plan import (
    IDENTITY_GAINS,
    IDENTITY_MATRIX,
    AugmentPolicy,
    CutMix,
    MixUp,
    SamplePlan,
    TrainPlanner,
    letterbox_plan,
)
from lucid_yolo.data.sources import PreparedSource
from lucid_yolo.structures import ImageRecord

SIZE = 64
FLIP_UD = (1.0, 0.0, 0.0, 0.0, -1.0, 64.0)


class Pictures(PreparedSource):
    """Images that are in memory already."""

    def __init__(self, images: Sequence[np.ndarray]) -> None:
        self.images = images

    def __call__(self, index: int) -> np.ndarray:
        return self.images[index]

    def is_undecodable(self, index: int) -> bool:
        return index < 0


def record(boxes: list[list[float]], labels: list[int], ignored: list[bool] | None = None) -> ImageRecord:
    corners, flags = np.array(boxes, np.float64).reshape(-1, 4), np.array(ignored or [False] * len(boxes), bool)
    return ImageRecord("", 0, SIZE, SIZE, corners, np.array(labels, np.int64), flags, np.ones(len(boxes)), len(boxes))


def noise(seed: int = 0, size: int = SIZE) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (size, size, 3), np.uint8)


def letterboxed(index: int, records: Sequence[ImageRecord]) -> SamplePlan:
    return letterbox_plan(index, records[index], SIZE)


def apply_one(plan: SamplePlan, records: Sequence[ImageRecord], images: Sequence[np.ndarray]) -> AugmentedSample:
    return apply_plan(plan, records, Pictures(images))


def test_upside_down_flip_is_exact_and_undone_by_itself() -> None:
    image = noise()
    flipped = warp_image(image, FLIP_UD, SIZE)
    np.testing.assert_array_equal(flipped, image[::-1])
    np.testing.assert_array_equal(warp_image(flipped, FLIP_UD, SIZE), image)
    boxes = np.array([[3.0, 4.0, 20.0, 30.0]])
    np.testing.assert_array_equal(warp_boxes(boxes, FLIP_UD), [[3, 34, 20, 60]])


def test_flips_of_the_plan_are_the_flips_of_the_pixels() -> None:
    records, images = [record([[3, 4, 20, 30]], [0])], [noise()]
    for name, axis, expected in (("fliplr", 1, [44, 4, 61, 30]), ("flipud", 0, [3, 34, 20, 60])):
        policy = replace(AugmentPolicy.none(), **{name: 1.0})
        sample = apply_one(TrainPlanner(records, SIZE, policy, 1, 0, 1).plan(0).samples[0], records, images)
        np.testing.assert_array_equal(sample.image, np.flip(images[0], axis))
        np.testing.assert_allclose(sample.boxes_xyxy_px, [expected])


def homography(seed: int) -> tuple[tuple[float, ...], tuple[float, float]]:
    policy = AugmentPolicy(perspective=0.25, degrees=20.0, translate=0.0, mosaic=0.0, close_mosaic=0, scale=0.1)
    plan = TrainPlanner([record([], [])], SIZE, policy, 1, seed, 1).plan(0).samples[0]
    return plan.matrix, plan.perspective


def test_perspective_undone_by_its_inverse() -> None:
    smooth = cv2.GaussianBlur(noise(size=8), (0, 0), 1)
    image = cv2.resize(smooth, (SIZE, SIZE), interpolation=cv2.INTER_CUBIC)
    for seed in range(5):
        matrix, perspective = homography(seed)
        inverse = np.linalg.inv(np.array([*matrix, *perspective, 1.0]).reshape(3, 3))
        inverse = (inverse / inverse[2, 2]).reshape(-1).tolist()
        back = tuple(inverse[:6]), tuple(inverse[6:8])
        there = warp_image(image, matrix, SIZE, perspective)
        again = warp_image(there, back[0], SIZE, back[1])
        np.testing.assert_allclose(again[20:-20, 20:-20].astype(int), image[20:-20, 20:-20], atol=4)
        boxes = np.array([[20.0, 20, 20, 20], [40, 25, 40, 25]])  # points come back exactly
        np.testing.assert_allclose(warp_boxes(warp_boxes(boxes, matrix, perspective), *back), boxes)


def test_boxes_follow_pixels_through_perspective() -> None:
    image = np.full((SIZE, SIZE, 3), 114, np.uint8)
    image[20:44, 24:50] = 255
    for seed in range(20):
        matrix, perspective = homography(seed)
        shown = warp_image(image, matrix, SIZE, perspective)[..., 0] > 185
        ys, xs = np.nonzero(shown)
        found = [xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]
        box = np.clip(warp_boxes(np.array([[24.0, 20, 50, 44]]), matrix, perspective)[0], 0, SIZE)
        np.testing.assert_allclose(box, found, atol=1.2)


def test_a_map_without_perspective_is_the_affine_map() -> None:
    policy = AugmentPolicy(degrees=20.0, shear=5.0, close_mosaic=0)
    plans = [
        TrainPlanner([record([], [])], SIZE, p, 4, 0, 1).plan(0) for p in (policy, replace(policy, perspective=0.2))
    ]
    for affine, tilted in zip(plans[0].samples, plans[1].samples, strict=True):
        assert affine.perspective == (0.0, 0.0)
        assert tilted.perspective != (0.0, 0.0)
        # Both put the canvas centre in the same place.
        half = affine.canvas_size_px / 2
        point = np.array([[half, half, half, half]])
        np.testing.assert_allclose(
            warp_boxes(point, affine.matrix), warp_boxes(point, tilted.matrix, tilted.perspective), atol=1e-9
        )


def test_only_what_is_visible_of_the_canvas_is_composed() -> None:
    records, images = [record([], [])] * 4, [noise(i) for i in range(4)]
    policy = AugmentPolicy(close_mosaic=0, degrees=30.0, shear=10.0, scale=0.9, translate=0.3)
    planner, num_partial = TrainPlanner(records, SIZE, policy, 1, 0, 1000), 0
    for index in range(200):
        plan = planner.plan(index).samples[0]
        sources = [images[p.source_index] for p in plan.placements]
        left, top, right, bottom = visible = visible_rectangle(plan.matrix, plan.perspective, 128, SIZE)
        whole = compose(plan.placements, sources, 128)
        poisoned = np.full_like(whole, 255)
        poisoned[top:bottom, left:right] = compose(plan.placements, sources, 128, visible)[top:bottom, left:right]
        np.testing.assert_array_equal(warp_image(poisoned, plan.matrix, SIZE), warp_image(whole, plan.matrix, SIZE))
        num_partial += (right - left) * (bottom - top) < 128 * 128
    assert num_partial > 50


def test_channel_swap_is_exact_undone_by_itself_and_comes_after_the_gains() -> None:
    image, gains = noise(), (0.1, 0.6, 1.2)
    np.testing.assert_array_equal(shift_hsv(image, IDENTITY_GAINS, is_bgr=True), image[..., ::-1])
    np.testing.assert_array_equal(shift_hsv(image[..., ::-1].copy(), IDENTITY_GAINS, is_bgr=True), image)
    np.testing.assert_array_equal(shift_hsv(image, gains, is_bgr=True), shift_hsv(image, gains)[..., ::-1])


@pytest.mark.parametrize("is_bgr", [False, True])
@pytest.mark.parametrize("gains", [IDENTITY_GAINS, (0.1, 0.6, 1.2), (0.0, 0.6, 1.0)])
def test_colour_in_place_equals_colour_in_a_new_image(gains: tuple[float, float, float], is_bgr: bool) -> None:
    image = noise()
    expected = shift_hsv(image.copy(), gains, is_bgr).copy()
    shift_hsv(image, gains, is_bgr, out=image)
    np.testing.assert_array_equal(image, expected)


def test_blend_is_the_weighted_sum() -> None:
    left, right = noise(0), noise(1)
    np.testing.assert_array_equal(blend(left, left, 0.4), left)
    np.testing.assert_array_equal(blend(left, right, 1.0), left)
    np.testing.assert_array_equal(blend(left, right, 0.0), right)
    expected = 0.4 * left + 0.6 * right
    assert abs(blend(left, right, 0.4) - expected).max() <= 0.5 + 1e-3


def test_mix_up_keeps_the_labels_of_both_in_full() -> None:
    records = [record([[1, 2, 30, 40]], [3]), record([[5, 5, 60, 60], [0, 0, 9, 9]], [1, 2], [False, True])]
    images = [noise(0), noise(1)]
    plan = replace(letterboxed(0, records), mix=MixUp(letterboxed(1, records), 0.45))
    sample = apply_one(plan, records, images)
    np.testing.assert_array_equal(sample.image, blend(images[0], images[1], 0.45))
    np.testing.assert_array_equal(sample.boxes_xyxy_px, [[1, 2, 30, 40], [5, 5, 60, 60], [0, 0, 9, 9]])
    assert sample.labels.tolist() == [3, 1, 2]
    assert sample.is_ignored.tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("region", "is_pasted", "reason"),
    [
        ((32, 32, 64, 64), True, "beside the box"),
        ((20, 20, 64, 64), True, "touches the corner of the box"),
        ((19, 19, 64, 64), False, "covers a pixel of the box"),
        ((0, 40, 64, 64), False, "covers a pixel of the ignore region"),
        ((30, 5, 30, 40), True, "empty"),
    ],
)
def test_a_region_is_pasted_only_where_nothing_is(
    region: tuple[int, int, int, int], is_pasted: bool, reason: str
) -> None:
    records = [record([[4, 4, 20, 20], [0, 30, 10, 41]], [0, 0], [False, True]), record([[34, 34, 50, 50]], [5])]
    images = [noise(0), noise(1)]
    plan = replace(letterboxed(0, records), cut=CutMix(letterboxed(1, records), region))
    sample = apply_one(plan, records, images)
    expected = paste_region(images[0], images[1], region) if is_pasted else images[0]
    np.testing.assert_array_equal(sample.image, expected, err_msg=reason)
    x1, y1, x2, y2 = region
    holds_object = is_pasted and x2 - x1 > 20
    assert sample.labels.tolist() == [0, 0, 5] if holds_object else [0, 0], reason
    if is_pasted:
        np.testing.assert_array_equal(sample.image[y1:y2, x1:x2], images[1][y1:y2, x1:x2])


def test_a_region_keeps_boxes_of_which_a_tenth_shows() -> None:
    boxes = np.array([[0, 0, 20, 20], [0, 0, 20, 10.9], [0, 0, 20, 11.2], [30, 30, 40, 40], [0, 0, 10.5, 20]], float)
    moved, keep = cut_boxes(boxes, np.array([False, False, False, False, True]), (10, 10, 40, 40))
    assert keep.tolist() == [True, False, False, True, False]
    np.testing.assert_array_equal(moved[keep], [[10, 10, 20, 20], [30, 30, 40, 40]])
    _, keep = cut_boxes(np.array([[-200.0, 0, 20, 20]] * 2), np.array([False, True]), (10, 10, 40, 40))
    assert keep.tolist() == [False, True]
    assert is_region_free(np.empty((0, 4)), (0, 0, 64, 64))


def test_inputs_are_not_changed() -> None:
    images = [noise(0), noise(1)]
    kept = [image.copy() for image in images]
    records = [record([], [])] * 2
    policy = AugmentPolicy(close_mosaic=0, mosaic=0.5, mixup=1.0, cutmix=1.0, bgr=0.5, perspective=0.1)
    for index in range(6):
        apply_one(TrainPlanner(records, SIZE, policy, 1, 0, 1000).plan(index).samples[0], records, images)
    for image, before in zip(images, kept, strict=True):
        np.testing.assert_array_equal(image, before)


def test_a_slot_of_a_batch_gets_the_same_pixels() -> None:
    records, images = [record([[10, 10, 20, 20]], [i]) for i in range(5)], [noise(i) for i in range(5)]
    policy = AugmentPolicy(mosaic=0.5, mixup=0.5, cutmix=0.5, bgr=0.5, perspective=0.1, hsv_h=0.0, hsv_s=0.0, hsv_v=0.0)
    for options in (policy, AugmentPolicy(close_mosaic=0), AugmentPolicy.none()):
        for index in range(10):
            plan = TrainPlanner(records, SIZE, options, 1, 0, 1000).plan(index).samples[0]
            slot = np.full((SIZE, SIZE, 3), 7, np.uint8)
            made = apply_plan(plan, records, Pictures(images), slot)
            np.testing.assert_array_equal(slot, apply_one(plan, records, images).image)
            assert np.shares_memory(made.image, slot)
            assert not any(np.shares_memory(slot, image) for image in images)


def test_a_region_of_the_map_that_changes_nothing() -> None:
    assert visible_rectangle(IDENTITY_MATRIX, (0.0, 0.0), SIZE, SIZE) == (0, 0, SIZE, SIZE)
    assert visible_rectangle((1.0, 0.0, -500.0, 0.0, 1.0, 0.0), (0.0, 0.0), SIZE, SIZE)[0] == SIZE
