"""Moments of a run on its device's own clock, taken without waiting for the device."""

from __future__ import annotations

import time
from typing import Any, Protocol, runtime_checkable

import torch


@runtime_checkable
class DeviceEvent(Protocol):
    """What is asked of ``torch.cuda.Event``."""

    def query(self) -> bool:
        """True when the device has got there."""

    def synchronize(self) -> None:
        """Wait until it has."""

    def elapsed_time(self, other: Any) -> float:
        """Return the ms to another event."""


Moment = float | DeviceEvent


def mark(device: torch.device) -> Moment:
    """Return the moment at which the device gets here; on a CPU, now."""
    if device.type != "cuda":
        return time.perf_counter()
    event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    moment: DeviceEvent = event
    return moment


def has_passed(moment: Moment) -> bool:
    """True when the device has got there."""
    return isinstance(moment, float) or bool(moment.query())


def wait_for(moment: Moment) -> None:
    """Return when the device has got there."""
    if not isinstance(moment, float):
        moment.synchronize()


def ms_between(first: Moment, second: Moment) -> float:
    """Return the time from one moment to another of the same kind; the device must have passed both."""
    if isinstance(first, float) or isinstance(second, float):
        assert isinstance(first, float)
        assert isinstance(second, float)
        return 1e3 * (second - first)
    return float(first.elapsed_time(second))
