"""Cases for comparing the forms of suppression; run as a script it compares the kernel on this process's device."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

import torch

from lucid_yolo.kernels.nms.reference import NmsInputs, suppress_reference


def make_nms_inputs(
    seed: int,
    num_candidates: int = 60,
    *,
    num_images: int = 2,
    num_classes: int = 3,
    max_detections: int = 20,
    iou_threshold: float = 0.7,
    is_crowded: bool = False,
    is_on_grid: bool = False,
) -> NmsInputs:
    """Boxes anywhere, around few places (crowded), or on a grid, where IoUs tie with the threshold; some inverted."""
    generator = torch.Generator().manual_seed(seed)
    shape = (num_images, num_candidates, 2)
    side = torch.rand(shape, generator=generator) * 100 + 5
    corner = torch.rand(shape, generator=generator) * 400 - 20
    if is_crowded:
        place = torch.randint(0, 4, shape[:2], generator=generator)[..., None]
        corner = place * 90.0 + torch.randn(shape, generator=generator) * 4
        side = 60 + torch.randn(shape, generator=generator) * 4
    if is_on_grid:
        corner = torch.randint(0, 4, shape, generator=generator) * 10.0
        side = torch.randint(-1, 11, shape, generator=generator) * 10.0
    boxes = torch.cat((corner, corner + side), -1)
    label = torch.randint(0, num_classes, shape[:2], generator=generator)
    is_candidate = torch.rand(shape[:2], generator=generator) < 0.9
    return NmsInputs(boxes, label, is_candidate, max_detections, iou_threshold)


def nms_cases(is_small: bool) -> Iterator[tuple[str, NmsInputs]]:
    """Named inputs; the interpreter gets the small ones."""
    for num in (1, 2, 31, 64, 100):
        yield f"{num} candidates", make_nms_inputs(num, num)
    yield "crowded", make_nms_inputs(1, 90, is_crowded=True, num_classes=2)
    for threshold in (0.5, 0.6, 0.7):
        yield f"ties at {threshold}", make_nms_inputs(2, 100, is_on_grid=True, num_classes=1, iou_threshold=threshold)
    none = make_nms_inputs(3)
    yield "no candidates", replace(none, is_candidate=torch.zeros_like(none.is_candidate))
    same = make_nms_inputs(4, num_classes=1)
    yield "one box many times", replace(same, boxes_xyxy_px=same.boxes_xyxy_px[:, :1].expand(-1, 60, -1))
    bad = make_nms_inputs(5, is_crowded=True)
    bad.boxes_xyxy_px[0, ::7, 2] = float("nan")
    bad.boxes_xyxy_px[0, 3::7, 0] = float("nan")
    bad.boxes_xyxy_px[1, ::5, 3] = float("inf")
    bad.boxes_xyxy_px[1, 1::5] = float("nan")
    yield "not finite", bad
    yield "no candidate rows", make_nms_inputs(6, 0)
    if not is_small:
        for seed in range(20):
            options = {"is_crowded": seed % 3 == 1, "is_on_grid": seed % 3 == 2, "num_classes": 1 + seed % 5}
            yield f"large {seed}", make_nms_inputs(seed, 4096, num_images=4, max_detections=300, **options)  # type: ignore[arg-type]
        yield "eighty classes", make_nms_inputs(30, 4096, num_images=17, max_detections=300, num_classes=80)
        yield "odd length", make_nms_inputs(31, 3001, num_images=3, max_detections=123)


def main() -> int:
    from lucid_yolo.kernels.nms.kernel import suppress_kernel

    failed = 0
    for name, inputs in nms_cases(is_small=True):
        is_equal = torch.equal(suppress_reference(inputs), suppress_kernel(inputs))
        failed += not is_equal
        print(name, "equal" if is_equal else "differs")
    return failed


if __name__ == "__main__":
    sys.exit(main())
