"""Time of class-wise suppression in each of its forms: ``python benchmarks/suppression.py [cpu|cuda]``."""

from __future__ import annotations

import statistics
import sys
import time

import torch

from lucid_yolo.kernels.nms import NmsImplementation, suppress
from lucid_yolo.kernels.nms.reference import NmsInputs

NUM_CANDIDATES, NUM_CLASSES, MAX_DETECTIONS, IOU_THRESHOLD = 4096, 6, 300, 0.7
REPEATS = 10


def make_inputs(num_images: int, is_crowded: bool, device: str) -> NmsInputs:
    """Boxes anywhere in 640 px, or around eight places."""
    generator = torch.Generator().manual_seed(0)
    shape = (num_images, NUM_CANDIDATES, 2)
    side = (torch.rand(shape, generator=generator) * 3 + 2.3).exp()
    center = torch.rand(shape, generator=generator) * 640
    if is_crowded:
        place = torch.randint(0, 8, shape[:2], generator=generator)[..., None]
        center = place * 80.0 + torch.randn(shape, generator=generator) * 5
        side = 100 + torch.randn(shape, generator=generator) * 8
    boxes = torch.cat((center - side / 2, center + side / 2), -1)
    label = torch.randint(0, NUM_CLASSES, shape[:2], generator=generator)
    is_candidate = torch.ones(shape[:2], dtype=torch.bool)
    return NmsInputs(boxes.to(device), label.to(device), is_candidate.to(device), MAX_DETECTIONS, IOU_THRESHOLD)


def median_ms(inputs: NmsInputs, implementation: NmsImplementation) -> float:
    times = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        suppress(inputs, implementation).cpu()
        times.append((time.perf_counter() - start) * 1000)
    return statistics.median(times[1:])


def main() -> None:
    device = sys.argv[1] if len(sys.argv) > 1 else ("cuda" if torch.cuda.is_available() else "cpu")
    forms: tuple[NmsImplementation, ...] = ("reference", "library", "kernel")
    for num_images in (4, 16):
        for is_crowded in (False, True):
            inputs = make_inputs(num_images, is_crowded, device)
            times = {form: median_ms(inputs, form) for form in forms if form != "kernel" or device == "cuda"}
            text = ", ".join(f"{form} {ms:.1f} ms" for form, ms in times.items())
            print(f"{device}, {num_images} images, {'crowded' if is_crowded else 'spread'}: {text}")


if __name__ == "__main__":
    main()
