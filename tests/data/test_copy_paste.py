"""Copy-paste: which objects a plan picks, and what the pasted pixels and boxes are."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image, ImageDraw

from lucid_yolo.data.augment.apply import AugmentedSample, apply_plan
from lucid_yolo.data.augment.paste import covers_little, uncovered_boxes
from lucid_yolo.data.loader import TrainLoader
from lucid_yolo.data.makers import PixelMaker
from lucid_yolo.data.plan import AugmentPolicy, BatchPlan, CopyPaste, SamplePlan, TrainPlanner, letterbox_plan
from lucid_yolo.data.sources import PreparedSource
from lucid_yolo.structures import ImageRecord, Polygons

SIZE = 96
CALM = AugmentPolicy.none()
WILD = AugmentPolicy(
    close_mosaic=1, mosaic=0.6, degrees=25.0, shear=8.0, perspective=0.1, hsv_h=0.0, hsv_s=0.0, hsv_v=0.0
)


class Pictures(PreparedSource):
    """Images that are in memory already."""

    def __init__(self, images: Sequence[np.ndarray], undecodable: Sequence[int] = ()) -> None:
        self.images, self.undecodable = images, undecodable

    def __call__(self, index: int) -> np.ndarray:
        return self.images[index]

    def is_undecodable(self, index: int) -> bool:
        return index in self.undecodable


def record(
    rings: Sequence[Sequence[Any]], num_rows: int | None = None, ignored: Sequence[int] = (), path: str = ""
) -> ImageRecord:
    """An image of ``SIZE``: a list of rings for each object; a tuple of four numbers for one with only a box."""
    outlines = [[] if isinstance(item, tuple) else [np.array(ring, float) for ring in item] for item in rings]
    boxes = [
        item if isinstance(item, tuple) else (*np.concatenate(outline).min(0), *np.concatenate(outline).max(0))
        for item, outline in zip(rings, outlines, strict=True)
    ]
    count = len(boxes)
    corners, flags = np.array(boxes, float).reshape(-1, 4), np.isin(np.arange(count), ignored)
    rows = count if num_rows is None else num_rows
    polygons = Polygons.pack(outlines) if any(outlines) else None
    return ImageRecord(path, 0, SIZE, SIZE, corners, np.arange(count), flags, np.ones(count), rows, polygons)


def blob(rng: np.random.Generator) -> list[list[list[float]]]:
    """A star-shaped outline somewhere in the picture."""
    angles = np.sort(rng.uniform(0, 2 * np.pi, 9))
    radii, center = rng.uniform(6, 16, 9), rng.uniform(18, SIZE - 18, 2)
    return [(center + radii[:, None] * np.stack((np.cos(angles), np.sin(angles)), 1)).tolist()]


def noise(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (SIZE, SIZE, 3), np.uint8)


def many(count: int = 6) -> list[ImageRecord]:
    rng = np.random.default_rng(5)
    return [record([blob(rng) for _ in range(index % 4)] + [(1, 2, 9, 9)]) for index in range(count)]


def planner(records: Sequence[ImageRecord], policy: AugmentPolicy, **options: Any) -> TrainPlanner:
    return TrainPlanner(records, SIZE, policy, **{"batch_size": 2, "seed": 0, "num_epochs": 100, **options})


def plans(records: Sequence[ImageRecord], policy: AugmentPolicy, count: int = 60, **options: Any) -> list[SamplePlan]:
    made = planner(records, policy, **options)
    return [sample for index in range(count) for sample in made.plan(index).samples]


def apply_one(plan: SamplePlan, records: Sequence[ImageRecord], images: Sequence[np.ndarray]) -> AugmentedSample:
    return apply_plan(plan, records, Pictures(images))


def flipped(records: Sequence[ImageRecord], *objects: tuple[int, int]) -> SamplePlan:
    return replace(letterbox_plan(0, records[0], SIZE), paste=CopyPaste(None, objects))


def drawn(rings: Sequence[Sequence[Sequence[float]]]) -> np.ndarray:
    """What another library fills."""
    canvas = Image.new("1", (SIZE, SIZE))
    for ring in rings:
        ImageDraw.Draw(canvas).polygon([(x - 0.5, y - 0.5) for x, y in ring], fill=1)
    return np.array(canvas)


SQUARE = [[(10, 10), (30, 10), (30, 30), (10, 30)]]


@pytest.mark.parametrize("mode", ["flip", "mixup"])
def test_zero_probability_and_boxes_alone_change_no_plan(mode: Any) -> None:
    plain = plans(many(), WILD)
    assert plans(many(), replace(WILD, copy_paste_mode=mode)) == plain
    boxes_only = [replace(item, polygons=None) for item in many()]
    assert plans(boxes_only, replace(WILD, copy_paste=1.0, copy_paste_mode=mode)) == plain


@pytest.mark.parametrize("mode", ["flip", "mixup"])
def test_pasting_moves_no_other_number_and_depends_on_the_seed(mode: Any) -> None:
    policy = replace(WILD, copy_paste=0.5, copy_paste_mode=mode, mixup=0.5, cutmix=0.5)
    made = plans(many(), policy)
    assert [replace(sample, paste=None) for sample in made] == plans(many(), replace(policy, copy_paste=0.0))
    assert plans(many(), policy) == made
    assert [s.paste for s in plans(many(), policy, seed=1)] != [s.paste for s in made]


@pytest.mark.parametrize(("mode", "probability"), [("flip", 0.3), ("mixup", 0.7)])
def test_each_object_is_picked_with_the_probability(mode: Any, probability: float) -> None:
    policy = replace(WILD, copy_paste=probability, copy_paste_mode=mode, close_mosaic=0)
    records = [record([SQUARE] * 5 + [(0, 0, 9, 9)], ignored=[2]) for _ in range(4)]
    picked = [sample.paste for sample in plans(records, policy, 200)]
    pairs = [pair for paste in picked if paste is not None for pair in paste.objects]
    assert {row for _, row in pairs} == {0, 1, 3, 4}  # no ignore region, no object with only a box
    assert {place for place, _ in pairs} == {0, 1, 2, 3}
    expected = 400 * (0.6 * 16 + 0.4 * 4) * probability
    assert len(pairs) == pytest.approx(expected, rel=0.08)
    assert all((paste.partner is None) == (mode == "flip") for paste in picked if paste is not None)


def test_closed_epochs_paste_nothing() -> None:
    policy = replace(WILD, copy_paste=1.0, close_mosaic=2)
    made = planner(many(), policy, num_epochs=4)
    seen = [any(s.paste for i in range(3) for s in made.plan(3 * epoch + i).samples) for epoch in range(4)]
    assert seen == [True, True, False, False]


@pytest.mark.parametrize("mode", ["flip", "mixup"])
def test_capacity_counts_pasted_objects_on_every_rank(mode: Any) -> None:
    records = [record([SQUARE] * count) for count in (40, 1, 1, 40, 20)]
    policy = replace(CALM, copy_paste=0.6, copy_paste_mode=mode)
    shards = [planner(records, policy, batch_size=1, world_size=2, rank=rank) for rank in range(2)]
    seen = set()
    for index in range(120):
        made = [shard.plan(index) for shard in shards]
        samples = [plan.samples[0] for plan in made]
        rows = [records[s.sample_index].num_label_rows + (len(s.paste.objects) if s.paste else 0) for s in samples]
        assert {plan.capacity for plan in made} == {64 if max(rows) <= 64 else 256}
        seen.add(made[0].capacity)
    assert seen == {64, 256}


@pytest.mark.parametrize("mode", ["flip", "mixup"])
def test_json_round_trip_and_sources(mode: Any) -> None:
    plan = planner(many(), replace(WILD, copy_paste=0.9, copy_paste_mode=mode)).plan(1)
    assert BatchPlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    sample = next(s for s in plan.samples if s.paste)
    assert sample.paste is not None
    partner = sample.paste.partner.source_indices if sample.paste.partner else ()
    assert sorted(sample.source_indices) == sorted([p.source_index for p in sample.placements] + list(partner))


def test_bad_options_are_named() -> None:
    with pytest.raises(ValueError, match="copy_paste: expected a number in"):
        AugmentPolicy(copy_paste=1.1)
    with pytest.raises((ValueError, TypeError), match="copy_paste_mode"):
        AugmentPolicy(copy_paste_mode="own")  # type: ignore[arg-type]


def test_pasted_pixels_are_those_of_the_mirror_image() -> None:
    rings = [[[8, 10], [30, 14], [22, 40]], [[12, 50], [20, 50], [16, 70]]]
    records, image = [record([rings, (60, 70, 90, 90)])], noise()
    sample = apply_one(flipped(records, (0, 0)), records, [image.copy()])
    mask = drawn(rings)[:, ::-1]
    edge = cv2.dilate(mask.astype(np.uint8), np.ones((3, 3))) > cv2.erode(mask.astype(np.uint8), np.ones((3, 3)))
    expected = np.where(mask[..., None], image[:, ::-1], image)
    np.testing.assert_array_equal(sample.image[~edge], expected[~edge])
    assert (sample.image[edge] == image[:, ::-1][edge]).all(1).any()
    np.testing.assert_array_equal(sample.boxes_xyxy_px, [[8, 10, 30, 70], [60, 70, 90, 90], [66, 10, 88, 70]])
    assert sample.labels.tolist() == [0, 1, 0]


def test_pasted_pixels_of_another_image() -> None:
    records, images = [record([(60, 60, 90, 90)]), record([SQUARE, SQUARE])], [noise(0), noise(1)]
    paste = CopyPaste(letterbox_plan(1, records[1], SIZE), ((0, 1),))
    sample = apply_one(replace(letterbox_plan(0, records[0], SIZE), paste=paste), records, images)
    changed = (sample.image != images[0]).any(2)
    np.testing.assert_array_equal(np.argwhere(changed).min(0), [10, 10])
    assert np.argwhere(changed).max(0).max() <= 30
    np.testing.assert_array_equal(sample.image[changed], images[1][changed])
    assert sample.labels.tolist() == [0, 1]


@pytest.mark.parametrize("mode", ["flip", "mixup"])
@pytest.mark.parametrize("mosaic", [0.0, 1.0])
def test_boxes_cover_the_pasted_pixels(mode: Any, mosaic: float) -> None:
    """White objects on black: whatever is white where the plain sample is not was pasted."""
    rng = np.random.default_rng(1)
    records = [record([blob(rng)]) for _ in range(5)]
    images = []
    for item in records:
        assert item.polygons is not None
        image = np.zeros((SIZE, SIZE, 3), np.uint8)
        image[drawn([item.polygons.rings(0)[0].tolist()])] = 255
        images.append(image)
    policy = replace(WILD, mosaic=mosaic, copy_paste=1.0, copy_paste_mode=mode)
    num_pasted, gaps = 0, []
    for plan in plans(records, policy, 80):
        before, after = (apply_one(p, records, images) for p in (replace(plan, paste=None), plan))
        added = (after.image[..., 0] > 250) & (before.image[..., 0] < 100)
        boxes = after.boxes_xyxy_px
        num_pasted += len(boxes) > len(before.boxes_xyxy_px)
        assert boxes.min(initial=0) >= 0
        assert boxes.max(initial=0) <= SIZE
        inside = np.zeros((SIZE, SIZE), bool)
        for x1, y1, x2, y2 in boxes:
            inside[max(int(y1) - 1, 0) : int(y2) + 2, max(int(x1) - 1, 0) : int(x2) + 2] = True
        gaps.append((added & ~inside).sum())
    assert num_pasted > 40
    assert sum(gaps) == 0


@pytest.mark.parametrize(
    ("there", "is_pasted", "reason"),
    [
        ((66, 10, 86, 16), False, "covered all"),
        ((60, 10, 86, 30), False, "covered by 20/26"),
        ((66, 24, 86, 44), False, "covered by exactly 0.3"),
        ((66, 24.1, 86, 44), True, "covered by less than 0.3"),
        ((2, 10, 94, 94), True, "much larger than what is pasted"),
        ((10, 50, 30, 80), True, "apart"),
    ],
)
def test_nothing_is_pasted_that_hides_an_object(there: tuple[float, ...], is_pasted: bool, reason: str) -> None:
    pasted, others = np.array([[66, 10, 86, 30]], float), np.array([there, (0, 80, 9, 90)], float)
    assert covers_little(pasted, others).tolist() == [is_pasted], reason
    records = [record([there, SQUARE])]
    sample = apply_one(flipped(records, (0, 1)), records, [noise()])
    assert (len(sample.labels) == 3) == is_pasted, reason
    assert np.array_equal(sample.image, noise()) != is_pasted, reason


def test_covered_objects_shrink_or_go() -> None:
    mask = np.zeros((SIZE, SIZE), np.uint8)
    mask[10:30, 10:30] = 1
    boxes = np.array([[12.5, 12.5, 20, 20], [5.5, 10, 30, 30], [5, 5, 35, 35], [10, 10, 30, 31.5], [40, 40, 50.5, 50]])
    expected = [[0, 0, 0, 0], [5.5, 10, 10, 30], [5, 5, 35, 35], [10, 30, 30, 31.5], [40, 40, 50.5, 50]]
    np.testing.assert_array_equal(uncovered_boxes(boxes, mask), expected)


def test_objects_that_together_hide_one_take_its_place() -> None:
    """Four strips of a quarter each are pasted over one object, which then is dropped."""
    strips = [[[(10 + 5 * i, 10), (15 + 5 * i, 10), (15 + 5 * i, 30), (10 + 5 * i, 30)]] for i in range(4)]
    records = [record([(10, 10, 30, 30)]), record(strips)]
    paste = CopyPaste(letterbox_plan(1, records[1], SIZE), tuple((0, i) for i in range(4)))
    plan = replace(letterbox_plan(0, records[0], SIZE), paste=paste)
    sample = apply_one(plan, records, [noise(0), noise(1)])
    np.testing.assert_array_equal(sample.boxes_xyxy_px[:, 0], [10, 15, 20, 25])
    sample = apply_one(replace(plan, paste=replace(paste, objects=paste.objects[:2])), records, [noise(0), noise(1)])
    np.testing.assert_array_equal(sample.boxes_xyxy_px, [[21, 10, 30, 30], [10, 10, 15, 30], [15, 10, 20, 30]])


def test_an_image_that_cannot_be_decoded_gives_nothing() -> None:
    records = [record([SQUARE]), record([SQUARE])]
    paste = CopyPaste(letterbox_plan(1, records[1], SIZE), ((0, 0),))
    plan = replace(letterbox_plan(0, records[0], SIZE), paste=paste)
    sample = apply_plan(plan, records, Pictures([noise(0), noise(1)], undecodable=[0, 1]))
    assert sample.labels.tolist() == []
    np.testing.assert_array_equal(sample.image, noise(0))


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("mode", ["flip", "mixup"])
def test_worker_count_changes_no_byte_and_sources_stay(mode: Any, tmp_path: Path) -> None:
    records = []
    for index, item in enumerate(many()):
        cv2.imwrite(str(tmp_path / f"{index}.png"), noise(index))
        records.append(replace(item, path=str(tmp_path / f"{index}.png")))
    policy = AugmentPolicy(copy_paste=0.8, copy_paste_mode=mode, mixup=0.3)

    def digests(num_workers: int, policy: AugmentPolicy = policy) -> list[str]:
        made, prepared = planner(records, policy), PreparedSource(records, SIZE, is_cache_prepared=True)
        batches = list(TrainLoader(made, PixelMaker(records, prepared), num_workers=num_workers))
        return [hashlib.sha256(b.images.numpy().tobytes() + b.packed.numpy().tobytes()).hexdigest() for b in batches]

    assert digests(2) == digests(0)
    assert digests(0, replace(policy, copy_paste=0.0)) != digests(0)
