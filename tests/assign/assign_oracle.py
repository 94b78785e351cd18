"""The assignment rule written with loops over one image, one target and one point at a time."""

import math
from dataclasses import dataclass

import numpy as np

from lucid_yolo.structures import AnchorPoints, Assignment, Prediction, Targets


@dataclass
class Row:
    """What one row of the stacked batch is assigned."""

    target_index: np.ndarray
    weight: np.ndarray
    is_positive: np.ndarray
    is_ignored: np.ndarray


def iou(a: np.ndarray, b: np.ndarray) -> float:
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    area_a = max(0.0, a[2] - a[0]) * max(0.0, a[3] - a[1])
    area_b = max(0.0, b[2] - b[0]) * max(0.0, b[3] - b[1])
    union = area_a + area_b - width * height
    return width * height / union if union > 0 else 0.0


def surrogate(box: np.ndarray) -> list[float]:
    low, high = [0.0, 0.0], [0.0, 0.0]
    for axis in range(2):
        low[axis], high[axis] = box[axis], box[axis + 2]
        if high[axis] - low[axis] < 8:
            center = (low[axis] + high[axis]) / 2
            low[axis], high[axis] = center - 8, center + 8
    return low + high


def contains(box: list[float] | np.ndarray, point: np.ndarray) -> bool:
    return bool(box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3])


def assign_row(
    pred_boxes: np.ndarray,
    class_logit: np.ndarray,
    boxes: np.ndarray,
    labels: np.ndarray,
    objects: list[int],
    ignored: list[int],
    centers: np.ndarray,
    topk: int,
    is_one_to_one: bool,
) -> Row:
    num_points = len(centers)
    metric: dict[tuple[int, int], float] = {}
    overlap: dict[tuple[int, int], float] = {}
    chosen: dict[int, list[int]] = {}
    for g in objects:
        candidates = []
        for a in range(num_points):
            if contains(surrogate(boxes[g]), centers[a]):
                overlap[g, a] = iou(boxes[g], pred_boxes[a])
                score = 1 / (1 + math.exp(-class_logit[a, labels[g]]))
                metric[g, a] = math.sqrt(score) * overlap[g, a] ** 6
                if metric[g, a] > 0:
                    candidates.append(a)
        chosen[g] = sorted(candidates, key=lambda a: (-metric[g, a], a))[:topk]

    final: dict[int, list[int]] = {g: [] for g in objects}
    for g in objects:
        for a in chosen[g]:
            rivals = [h for h in objects if a in chosen[h]]
            if min(rivals, key=lambda h: (-overlap[h, a], h)) == g:
                final[g].append(a)
    if is_one_to_one:
        final = {g: kept[:1] for g, kept in final.items()}

    row = Row(np.zeros(num_points, int), np.zeros(num_points), np.zeros(num_points, bool), np.zeros(num_points, bool))
    for g, kept in final.items():
        for a in kept:
            row.target_index[a], row.is_positive[a] = g, True
            best_overlap = max(overlap[g, b] for b in kept)
            best_metric = max(metric[g, b] for b in kept)
            row.weight[a] = best_overlap * metric[g, a] / best_metric
    for a in range(num_points):
        row.is_ignored[a] = not row.is_positive[a] and any(contains(boxes[g], centers[a]) for g in ignored)
    return row


def oracle(prediction: Prediction, targets: Targets, points: AnchorPoints) -> list[Row]:
    """Return the rows of both branches, one-to-many first."""
    centers, strides = points.center_xy_px.numpy(), points.stride_px.numpy()
    num_images = len(targets.labels)
    rows = []
    for row, (ltrb, logit) in enumerate(zip(prediction.box_ltrb_cell.numpy(), prediction.class_logit, strict=True)):
        image = row % num_images
        distances = ltrb * strides[:, None]
        pred_boxes = np.concatenate((centers - distances[:, :2], centers + distances[:, 2:]), 1).astype(float)
        is_one_to_one = row >= num_images
        objects = (~targets.is_padded[image] & ~targets.is_ignored[image]).nonzero().flatten().tolist()
        ignored = targets.is_ignored[image].nonzero().flatten().tolist()
        rows.append(
            assign_row(
                pred_boxes,
                logit.double().numpy(),
                targets.boxes_xyxy_px[image].double().numpy(),
                targets.labels[image].numpy(),
                objects,
                ignored,
                centers,
                7 if is_one_to_one else 10,
                is_one_to_one,
            )
        )
    return rows


def assert_equal(assignment: Assignment, rows: list[Row]) -> None:
    for index, row in enumerate(rows):
        np.testing.assert_array_equal(assignment.is_positive[index].numpy(), row.is_positive)
        np.testing.assert_array_equal(assignment.target_index[index].numpy(), row.target_index)
        np.testing.assert_array_equal(assignment.is_ignored[index].numpy(), row.is_ignored)
        np.testing.assert_allclose(assignment.weight[index].numpy(), row.weight, rtol=2e-4, atol=1e-6)
