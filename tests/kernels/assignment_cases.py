"""Cases for comparing the two forms of the assignment; run as a script it compares them on this process's device."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields, replace

import torch

from lucid_yolo.geometry.points import make_anchor_points
from lucid_yolo.kernels.assignment.reference import AssignInputs, AssignOutputs, assign_points_reference


def make_inputs(
    seed: int,
    *,
    num_images: int = 2,
    size_px: int = 64,
    num_targets: int = 6,
    capacity: int = 64,
    has_ties: bool = False,
) -> AssignInputs:
    generator = torch.Generator().manual_seed(seed)
    points = make_anchor_points((size_px, size_px), (8, 16, 32))
    num_points = len(points.stride_px)
    center, rows = points.center_xy_px, 2 * num_images
    reach = torch.rand((rows, num_points, 4), generator=generator) * 20 - 2
    prob = torch.rand((rows, num_points, 3), generator=generator)
    if has_ties:
        reach, prob = torch.full_like(reach, 9.0), torch.full_like(prob, 0.25)
    boxes = torch.cat((center - reach[..., :2], center + reach[..., 2:]), -1)
    corner = torch.rand((num_images, capacity, 2), generator=generator) * size_px * 0.8
    target = torch.cat((corner, corner + torch.rand((num_images, capacity, 2), generator=generator) * 25 + 1), -1)
    kind = torch.rand((num_images, capacity), generator=generator)
    is_padded = torch.arange(capacity).expand(num_images, -1) >= num_targets
    is_ignored = (kind < 0.15) & ~is_padded
    target[is_padded] = 0
    return AssignInputs(
        prob,
        boxes,
        target,
        torch.cat((target[..., :2] - 3, target[..., 2:] + 3), -1),
        torch.randint(0, 3, (num_images, capacity), generator=generator),
        ~(is_padded | is_ignored),
        is_ignored,
        center,
        10,
        7,
    )


def cases(is_small: bool) -> Iterator[tuple[str, AssignInputs]]:
    """Named inputs; the interpreter needs about 4 ms a program, so it gets the small ones."""
    yield "random", make_inputs(0)
    yield "ties", make_inputs(1, has_ties=True)
    yield "identical targets", identical(make_inputs(2))
    yield "no targets", make_inputs(3, num_targets=0)
    bad = make_inputs(4)
    bad.class_prob[0, ::3] = float("nan")
    bad.boxes_xyxy_px[1, ::5] = float("nan")
    bad.boxes_xyxy_px[2, ::7] = float("inf")
    yield "not finite", bad
    tiny = make_inputs(5)
    tiny.class_prob.mul_(1e-38)
    tiny.class_prob[..., 1].neg_().mul_(0)
    yield "subnormal and negative zero", tiny
    if not is_small:
        for seed in range(20):
            yield f"large {seed}", make_inputs(seed, num_images=4, size_px=640, num_targets=40)
        yield "two chunks", make_inputs(30, size_px=320, num_targets=100, capacity=256)
        yield "full", make_inputs(31, size_px=320, num_targets=256, capacity=256, has_ties=True)


def identical(inputs: AssignInputs) -> AssignInputs:
    target, surrogate = inputs.target_xyxy_px.clone(), inputs.surrogate_xyxy_px.clone()
    target[:, 1:4], surrogate[:, 1:4] = target[:, :1], surrogate[:, :1]
    return replace(inputs, target_xyxy_px=target, surrogate_xyxy_px=surrogate)


def to(inputs: AssignInputs, device: str) -> AssignInputs:
    values = [getattr(inputs, f.name) for f in fields(inputs)]
    return AssignInputs(*(v.to(device) if isinstance(v, torch.Tensor) else v for v in values))


def differing(first: AssignOutputs, second: AssignOutputs) -> list[str]:
    names = [f.name for f in fields(first)]
    raw = [[getattr(o, name).cpu().numpy().tobytes() for name in names] for o in (first, second)]
    return [name for name, a, b in zip(names, *raw, strict=True) if a != b]


def main() -> int:
    from lucid_yolo.kernels.assignment.kernel import assign_points_kernel

    # On some CPUs torch's float32 root comes from a vector library and is off by one unit; on a GPU it is exact.
    root = torch.Tensor.sqrt
    torch.Tensor.sqrt = lambda x: root(x.double()).to(x.dtype)  # type: ignore[method-assign]
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    failed = 0
    for name, inputs in cases(is_small=True):
        found = differing(assign_points_reference(inputs), assign_points_kernel(inputs))
        failed += bool(found)
        print(name, found or "equal")
    return failed


if __name__ == "__main__":
    sys.exit(main())
