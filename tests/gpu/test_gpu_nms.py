"""The suppression kernel makes the decisions of the plain form on the GPU, eagerly and inside a recording."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "kernels"))
from nms_cases import make_nms_inputs, nms_cases

from lucid_yolo.decode.nms import decode_one_to_many
from lucid_yolo.geometry.points import make_anchor_points
from lucid_yolo.graphs import ReplayRunner
from lucid_yolo.kernels.nms import suppress
from lucid_yolo.kernels.nms.reference import NmsInputs
from lucid_yolo.structures import Prediction

CASES = dict(nms_cases(is_small=False))


def on_gpu(inputs: NmsInputs) -> NmsInputs:
    tensors = {name: getattr(inputs, name).cuda() for name in ("boxes_xyxy_px", "label", "is_candidate")}
    return replace(inputs, **tensors)


@pytest.mark.parametrize("name", CASES)
def test_suppression_kernel_equals_the_plain_form(name: str) -> None:
    inputs = on_gpu(CASES[name])
    assert torch.equal(suppress(inputs, "reference"), suppress(inputs, "kernel"))


def test_the_gpu_decides_as_the_cpu_does() -> None:
    for name in ("large 0", "large 1", "large 2", "eighty classes"):
        assert torch.equal(suppress(CASES[name], "library"), suppress(on_gpu(CASES[name]), "kernel").cpu()), name


def test_suppression_inside_a_recording() -> None:
    inputs = [on_gpu(make_nms_inputs(seed, 2000, max_detections=300, is_crowded=seed == 1)) for seed in range(3)]

    def run(_key: object, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (suppress(NmsInputs(*tensors, 300, 0.7), "kernel"),)

    replay = ReplayRunner(run, list)
    for case in (*inputs, inputs[0]):
        found = replay(None, case.boxes_xyxy_px, case.label, case.is_candidate)[0]
        assert torch.equal(found, suppress(case, "reference"))
    assert (replay.counts.recorded, replay.counts.replayed) == (1, 4)


def test_decoding_does_not_wait_for_the_device() -> None:
    points = make_anchor_points((320, 320), (8, 16, 32), torch.device("cuda"))
    num_points = len(points.stride_px)
    prediction = Prediction(torch.rand(3, num_points, 4).cuda() * 4, torch.randn(3, num_points, 5).cuda() * 3)
    expected = decode_one_to_many(prediction, points, suppression="reference")
    decode_one_to_many(prediction, points)  # compiles the kernel
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = decode_one_to_many(prediction, points)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for name in ("boxes_xyxy_px", "score", "label", "point_index"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
