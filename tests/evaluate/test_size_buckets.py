from __future__ import annotations

import math

import pytest
from coco_cases import oracle, random_case

from lucid_yolo.evaluate import evaluate_boxes
from lucid_yolo.evaluate.size_buckets import evaluate_size_buckets


@pytest.mark.parametrize("seed", range(8))
def test_the_borders_of_coco_give_its_numbers(seed: int) -> None:
    case = random_case(seed)
    expected = evaluate_boxes(*case)
    small, medium, large = evaluate_size_buckets(*case, (0, 32, 96))
    for bucket, name in ((small, "small"), (medium, "medium"), (large, "large")):
        assert bucket.ap == pytest.approx(getattr(expected, f"map_{name}"), nan_ok=True, abs=0)
        assert bucket.ar == pytest.approx(getattr(expected, f"ar_{name}"), nan_ok=True, abs=0)


@pytest.mark.parametrize("seed", range(4))
def test_many_buckets_equal_the_reference_with_its_ranges_changed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from pycocotools.cocoeval import Params

    case = random_case(seed)
    borders = [0, 10, 20, 40, 60, 80, 120, 200]
    ends = [b**2 for b in borders[1:]] + [1e10]
    set_params = Params.setDetParams

    def with_ranges(self: Params) -> None:
        set_params(self)
        self.areaRng = [[b**2, end] for b, end in zip(borders, ends, strict=True)]
        self.areaRngLbl = [str(b) for b in borders]

    monkeypatch.setattr(Params, "setDetParams", with_ranges)
    precision = oracle(*case, [1, 10, 300]).eval["precision"][..., -1]
    buckets = evaluate_size_buckets(*case, borders)
    assert len(buckets) == 8
    for i, bucket in enumerate(buckets):
        defined = precision[..., i][precision[..., i] > -1]
        assert bucket.ap == pytest.approx(defined.mean() if len(defined) else math.nan, nan_ok=True, abs=1e-12)
        at_50 = precision[0, ..., i][precision[0, ..., i] > -1]
        assert bucket.ap50 == pytest.approx(at_50.mean() if len(at_50) else math.nan, nan_ok=True, abs=1e-12)
    assert (buckets[1].name, buckets[-1].name) == ("10-20 px", "200 px on")
    assert buckets[-1].to_dict()["high_src"] is None


@pytest.mark.parametrize("borders", [[], [32, 0], [0, 0], [-1, 5], [0, math.inf]], ids=str)
def test_borders_must_rise(borders: list[float]) -> None:
    with pytest.raises(ValueError, match="expected rising sides"):
        evaluate_size_buckets(*random_case(0), borders)
