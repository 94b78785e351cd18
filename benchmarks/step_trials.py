"""Trials on the recorded training step: what runs side by side in one recording, and which kernels take the time.

``python benchmarks/step_trials.py [BATCH_SIZE ...]`` on a CUDA device, 6 classes, 640 px, bf16, fused normalisation.

Each trial says its time on a resident batch and whether it ends in the bytes of the step as it is.
"""

from __future__ import annotations

import gc
import re
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from lucid_yolo.bench.compare import sha256_of
from lucid_yolo.bench.step import StepBench, _step, median_ms, synthetic_batch
from lucid_yolo.graphs import streams
from lucid_yolo.runtime.determinism import make_deterministic
from lucid_yolo.runtime.step import TrainStep
from lucid_yolo.tasks import DetectTask

NUM_CLASSES, NUM_STEPS = 6, 20


def is_recording() -> bool:
    """Return whether this runs in a recording's warm-up or capture: everything else is on the default stream."""
    return bool(torch.cuda.current_stream() != torch.cuda.default_stream())


@contextmanager
def on_streams(number: int) -> Iterator[None]:
    """Let the recording use this many streams beside its own; with one, everything runs one after another."""
    with mock.patch.object(streams, "MAX_STREAMS", number):
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
        "as it is": nullcontext,
        "one after another": lambda: on_streams(1),
        "on 4 streams": lambda: on_streams(4),
        "on 12 streams": lambda: on_streams(12),
        "weight gradients beside, window 16": lambda: weight_gradients_beside(16),
    }
    for size in sizes:
        expected = ""
        for name, trial in trials.items():
            step = run = None
            gc.collect()
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
