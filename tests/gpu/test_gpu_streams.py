"""Work that a recording puts side by side runs at the same time, and no memory is used again too early."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from lucid_yolo.graphs import EagerRunner, RecordingError, ReplayRunner, side_by_side, streams

DEVICE = torch.device("cuda")
CYCLES = 4_000_000  # about two milliseconds
SIZE = 1 << 20


def replay_ms(function: Callable[..., tuple[Tensor, ...]]) -> float:
    runner = ReplayRunner(function, list)
    x = torch.zeros(1, device=DEVICE)
    runner.prepare(None, x)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    runner(None, x)
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))


def wait_and_add(x: Tensor, value: int) -> Tensor:
    torch.cuda._sleep(CYCLES)
    return x + value


def four_waits(_key: object, x: Tensor) -> tuple[Tensor, ...]:
    return tuple(side_by_side([partial(wait_and_add, x, value) for value in range(4)]))


def test_work_side_by_side_runs_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    together = replay_ms(four_waits)
    monkeypatch.setattr(streams, "MAX_STREAMS", 1)
    one_by_one = replay_ms(four_waits)
    assert together < one_by_one / 2


def test_what_follows_waits_for_all() -> None:
    x = torch.zeros(8, device=DEVICE)
    replay = ReplayRunner(lambda key, x: (torch.cat(four_waits(key, x)),), list)
    assert replay(None, x)[0].view(4, 8)[:, 0].tolist() == [0, 1, 2, 3]


class TooLarge(torch.OutOfMemoryError):
    """Stands for the device being full."""


def fail_while_captured(_key: object, x: Tensor) -> tuple[Tensor, ...]:
    """Two functions side by side, of which the second fails in the capture and not before."""

    def fail() -> Tensor:
        if torch.cuda.is_current_stream_capturing():
            raise TooLarge
        return x + 2

    return tuple(side_by_side([lambda: x + 1, fail]))


def test_an_error_beside_the_recording_is_the_one_that_is_said() -> None:
    x = torch.zeros(8, device=DEVICE)
    stream = torch.cuda.current_stream()
    with pytest.raises(RecordingError) as caught:
        ReplayRunner(fail_while_captured, list)(None, x)
    assert isinstance(caught.value.__cause__, TooLarge)
    assert torch.cuda.current_stream() == stream
    assert replay_ms(four_waits) > 0, "another recording can be made"


class SlowSquare(torch.autograd.Function):
    """A square whose backward pass begins late."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        torch.cuda._sleep(CYCLES)
        return grads[0] * 2 * x


def late_reader(_key: object, values: Tensor, *, is_told: bool) -> tuple[Tensor, ...]:
    """Return two gradients; while one waits to read what it saved, the other asks for memory of the same size."""
    leaves = [values.clone().requires_grad_() for _ in range(2)]
    slow, quick = (leaf * 2 for leaf in leaves)  # the lower address is used again first
    squares = side_by_side([partial(torch.square, quick), partial(SlowSquare.apply, slow)], (quick, slow) * is_told)
    del quick, slow
    torch.autograd.backward([square.sum() for square in squares])
    return tuple(leaf.grad for leaf in leaves if leaf.grad is not None)


def test_memory_that_a_backward_pass_reads_on_its_stream_is_not_used_again() -> None:
    values = torch.rand(SIZE, device=DEVICE)
    expected = EagerRunner(partial(late_reader, is_told=True))(None, values)
    found = ReplayRunner(partial(late_reader, is_told=True), list)(None, values)
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


def test_memory_used_again_too_early_is_caught() -> None:
    """Control: without being told what the backward passes read, the late gradient is another."""
    values = torch.rand(SIZE, device=DEVICE)
    expected = EagerRunner(partial(late_reader, is_told=False))(None, values)
    found = ReplayRunner(partial(late_reader, is_told=False), list)(None, values)
    assert not torch.equal(expected[0], found[0])
    assert torch.equal(expected[1], found[1])
