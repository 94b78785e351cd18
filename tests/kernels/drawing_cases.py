"""Cases for comparing the two forms of drawing; run as a script it compares them on this process's device."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch
from torch import Tensor

from lucid_yolo.kernels.augment.planned_batch import MAX_PLACEMENTS, NUM_LAYERS, PlannedBatch
from lucid_yolo.kernels.augment.reference import draw_images_reference, hsv_divisors


def make_case(
    seed: int,
    *,
    num_images: int = 2,
    size_px: int = 24,
    num_layers: int = 1,
    has_masks: bool = False,
    is_recolored: bool = True,
    depth: float = 0.0,
) -> tuple[PlannedBatch, Tensor]:
    """Return plans and the pixels that they point into."""
    g = torch.Generator().manual_seed(seed)
    batch = PlannedBatch.allocate(num_images, size_px, 64, num_layers=num_layers, has_masks=has_masks)
    num_values = size_px * size_px * 3
    pixels = torch.randint(0, 256, (5 * num_values,), generator=g, dtype=torch.uint8)
    rows = batch.plan_field("placements")
    for slot in range(MAX_PLACEMENTS):
        x0, y0 = (slot % 2) * size_px, (slot // 2) * size_px
        rows[..., slot, 0] = torch.randint(0, 5, rows.shape[:2], generator=g) * num_values
        rows[..., slot, 1:4] = torch.tensor([x0, y0, size_px])
        rows[..., slot, 4:8] = torch.tensor([x0, y0, x0 + size_px - slot, y0 + size_px])
    layers = batch.plan_field("layers")
    layers[..., 0] = torch.rand(layers.shape[:2], generator=g) < 0.7
    layers[..., 1] = torch.rand(layers.shape[:2], generator=g) < 0.5
    corner = torch.randint(0, size_px, (num_images, num_layers, 2), generator=g)
    layers[..., 2:] = torch.cat((corner, corner + size_px // 2), -1)
    maps = batch.plan_field("maps")
    angle = torch.rand(maps.shape[:2], generator=g) * 0.8 - 0.4
    maps[..., 0], maps[..., 1], maps[..., 2] = 1.6 * angle.cos(), -1.6 * angle.sin(), 3.3
    maps[..., 3], maps[..., 4], maps[..., 5] = 1.6 * angle.sin(), 1.6 * angle.cos(), 0.7
    maps[..., 6:8], maps[..., 8] = (torch.rand((*maps.shape[:2], 2), generator=g) - 0.5) * depth, 1.0
    share = torch.rand(num_images, generator=g)
    batch.plan_field("shares").copy_(torch.stack((share, 1 - share), 1))
    batch.plan_field("colors").copy_(torch.tensor([is_recolored, 0]).expand(num_images, -1))
    batch.plan_field("colors")[-1, 1] = 1
    tables = torch.randint(0, 256, (num_images, 3, 256), generator=g)
    tables[:, 0] %= 180
    batch.plan_field("tables").copy_(tables)
    if batch.masks is not None:
        batch.masks.copy_(torch.rand(batch.masks.shape, generator=g) < 0.3)
    return batch, pixels


def cases(is_small: bool) -> Iterator[tuple[str, PlannedBatch, Tensor]]:
    """Yield every combination that takes another way through the kernel."""
    sizes = (20,) if is_small else (20, 33, 160)
    for size in sizes:
        yield f"single, {size}", *make_case(1, size_px=size)
        yield f"plain colours, {size}", *make_case(2, size_px=size, is_recolored=False)
        yield f"perspective, {size}", *make_case(3, size_px=size, is_recolored=False, depth=0.02)
        yield f"joined, {size}", *make_case(4, size_px=size, num_layers=NUM_LAYERS, num_images=3)
        yield f"pasted, {size}", *make_case(5, size_px=size, num_layers=NUM_LAYERS, has_masks=True, num_images=3)
    blank = PlannedBatch.allocate(1, 16, 64, num_layers=NUM_LAYERS)
    yield "blank", blank, torch.zeros(16, dtype=torch.uint8)
    steep, pixels = make_case(6, depth=1.0)  # passes through the horizon, where nothing is finite
    yield "horizon", steep, pixels


def main() -> int:
    from lucid_yolo.kernels.augment.kernel import draw_images_kernel

    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    failed = 0
    for name, batch, pixels in cases(is_small=True):
        expected = draw_images_reference(batch, pixels, hsv_divisors())
        difference = (draw_images_kernel(batch, pixels, hsv_divisors()) - expected).abs() * 255
        # The interpreter rounds a fused multiply-add twice, which can move a code by one, and colours then further.
        is_close = (difference > 0.5).float().mean() < 0.01
        failed += not is_close
        print(name, "close" if is_close else f"{difference.max()}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
