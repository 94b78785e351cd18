import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from lucid_yolo.data.draws import mix_share
from lucid_yolo.data.plan import (
    IDENTITY_GAINS,
    IDENTITY_MATRIX,
    AugmentPolicy,
    BatchPlan,
    SamplePlan,
    TrainPlanner,
    letterbox_plan,
    sample_draws,
)
from lucid_yolo.geometry.letterbox import letterbox
from lucid_yolo.structures import ImageRecord

SIZES = [(48, 64), (64, 48), (10, 200), (333, 500), (64, 64), (1, 7), (90, 120)]
WILD = AugmentPolicy(close_mosaic=1, degrees=30.0, shear=10.0)
JOINED = AugmentPolicy(
    close_mosaic=1, mosaic=0.7, perspective=0.2, flipud=0.5, bgr=0.3, mixup=0.5, cutmix=0.5, hsv_h=0.0
)


def records(num_rows: tuple[int, ...] = (1,) * 7) -> list[ImageRecord]:
    empty = np.empty(0)
    boxes, labels, flags = np.empty((0, 4)), np.empty(0, np.int64), np.empty(0, bool)
    return [
        ImageRecord(f"{i}.png", i, height, width, boxes, labels, flags, empty, rows)
        for i, ((height, width), rows) in enumerate(zip(SIZES, num_rows, strict=True))
    ]


def planner(policy: AugmentPolicy = WILD, batch_size: int = 3, **options: Any) -> TrainPlanner:
    settings = {"seed": 0, "num_epochs": 4, **options}
    return TrainPlanner(records(), 64, policy, batch_size, **settings)


def test_same_arguments_same_plan_in_any_order() -> None:
    ahead, back = planner(), planner()
    forth = [ahead.plan(i) for i in range(12)]
    assert forth == [back.plan(i) for i in reversed(range(12))][::-1]


@pytest.mark.parametrize("change", [{"seed": 1}, {"seed": 2**64 - 1}])
def test_other_seed_other_plan(change: dict[str, int]) -> None:
    assert planner().plan(0) != planner(**change).plan(0)


def test_epochs_differ() -> None:
    made = planner()
    assert made.plan(0).samples != made.plan(made.batches_per_epoch).samples


def test_an_epoch_covers_every_sample_once_and_wraps() -> None:
    made = planner(batch_size=3)
    assert made.batches_per_epoch == 3
    for epoch in range(4):
        plans = [made.plan(epoch * 3 + i) for i in range(3)]
        order = [sample.sample_index for plan in plans for sample in plan.samples]
        assert sorted(order[:7]) == list(range(7))
        assert order[7:] == order[:2]
        assert {plan.epoch for plan in plans} == {epoch}


def test_a_wrapped_sample_is_varied_anew() -> None:
    samples = planner(batch_size=16).plan(0).samples
    assert samples[0].sample_index == samples[7].sample_index
    assert samples[0].matrix != samples[7].matrix


def test_rank_shards_join_to_the_global_batch() -> None:
    whole = planner(batch_size=4)
    shards = [planner(batch_size=2, world_size=2, rank=rank) for rank in range(2)]
    assert {shard.batches_per_epoch for shard in shards} == {whole.batches_per_epoch}
    for index in range(8):
        joined = sum((shard.plan(index).samples for shard in shards), ())
        assert joined == whole.plan(index).samples


def test_capacity_counts_rows_of_all_sources_over_the_global_batch() -> None:
    rows = (0, 0, 0, 40, 0, 0, 0)
    calm = AugmentPolicy(close_mosaic=0)
    shards = [TrainPlanner(records(rows), 64, calm, 1, 0, 40, world_size=2, rank=rank) for rank in range(2)]
    seen = set()
    for index in range(120):
        plans = [shard.plan(index) for shard in shards]
        sums = [sum(rows[p.source_index] for p in plan.samples[0].placements) for plan in plans]
        assert {plan.capacity for plan in plans} == {64 if max(sums) <= 64 else 256}
        seen.add(plans[0].capacity)
    assert seen == {64, 256}


def test_mosaic_tiles_meet_at_one_point_and_do_not_overlap() -> None:
    for index in range(9):
        for sample in planner().plan(index).samples:
            assert sample.canvas_size_px == 128
            cover = np.zeros((128, 128), int)
            for placement in sample.placements:
                x1, y1, x2, y2 = placement.clip_xyxy_px
                assert 0 <= x1 < x2 <= 128
                assert 0 <= y1 < y2 <= 128
                cover[y1:y2, x1:x2] += 1
            assert cover.max() == 1
            corner_x, corner_y = sample.placements[0].clip_xyxy_px[2:]
            assert sample.placements[3].offset_xy_px == (corner_x, corner_y)
            assert 32 <= corner_x < 96
            assert 32 <= corner_y < 96


def test_closed_epochs_have_one_placement() -> None:
    made = planner()
    placements = [{len(s.placements) for i in range(3) for s in made.plan(3 * e + i).samples} for e in range(4)]
    assert placements == [{4}, {4}, {4}, {1}]


def test_transforms_draw_independently() -> None:
    plain = planner(AugmentPolicy(hsv_h=0.0, fliplr=0.0)).plan(0).samples
    other = planner(AugmentPolicy(hsv_h=0.5, fliplr=1.0)).plan(0).samples
    for left, right in zip(plain, other, strict=True):
        assert left.placements == right.placements
        assert left.matrix[4:] == right.matrix[4:]
        assert left.matrix[0] == -right.matrix[0]
        assert (left.is_flipped, right.is_flipped) == (False, True)
        assert left.hsv_gains[1:] == right.hsv_gains[1:]


def test_draws_are_uniform_and_distinct() -> None:
    draws = np.array([sample_draws(seed, epoch, i) for seed in (0, 1) for epoch in (0, 1) for i in range(500)])
    assert draws.min() >= 0
    assert draws.max() < 1
    assert abs(draws.mean() - 0.5) < 0.005
    assert len(np.unique(draws)) == draws.size


def test_gains_and_map_stay_within_the_policy() -> None:
    policy = AugmentPolicy(mosaic=0.5, scale=0.25, translate=0.1)
    samples = [s for i in range(60) for s in planner(policy, num_epochs=100).plan(i).samples]
    assert {len(s.placements) for s in samples} == {1, 4}
    for sample in samples:
        scale, half = sample.matrix[4], sample.canvas_size_px / 2
        assert 0.75 <= scale <= 1.25
        center_x = sample.matrix[0] * half + sample.matrix[2]
        center_y = sample.matrix[4] * half + sample.matrix[5]
        assert abs(center_x - 32) <= 6.4 + 1e-9
        assert abs(center_y - 32) <= 6.4 + 1e-9
        hue, saturation, value = sample.hsv_gains
        assert abs(hue) <= 0.015
        assert abs(saturation - 1) <= 0.7
        assert abs(value - 1) <= 0.4


def test_policy_none_is_the_letterbox() -> None:
    for record, sample in ((records()[s.sample_index], s) for s in planner(AugmentPolicy.none()).plan(0).samples):
        assert sample == letterbox_plan(sample.sample_index, record, 64)
        assert (sample.matrix, sample.hsv_gains) == (IDENTITY_MATRIX, IDENTITY_GAINS)
        box = letterbox(record.height_src, record.width_src, 64)
        assert sample.placements[0].offset_xy_px == (box.left_px, box.top_px)


@pytest.mark.parametrize("policy", [WILD, JOINED, AugmentPolicy.none()])
def test_json_round_trip(policy: AugmentPolicy) -> None:
    plan = planner(policy).plan(1)
    assert BatchPlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mosaic", 1.5),
        ("close_mosaic", -1),
        ("degrees", 181.0),
        ("translate", -0.1),
        ("scale", 1.0),
        ("shear", 45.0),
        ("fliplr", 2.0),
        ("hsv_h", float("nan")),
        ("hsv_s", -1.0),
        ("hsv_v", 1.01),
        ("flipud", 1.1),
        ("bgr", -0.1),
        ("mixup", 2.0),
        ("cutmix", 1.5),
        ("perspective", 0.26),
    ],
)
def test_bad_policy_is_named(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"^{name}: expected .*found {value}"):
        AugmentPolicy(**{name: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size: expected at least 1"),
        ({"num_epochs": 0}, "num_epochs: expected at least 1"),
        ({"world_size": 2, "rank": 2}, "found rank 2 of 2"),
        ({"seed": -1}, "seed: expected"),
        ({"repeat_threshold": 0.0}, "repeat_threshold: expected a fraction"),
    ],
)
def test_bad_planner_argument_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        planner(**options)


def joined_samples(policy: AugmentPolicy = JOINED) -> list[SamplePlan]:
    made = planner(policy, num_epochs=200)
    return [sample for index in range(300) for sample in made.plan(index).samples]


def test_partners_are_sample_plans_of_their_own() -> None:
    samples = joined_samples()
    partners = [part.partner for sample in samples for part in (sample.mix, sample.cut) if part is not None]
    assert {len(partner.placements) for partner in partners} == {1, 4}
    assert {partner.is_flipped_ud for partner in partners} == {False, True}
    assert all(partner.mix is None and partner.cut is None for partner in partners)
    assert all(partner.hsv_gains == IDENTITY_GAINS and not partner.is_bgr for partner in partners)
    maps = [part.matrix for part in (*samples, *partners)]
    assert len(set(maps)) == len(maps)


@pytest.mark.parametrize(("name", "expected"), [("mixup", 0.5), ("cutmix", 0.5), ("bgr", 0.3), ("flipud", 0.5)])
def test_each_transform_has_the_probability_of_the_policy(name: str, expected: float) -> None:
    used = {
        "mixup": lambda s: s.mix is not None,
        "cutmix": lambda s: s.cut is not None,
        "bgr": lambda s: s.is_bgr,
        "flipud": lambda s: s.is_flipped_ud,
    }[name]
    assert np.mean([used(sample) for sample in joined_samples()]) == pytest.approx(expected, abs=0.05)


def test_turning_a_join_on_moves_no_other_number() -> None:
    calm = replace(JOINED, mixup=0.0, cutmix=0.0)
    for plain, joined in zip(joined_samples(calm), joined_samples(), strict=True):
        assert replace(joined, mix=None, cut=None) == plain


def test_closed_epochs_join_nothing() -> None:
    made = planner(replace(JOINED, mixup=1.0, cutmix=1.0, close_mosaic=2))
    samples = [[s for i in range(3) for s in made.plan(3 * epoch + i).samples] for epoch in range(4)]
    assert [{s.mix is None for s in epoch} for epoch in samples] == [{False}, {False}, {True}, {True}]
    assert [{s.cut is None for s in epoch} for epoch in samples] == [{False}, {False}, {True}, {True}]


def test_shares_are_beta_32_32() -> None:
    shares = np.array([mix_share(seed, 0, index) for seed in (0, 1) for index in range(1000)])
    assert stats.kstest(shares, stats.beta(32, 32).cdf).pvalue > 0.01
    assert len(np.unique(shares)) == 2000


def test_regions_lie_in_the_image_and_have_uniform_size() -> None:
    regions = np.array([sample.cut.region_xyxy_px for sample in joined_samples() if sample.cut])
    assert regions.min() >= 0
    assert regions.max() <= 64
    assert (regions[:, 2:] >= regions[:, :2]).all()
    inside = (regions > 0)[:, :2].all(1) & (regions < 64)[:, 2:].all(1)
    assert inside.any()
    sides = regions[:, 2:] - regions[:, :2]
    assert abs(np.subtract(*sides[inside].T)).max() <= 1


def test_capacity_counts_the_rows_of_partners() -> None:
    rows = (40, 0, 0, 40, 0, 0, 0)
    policy = replace(AugmentPolicy.none(), mixup=0.5, cutmix=0.5)
    made = [TrainPlanner(records(rows), 64, policy, 1, 0, 40, world_size=2, rank=rank) for rank in range(2)]
    seen = set()
    for index in range(150):
        plans = [part.plan(index) for part in made]
        sums = [sum(rows[i] for i in plan.samples[0].source_indices) for plan in plans]
        assert {plan.capacity for plan in plans} == {64 if max(sums) <= 64 else 256}
        seen.add(plans[0].capacity)
    assert seen == {64, 256}


def test_perspective_keeps_the_canvas_in_front_of_the_camera() -> None:
    for sample in joined_samples(replace(JOINED, perspective=0.25)):
        far = 1.25 * sample.canvas_size_px  # how far a cut-off source may reach beyond the canvas
        corners = [(x, y) for x in (sample.canvas_size_px - far, far) for y in (sample.canvas_size_px - far, far)]
        assert min(1 + sample.perspective[0] * x + sample.perspective[1] * y for x, y in corners) > 0


def test_repeated_samples_of_an_epoch_are_varied_anew() -> None:
    made = TrainPlanner(labelled([0, 0, 0, 0, 0, 0, 1]), 64, WILD, 5, 0, 9, sampling="balanced")
    for epoch in range(5):
        samples = [s for i in range(2) for s in made.plan(2 * epoch + i).samples]
        assert len({s.sample_index for s in samples}) < 7
        assert len({s.matrix for s in samples}) == 10


def labelled(labels: list[int]) -> list[ImageRecord]:
    plain = zip(records(), labels, strict=True)
    return [replace(r, labels=np.array([label]), is_ignored=np.array([False])) for r, label in plain]


def test_no_images_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one training image"):
        TrainPlanner([], 64, WILD, 1, 0, 1)
