"""The three forms of suppression agree; the kernel on a CPU runs under Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from kernel_scripts import run_script
from nms_cases import make_nms_inputs, nms_cases
from torchvision.ops import box_iou

from lucid_yolo.kernels.nms import suppress
from lucid_yolo.kernels.nms.reference import NmsInputs

CASES = dict(nms_cases(is_small=True))


def greedy(inputs: NmsInputs, image: int) -> list[int]:
    """Walk the candidates and compare each with all survivors of its class."""
    kept: list[int] = []
    boxes, label = inputs.boxes_xyxy_px[image], inputs.label[image].tolist()
    for row in inputs.is_candidate[image].nonzero().flatten().tolist():
        others = [k for k in kept if label[k] == label[row]]
        if not (box_iou(boxes[row : row + 1], boxes[others]) > inputs.iou_threshold).any():
            kept.append(row)
    return kept[: inputs.max_detections]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [{}, {"is_crowded": True}, {"is_on_grid": True, "num_classes": 1}], ids=str)
def test_survivors_are_those_of_a_loop(seed: int, kind: dict[str, bool]) -> None:
    inputs = make_nms_inputs(seed, 90, max_detections=25, **kind)  # type: ignore[arg-type]
    survivors = suppress(inputs, "reference")
    for image in range(2):
        expected = greedy(inputs, image)
        assert survivors[image].tolist() == expected + [-1] * (25 - len(expected))
        assert len(expected) < int(inputs.is_candidate[image].sum())


@pytest.mark.parametrize("name", [name for name in CASES if name != "not finite"])
def test_library_equals_the_plain_form(name: str) -> None:
    assert torch.equal(suppress(CASES[name], "reference"), suppress(CASES[name], "library"))


def test_cases_hold_exact_ties_with_the_threshold() -> None:
    inputs = CASES["ties at 0.7"]
    boxes = inputs.boxes_xyxy_px[0]
    assert (box_iou(boxes, boxes) == torch.tensor(0.7)).any()


def test_interpreted_kernel_equals_the_plain_form() -> None:
    lines = run_script("nms_cases.py", TRITON_INTERPRET="1").splitlines()
    assert len(lines) == len(CASES)
    assert all(line.endswith("equal") for line in lines), lines


def test_the_suppression_kernel_is_refused_where_it_cannot_run() -> None:
    with pytest.raises(ValueError, match="needs a CUDA device"):
        suppress(make_nms_inputs(0), "kernel")
