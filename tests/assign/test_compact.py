import pytest
import torch

from lucid_yolo.assign.compact import compact_positives
from lucid_yolo.structures import Assignment


@pytest.mark.parametrize(("num_positives", "num_slots"), [(0, 8), (5, 8), (8, 8), (30, 8), (50, 50), (40, 64)])
def test_equals_sorting_each_row(num_positives: int, num_slots: int) -> None:
    num_points = 50
    weight = torch.zeros(3, num_points)
    for row in range(3):
        chosen = torch.randperm(num_points)[: max(num_positives - row, 0)]
        weight[row, chosen] = torch.randint(1, 5, (len(chosen),)) / 4
    is_positive = weight > 0
    target_index = torch.where(is_positive, torch.randint(0, 64, weight.shape), 0)
    assignment = Assignment(target_index, weight, is_positive, torch.zeros_like(is_positive))
    result = compact_positives(assignment, num_slots)
    for row in range(3):
        order = sorted((-weight[row, a].item(), a) for a in range(num_points) if is_positive[row, a])
        kept = order[:num_slots]
        blanks = num_slots - len(kept)
        assert result.point_index[row].tolist() == [a for _, a in kept] + [0] * blanks
        assert result.weight[row].tolist() == [-w for w, _ in kept] + [0.0] * blanks
        assert result.target_index[row].tolist() == [int(target_index[row, a]) for _, a in kept] + [0] * blanks
        assert result.is_valid[row].tolist() == [True] * len(kept) + [False] * blanks
        assert result.num_surplus[row] == len(order) - len(kept)
