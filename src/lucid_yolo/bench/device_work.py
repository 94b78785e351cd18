"""How long the device works in one call of a function, and on how many operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]
from torch.profiler import ProfilerActivity, profile


@dataclass(frozen=True)
class DeviceWork:
    """Device side of one call.

    Attributes:
        busy_ms: Time in which at least one operation runs.
        num_operations: Kernels, copies and fills.
    """

    busy_ms: float
    num_operations: float


def device_work(run: Callable[[], object], device: torch.device, num_runs: int = 3) -> DeviceWork | None:
    """Profile a function; None without a GPU, or where its profiler is not available.

    Args:
        run: The function.
        device: Where it works.
        num_runs: Calls to average over.
    """
    if device.type != "cuda":
        return None
    run()
    torch.cuda.synchronize(device)
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        for _ in range(num_runs):
            run()
        torch.cuda.synchronize(device)
    events = [event for event in profiler.events() or () if event.device_type == DeviceType.CUDA]
    if not events:
        return None
    busy_us = busy_time((event.time_range.start, event.time_range.end) for event in events)
    return DeviceWork(busy_us / 1e3 / num_runs, len(events) / num_runs)


def busy_time(spans: Iterable[tuple[float, float]]) -> float:
    """Return the time covered by at least one (start, end)."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
