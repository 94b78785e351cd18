"""The drawing kernel does what the plain form does; under Triton's interpreter, and compiled for two GPUs."""

from __future__ import annotations

import pytest
import torch
from drawing_cases import cases, make_case
from test_assignment import run_script

from lucid_yolo.kernels.augment import draw_images


def test_interpreted_kernel_is_close_to_the_plain_form() -> None:
    lines = run_script("drawing_cases.py", TRITON_INTERPRET="1").splitlines()
    assert len(lines) == len(list(cases(is_small=True)))
    assert all(line.endswith("close") for line in lines), lines


@pytest.mark.parametrize("capability", ["80", "90"])
def test_kernel_compiles_with_the_multiply_adds_it_asks_for(capability: str, tmp_path: object) -> None:
    (line,) = run_script("compile_drawing.py", capability, TRITON_CACHE_DIR=str(tmp_path)).splitlines()
    name, num_fused, division = line.split()[:3]
    assert (name, division) == ("draw", "div")
    # Per pixel three for the map and three for each colour; two in the colour circle, nothing else.
    assert int(num_fused) % (3 + 9 + 2) == 0


def test_the_kernel_is_refused_where_it_cannot_run() -> None:
    batch, pixels = make_case(0)
    with pytest.raises(ValueError, match="needs a CUDA device"):
        draw_images(batch, pixels, "kernel")
    assert draw_images(batch, pixels, "auto").device == torch.device("cpu")


def test_images_do_not_depend_on_the_rest_of_the_batch() -> None:
    batch, pixels = make_case(1, num_images=3)
    whole = draw_images(batch, pixels)
    assert (whole[0] != whole[1]).any()
    batch.plan_field("maps")[1:] *= 1.1
    assert torch.equal(draw_images(batch, pixels)[0], whole[0])
