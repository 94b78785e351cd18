import torch

from lucid_yolo.assign.one_to_one import chosen_point, keep_first


def test_first_survivor_of_each_row() -> None:
    is_kept = torch.tensor([[True, True, False], [False, False, True], [False, False, False]])
    first = keep_first(is_kept)
    assert first.tolist() == [[True, False, False], [False, False, True], [False, False, False]]
    assert chosen_point(first, torch.tensor([[7, 8, 9], [0, 1, 2], [3, 4, 5]])).tolist() == [7, 2, -1]


def test_point_zero_differs_from_none() -> None:
    assert chosen_point(torch.tensor([[True], [False]]), torch.tensor([[0], [0]])).tolist() == [0, -1]
