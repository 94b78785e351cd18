"""Independent pieces of work that a recording puts beside each other, so that small kernels share the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor

MAX_STREAMS = 8
"""Streams beside the recording's own; libraries keep a workspace for each (gain by number: ``docs/log.md``)."""

Result = TypeVar("Result")
_recorded_devices: list[torch.device] = []


def side_by_side(functions: Sequence[Callable[[], Result]], saved: Sequence[Tensor] = ()) -> list[Result]:
    """Call functions that need nothing of each other; in a recording, on streams of their own.

    Backward passes run on the streams of the forward passes. The bytes are those of one call after another.

    Args:
        functions: They read what exists before and write only to their results.
        saved: What they read and keep for their backward pass. Autograd frees it when the host has come past that
            pass, at a time when the device may not have begun it: its memory is not used again in the recording.

    Returns:
        One result per function.
    """
    if not _recorded_devices:
        return [function() for function in functions]
    device = _recorded_devices[-1]
    here = torch.cuda.current_stream(device)
    streams = [_side_stream(device, index) for index in range(min(len(functions), MAX_STREAMS))]
    for stream in streams:
        stream.wait_stream(here)
        for tensor in saved:
            tensor.record_stream(stream)
    results = []
    for index, function in enumerate(functions):
        with torch.cuda.stream(streams[index % len(streams)]):
            results.append(function())
    for stream in streams:
        here.wait_stream(stream)
    return results


@contextmanager
def streams_allowed(device: torch.device) -> Iterator[None]:
    """Let :func:`side_by_side` use streams of ``device`` within the block."""
    _recorded_devices.append(device)
    try:
        yield
    finally:
        _recorded_devices.pop()


@cache
def _side_stream(device: torch.device, index: int) -> Any:
    """Return the same stream at every call, as libraries keep a workspace for every stream they have seen."""
    del index
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
