"""Independent pieces of work that a recording puts beside each other, so that small kernels share the device."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor

MAX_STREAMS = 8
"""Streams beside the recording's own; libraries keep a workspace for each (gain by number: ``docs/log.md``)."""

Result = TypeVar("Result")


class _Recorded(threading.local):
    """The device that this thread makes a recording on; None for none."""

    device: torch.device | None = None


_recorded = _Recorded()


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
    device = _recorded.device
    if device is None:
        return [function() for function in functions]
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
    """Let :func:`side_by_side` use streams of ``device`` within the block, in this thread."""
    before, _recorded.device = _recorded.device, device
    try:
        yield
    finally:
        _recorded.device = before


def join_captured(device: torch.device) -> None:
    """Let the current stream, which is being captured, wait for what an error has left on the streams beside it.

    A capture can only end when everything that it began is joined.
    """
    here = torch.cuda.current_stream(device)
    for index in range(MAX_STREAMS):
        stream = _side_stream(device, index)
        with torch.cuda.stream(stream):
            is_captured = torch.cuda.is_current_stream_capturing()
        if is_captured:
            here.wait_stream(stream)


@cache
def _side_stream(device: torch.device, index: int) -> Any:
    """Return the same stream at every call, as libraries keep a workspace for every stream they have seen."""
    del index
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
