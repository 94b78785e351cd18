"""Trials on the recorded training step: what runs side by side in one recording, and which kernels take the time.

``python benchmarks/step_trials.py [BATCH_SIZE ...]`` on a CUDA device, 6 classes, 640 px, bf16, fused normalisation.

Each trial says its time on a resident batch and whether it ends in the bytes of the step as it is.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from lucid_yolo.bench.compare import sha256_of
from lucid_yolo.bench.step import StepBench, _step, median_ms, synthetic_batch
from lucid_yolo.models.head import Head
from lucid_yolo.optim.musgd import MuSGD
from lucid_yolo.optim.newton_schulz import newton_schulz
from lucid_yolo.runtime.determinism import make_deterministic
from lucid_yolo.runtime.step import TrainStep
from lucid_yolo.tasks import DetectTask

NUM_CLASSES, NUM_STEPS = 6, 20


def is_recording() -> bool:
    """Return whether this runs in a recording's warm-up or capture: everything else is on the default stream."""
    return bool(torch.cuda.current_stream() != torch.cuda.default_stream())


class SideBySide:
    """Runs functions on streams of their own where a recording is made, one after another elsewhere.

    Args:
        num_streams: How many at a time.
    """

    def __init__(self, num_streams: int) -> None:
        self._streams = [torch.cuda.Stream() for _ in range(num_streams)]

    def __call__(self, functions: Sequence[Callable[[], Any]]) -> list[Any]:
        if not is_recording():
            return [function() for function in functions]
        here = torch.cuda.current_stream()
        results: list[Any] = [None] * len(functions)
        used = self._streams[: len(functions)]
        for stream in used:
            stream.wait_stream(here)
        for index, function in enumerate(functions):
            with torch.cuda.stream(used[index % len(used)]):
                results[index] = function()
        for stream in used:
            here.wait_stream(stream)
        return results


@contextmanager
def head_side_by_side(num_streams: int) -> Iterator[None]:
    """Run the stems of both branches side by side; their backward passes follow."""
    run = SideBySide(num_streams)

    def forward(self: Head, maps: Sequence[Tensor], branches: Sequence[str]) -> dict[str, Tensor]:
        stems = [
            (branch, name, level)
            for branch in branches
            for name in self.branches[branch].stems
            for level in range(len(maps))
        ]
        outputs = run([lambda b=b, n=n, i=i: self.branches[b].stems[n][i](maps[i]) for b, n, i in stems])
        rows = dict(zip(stems, outputs, strict=True))
        names = list(self.branches[branches[0]].stems)
        levels = range(len(maps))
        return {n: torch.cat([torch.cat([rows[b, n, i] for i in levels], 1) for b in branches]) for n in names}

    with mock.patch.object(Head, "forward", forward):
        yield


@contextmanager
def update_side_by_side(num_streams: int) -> Iterator[None]:
    """Orthogonalise the batches of matrices side by side."""
    run = SideBySide(num_streams)

    def orthogonalize(self: MuSGD, update: Tensor) -> Tensor:
        padded = torch.cat((update, update.new_zeros(1)))

        def one(batch: Any) -> Tensor:
            matrices = padded.index_select(0, batch.source_index).view(batch.shape)
            return (newton_schulz(matrices) * batch.scale).view(-1)

        parts = run([lambda b=b: one(b) for b in self._batches])
        return torch.cat([update.new_zeros(1), *parts]).index_select(0, self._return_index)

    with mock.patch.object(MuSGD, "orthogonalize", orthogonalize):
        yield


class WeightGradients:
    """Computes the convolutions' weight gradients beside the backward pass, which waits for them some layers later.

    Args:
        window: How many layers later; until then the tensors they read are kept.
        num_streams: How many are computed at a time.
    """

    def __init__(self, window: int, num_streams: int) -> None:
        self._window = window
        self._streams = [torch.cuda.Stream() for _ in range(num_streams)]
        self._pending: deque[tuple[Any, tuple[Tensor, ...]]] = deque()

    def compute(self, function: Callable[[], Tensor], read: tuple[Tensor, ...]) -> Tensor:
        """Run ``function`` beside the current stream; ``read`` is what it reads."""
        here, stream = torch.cuda.current_stream(), self._streams[0]
        self._streams.append(self._streams.pop(0))
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            gradient = function()
        self._pending.append((stream.record_event(), (*read, gradient)))
        self.wait(self._window)
        return gradient

    def wait(self, num_left: int = 0) -> None:
        """Let the current stream wait for all but the newest."""
        while len(self._pending) > num_left:
            event, _ = self._pending.popleft()
            torch.cuda.current_stream().wait_event(event)


class SplitConvolution(torch.autograd.Function):
    """A convolution whose two gradients are computed apart."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, conv: nn.Conv2d, beside: WeightGradients) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.conv, ctx.beside = conv, beside
        return conv._conv_forward(x, weight, None)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, None, None]:
        (x, weight), conv, grad = ctx.saved_tensors, ctx.conv, grads[0]
        constants = (None, conv.stride, conv.padding, conv.dilation, False, [0, 0], conv.groups)

        def gradient(of: int) -> Tensor:
            mask = [of == 0, of == 1, False]
            found: Tensor = torch.ops.aten.convolution_backward(grad, x, weight, *constants, mask)[of]
            return found

        of_weight = ctx.beside.compute(lambda: gradient(1), (grad, x))
        return gradient(0) if ctx.needs_input_grad[0] else None, of_weight, None, None


@contextmanager
def weight_gradients_beside(window: int, num_streams: int = 1) -> Iterator[None]:
    """Compute weight gradients on streams of their own while a recording is made."""
    beside, gather, plain = WeightGradients(window, num_streams), TrainStep._gather_gradients, nn.Conv2d.forward

    def forward(self: nn.Conv2d, x: Tensor) -> Tensor:
        if not is_recording() or self.weight.dtype == torch.float32:
            return plain(self, x)
        y: Tensor = SplitConvolution.apply(x.to(self.weight.dtype), self.weight, self, beside)
        return y

    def gather_gradients(self: TrainStep, leaves: Any) -> None:
        beside.wait()
        gather(self, leaves)

    with (
        mock.patch.object(nn.Conv2d, "forward", forward),
        mock.patch.object(TrainStep, "_gather_gradients", gather_gradients),
    ):
        yield


@contextmanager
def as_it_is() -> Iterator[None]:
    yield


@contextmanager
def both(num_streams: int) -> Iterator[None]:
    with head_side_by_side(num_streams), update_side_by_side(num_streams):
        yield


@contextmanager
def everything(num_streams: int, window: int) -> Iterator[None]:
    with both(num_streams), weight_gradients_beside(window):
        yield


def make_step(batch_size: int) -> tuple[TrainStep, Callable[[], object]]:
    device = torch.device("cuda")
    step = _step(StepBench(fused_norm=True), DetectTask(NUM_CLASSES, assignment="auto"), device, None)
    step.record()
    batch = synthetic_batch(batch_size, 640, 64, NUM_CLASSES).to(device)
    return step, lambda: step.run(batch)


def print_kernels(run: Callable[[], object], num_rows: int = 30) -> None:
    """Print the kernels of one replay by name, longest first."""
    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        run()
        torch.cuda.synchronize()
    time_us: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for event in profiler.events() or ():
        name = re.sub(r"<.*|\(.*|void |at::native::|\d{3,}", "", event.name)[:70] or event.name[:70]
        time_us[name] += event.time_range.elapsed_us()
        calls[name] += 1
    print(f"  all: {sum(time_us.values()) / 1000:.2f} ms in {sum(calls.values())} operations")
    for name, total in time_us.most_common(num_rows):
        print(f"  {total / 1000:7.3f} ms {calls[name]:5d}  {name}")


def main() -> int:
    sizes = [int(word) for word in sys.argv[1:]] or [4, 16, 64]
    make_deterministic()
    trials: dict[str, Callable[[], Any]] = {
        "as it is": as_it_is,
        "head on 12 streams": lambda: head_side_by_side(12),
        "head on 4 streams": lambda: head_side_by_side(4),
        "update on 4 streams": lambda: update_side_by_side(4),
        "head on 12, update on 4": lambda: both(12),
        "weight gradients beside, window 8": lambda: weight_gradients_beside(8),
        "weight gradients beside, window 32, 4 streams": lambda: weight_gradients_beside(32, 4),
        "all": lambda: everything(12, 16),
    }
    for size in sizes:
        expected = ""
        for name, trial in trials.items():
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            try:
                with trial():
                    step, run = make_step(size)
                    ms = median_ms(run, torch.device("cuda"), NUM_STEPS)
            except Exception as error:  # a trial that cannot be recorded is a result too
                print(f"batch {size}, {name}: {type(error).__name__}: {error}")
                continue
            digest = sha256_of(step.state.tensors())
            expected = expected or digest
            reserved = torch.cuda.max_memory_reserved() / 2**20
            print(
                f"batch {size}, {name}: {ms:.2f} ms, equal bytes: {digest == expected}, {reserved:.0f} MiB", flush=True
            )
            if name == "as it is" and size == 16:
                print_kernels(run)
            step.release()
    return 0


if __name__ == "__main__":
    sys.exit(main())
