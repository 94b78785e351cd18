from dataclasses import fields

import pytest
import torch
from assign_oracle import assert_equal, oracle

from lucid_yolo.assign.small_target import surrogate_boxes
from lucid_yolo.assign.task_aligned import AssignConfig, assign
from lucid_yolo.geometry.distances import boxes_to_distances
from lucid_yolo.geometry.points import make_anchor_points
from lucid_yolo.structures import Assignment, Prediction, Targets

POINTS = make_anchor_points((96, 64), (8, 16, 32))
NUM_POINTS = 126
NUM_CLASSES = 3


def make_targets(*images: list[tuple[float, ...]], capacity: int = 64) -> Targets:
    """Rows are (x1, y1, x2, y2, label) or, for an ignored region, (x1, y1, x2, y2, label, 1)."""
    shape = (len(images), capacity)
    targets = Targets(
        torch.zeros(*shape, 4), torch.zeros(shape).long(), torch.ones(shape).bool(), torch.zeros(shape).bool()
    )
    for image, rows in enumerate(images):
        for g, row in enumerate(rows):
            targets.boxes_xyxy_px[image, g] = torch.tensor(row[:4])
            targets.labels[image, g] = int(row[4])
            targets.is_padded[image, g] = False
            targets.is_ignored[image, g] = len(row) == 6
    return targets


def random_prediction(num_images: int, side: float = 1.5) -> Prediction:
    distances = (torch.randn(2 * num_images, NUM_POINTS, 4) * 0.7 + side).clamp(min=-0.5)
    return Prediction(distances, torch.randn(2 * num_images, NUM_POINTS, NUM_CLASSES))


def even_prediction(num_images: int, side_cell: float = 1.0) -> Prediction:
    """Every point predicts the same box around itself with the same scores: nothing but ties."""
    shape = (2 * num_images, NUM_POINTS)
    return Prediction(torch.full((*shape, 4), side_cell), torch.full((*shape, NUM_CLASSES), -1.0))


def random_objects(count: int, size: float = 30.0) -> list[tuple[float, ...]]:
    corner = torch.rand(count, 2) * torch.tensor([60.0, 90.0])
    boxes = torch.cat((corner, corner + torch.rand(count, 2) * size + 1), 1)
    labels = torch.randint(0, NUM_CLASSES, (count, 1))
    return [tuple(row) for row in torch.cat((boxes, labels), 1).tolist()]


def run(prediction: Prediction, targets: Targets) -> Assignment:
    result = assign(prediction, targets, POINTS, AssignConfig())
    assert_equal(result, oracle(prediction, targets, POINTS))
    return result


def tensors(assignment: Assignment) -> list[torch.Tensor]:
    return [getattr(assignment, field.name) for field in fields(assignment)]


@pytest.mark.parametrize("count", [1, 3, 12, 30])
@pytest.mark.parametrize("size", [6.0, 30.0])
def test_random_cases_equal_the_loops(count: int, size: float) -> None:
    targets = make_targets(random_objects(count, size), random_objects(count // 2, size))
    result = run(random_prediction(2), targets)
    assert result.is_positive.any()


def test_predictions_near_the_truth_fill_every_place() -> None:
    truth = (8.0, 8.0, 56.0, 80.0)
    boxes = torch.tensor(truth) + torch.randn(2, NUM_POINTS, 4) * 3
    prediction = Prediction(boxes_to_distances(boxes, POINTS), torch.randn(2, NUM_POINTS, NUM_CLASSES))
    result = run(prediction, make_targets([(*truth, 1)]))
    assert result.is_positive.sum(1).tolist() == [10, 1]
    assert result.weight[1].max() > 0.7


def test_image_without_objects() -> None:
    result = run(random_prediction(2), make_targets([], random_objects(4)))
    assert not result.is_positive[::2].any()
    assert result.is_positive[1::2].any()
    assert not result.weight[::2].any()


def test_padded_rows_attract_no_points() -> None:
    """The small-target rule would give a zero box the two points nearest to the origin."""
    surrogate = surrogate_boxes(torch.zeros(1, 4), 8.0, 16.0)[0]
    inside = ((POINTS.center_xy_px >= surrogate[:2]) & (POINTS.center_xy_px <= surrogate[2:])).all(1)
    assert inside.sum() == 2
    prediction = even_prediction(1, side_cell=1.5)
    padded = make_targets([])
    assert not run(prediction, padded).is_positive.any()
    padded.boxes_xyxy_px[0, 0] = torch.tensor([0.0, 0.0, 2.0, 2.0])
    assert not run(prediction, padded).is_positive.any(), "whatever a padded row holds"
    padded.is_padded[0, 0] = False
    assert run(prediction, padded).is_positive[0].nonzero().flatten().tolist() == inside.nonzero().flatten().tolist()


def test_no_overlap_anywhere_gives_no_positives() -> None:
    prediction = even_prediction(1, side_cell=-1.0)
    assert not run(prediction, make_targets(random_objects(5))).is_positive.any()


def test_identical_objects_go_to_the_first() -> None:
    box = (10.0, 20.0, 40.0, 50.0, 1)
    result = run(random_prediction(1), make_targets([(50.0, 60.0, 62.0, 90.0, 0), box, box]))
    assert 1 in result.target_index[result.is_positive]
    assert 2 not in result.target_index[result.is_positive]


def test_eight_pixel_object_on_the_grid() -> None:
    """A side equal to the smallest stride is not enlarged: inside lie one cell centre and, on the corner, another."""
    result = run(even_prediction(1), make_targets([(16.0, 24.0, 24.0, 32.0, 2)]))
    assert POINTS.center_xy_px[result.is_positive[0]].tolist() == [[20.0, 28.0], [24.0, 24.0]]
    assert POINTS.center_xy_px[result.is_positive[1]].tolist() == [[20.0, 28.0]]


def test_smaller_object_has_more_candidates() -> None:
    result = run(even_prediction(1), make_targets([(16.5, 24.5, 23.5, 31.5, 2)]))
    assert result.is_positive[0].sum() == 3 * 3 + 1


def test_ties_go_to_the_lower_point() -> None:
    result = run(even_prediction(1, side_cell=0.5), make_targets([(0.0, 0.0, 64.0, 96.0, 0)]))
    coarse = range(NUM_POINTS - 6, NUM_POINTS)
    finer = range(96, 100)
    assert result.is_positive[0].nonzero().flatten().tolist() == [*finer, *coarse]
    assert result.is_positive[1].nonzero().flatten().tolist() == [coarse[0]]


def test_point_wanted_by_two_classes_goes_to_the_larger_overlap() -> None:
    prediction = even_prediction(1, side_cell=2.0)
    prediction.class_logit[:] = torch.tensor([5.0, -6.0, 0.0])
    objects = [(8.0, 8.0, 40.0, 34.0, 0), (8.0, 8.0, 40.0, 40.0, 1)]
    result = run(prediction, make_targets(objects))
    upper, lower = (int((POINTS.center_xy_px == torch.tensor([20.0, y])).all(1).nonzero()) for y in (20.0, 28.0))
    assert result.target_index[0, upper] == 0
    assert result.target_index[0, lower] == 1, "though the score makes the first object's metric the larger one"
    assert result.is_positive[0, [upper, lower]].all()
    assert result.target_index[1, [upper, lower]].tolist() == [0, 1], "one-to-one: the loser of a point falls back"
    assert result.is_positive[1, [upper, lower]].all()


def test_ignored_regions_silence_background_only() -> None:
    crowd = (0.0, 0.0, 64.0, 48.0, 0, 1)
    result = run(random_prediction(1), make_targets([(10.0, 10.0, 40.0, 60.0, 1), crowd]))
    inside = POINTS.center_xy_px[:, 1] <= 48
    assert torch.equal(result.is_ignored, inside & ~result.is_positive)
    assert not (result.target_index == 1).any()
    assert (result.is_positive & inside).any()


def test_small_ignored_region_is_not_enlarged() -> None:
    result = run(random_prediction(1), make_targets([(17.0, 25.0, 23.0, 31.0, 0, 1)]))
    assert result.is_ignored.sum(1).tolist() == [1, 1]


def test_more_objects_than_one_chunk() -> None:
    objects = random_objects(150)
    objects[100] = objects[20]
    objects[140] = objects[130]
    result = run(random_prediction(1), make_targets(objects, capacity=256))
    owners = result.target_index[result.is_positive]
    assert owners.max() >= 128
    assert 100 not in owners
    assert 140 not in owners


@pytest.mark.parametrize("is_even", [False, True], ids=["random", "ties"])
def test_capacity_changes_no_byte(is_even: bool) -> None:
    prediction = even_prediction(2) if is_even else random_prediction(2)
    images = [[*random_objects(20), (0.0, 0.0, 30.0, 30.0, 0, 1)], random_objects(60)]
    small, large = (
        assign(prediction, make_targets(*images, capacity=capacity), POINTS, AssignConfig()) for capacity in (64, 256)
    )
    for first, second in zip(tensors(small), tensors(large), strict=True):
        assert torch.equal(first, second)


def test_branches_and_images_do_not_mix() -> None:
    prediction = random_prediction(2)
    images = (random_objects(5), random_objects(7))
    both = assign(prediction, make_targets(*images), POINTS, AssignConfig())
    for image in range(2):
        rows = [image, image + 2]
        alone = Prediction(prediction.box_ltrb_cell[rows], prediction.class_logit[rows])
        result = assign(alone, make_targets(images[image]), POINTS, AssignConfig())
        for first, second in zip(tensors(both), tensors(result), strict=True):
            assert torch.equal(first[rows], second)


def test_not_a_number_is_never_positive() -> None:
    prediction = random_prediction(1)
    prediction.box_ltrb_cell[:, 5:60] = float("nan")
    prediction.class_logit[:, 50:90] = float("nan")
    result = assign(prediction, make_targets(random_objects(20)), POINTS, AssignConfig())
    assert not result.is_positive[:, 5:90].any()
    assert torch.isfinite(result.weight).all()
