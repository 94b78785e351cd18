"""Two ways to run one function: eagerly, or recorded and replayed. Same interface, same bytes.

A function that can be recorded works on tensors of fixed shape, keeps no Python state, never waits for the device, and
changes only tensors that it names.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from lucid_yolo.graphs.blame import ModuleTrace
from lucid_yolo.graphs.signature import Signature, signature_of
from lucid_yolo.graphs.streams import join_captured, streams_allowed

WARMUP_RUNS = 2
"""Eager runs before a capture: the first loads libraries, compiles kernels and fills caches, which may wait for the
device; the second must not wait. Algorithms are not chosen by timing, so more runs change nothing."""

Function = Callable[..., tuple[Tensor, ...]]
"""Called as ``function(key, *inputs)``; returns a tuple of tensors."""


class RecordingError(RuntimeError):
    """A function could not be recorded; the message names the cause."""


@dataclass
class RunCounts:
    """How often each way was taken.

    Attributes:
        recorded: Recordings made.
        replayed: Calls served by a replay.
        eager: Calls run eagerly.
    """

    recorded: int = 0
    replayed: int = 0
    eager: int = 0


@runtime_checkable
class Runner(Protocol):
    """A way to run a function.

    Attributes:
        counts: How often each way was taken.
    """

    counts: RunCounts

    def __call__(self, key: Hashable, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Run the function; the results belong to the caller."""

    def prepare(self, key: Hashable, *inputs: Tensor) -> None:
        """Make ready for calls like this one, without a trace in any state."""

    def release(self) -> None:
        """Free everything held on the device."""


class EagerRunner:
    """Runs the function as it is.

    Args:
        function: What to run.
    """

    def __init__(self, function: Function) -> None:
        self._function = function
        self.counts = RunCounts()

    def __call__(self, key: Hashable, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Run the function."""
        self.counts.eager += 1
        return self._function(key, *inputs)

    def prepare(self, key: Hashable, *inputs: Tensor) -> None:
        """Nothing to make ready."""

    def release(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True)
class _Recording:
    graph: Any
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class ReplayRunner:
    """Records the function at the first call of each signature and replays it afterwards.

    Inputs are copied into the recording's own buffers, outputs are copied out, so nothing aliases between calls.
    Recordings share one memory pool and one stream, which also runs the warm-up; what the function puts
    :func:`~lucid_yolo.graphs.streams.side_by_side` runs on streams beside it. The default random generator of the
    device, and those given, advance from replay to replay as they would eagerly.

    Args:
        function: What to run; see the module's first lines.
        state: Returns the tensors that the function changes. Warm-up leaves them as they were.
        modules: Modules by name, so that an error can say where it happened.
        generators: Random generators that the function draws from, beside the device's default one.
        cleanup: Drops references to memory of the recording that the function left behind (gradients, say).
        first_run: Context of the first warm-up run. Its results are thrown away, so what it only prepares (compiling
            kernels, say) need not be carried out.

    Raises:
        RecordingError: There is no CUDA device.
    """

    def __init__(
        self,
        function: Function,
        state: Callable[[], Sequence[Tensor]],
        *,
        modules: Mapping[str, nn.Module] | None = None,
        generators: Sequence[torch.Generator] = (),
        cleanup: Callable[[], None] = lambda: None,
        first_run: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        if not torch.cuda.is_available():
            raise RecordingError("recording needs a CUDA device; there is none")
        self._function = function
        self._state = state
        self._names = {module: name for name, module in (modules or {}).items()}
        self._generators = tuple(generators)
        self._cleanup = cleanup
        self._first_run = first_run
        self._recordings: dict[Signature, _Recording] = {}
        self._pool: Any = None
        self._stream: Any = None
        self.counts = RunCounts()

    def __call__(self, key: Hashable, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Replay, after recording if this signature is new."""
        signature = signature_of(key, inputs)
        recording = self._recordings.get(signature)
        if recording is None:
            recording = self._record(signature, inputs)
        torch._foreach_copy_(list(recording.inputs), list(inputs))
        recording.graph.replay()
        self.counts.replayed += 1
        return tuple(output.clone() for output in recording.outputs)

    def prepare(self, key: Hashable, *inputs: Tensor) -> None:
        """Record this signature if it is new."""
        signature = signature_of(key, inputs)
        if signature not in self._recordings:
            self._record(signature, inputs)

    def release(self) -> None:
        """Forget every recording and give their memory back; later calls record anew."""
        if self._recordings:
            torch.cuda.synchronize()
            self._recordings.clear()
            torch.cuda.empty_cache()
        self._pool = None

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("a recording belongs to one process and one owner: it cannot be copied or pickled")

    def _record(self, signature: Signature, inputs: Sequence[Tensor]) -> _Recording:
        """Warm up, capture, and leave every state as it was."""
        device = inputs[0].device
        self._stream = recording_stream(device)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        static = tuple(torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device) for x in inputs)
        torch._foreach_copy_(list(static), list(inputs))
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        with (
            ModuleTrace(self._names) as trace,
            self._restored_state(device),
            _collector_held(),
            streams_allowed(device),
        ):
            try:
                self._warm_up(signature.key, static)
                outputs = self._capture(graph, signature.key, static)
            except Exception as error:
                where = f" in {trace.innermost}" if trace.innermost else ""
                reason = str(error).partition("\n")[0]
                raise RecordingError(f"the step cannot be recorded{where}: {reason}") from error
            finally:
                self._cleanup()
        recording = _Recording(graph, static, outputs)
        self._recordings[signature] = recording
        self.counts.recorded += 1
        return recording

    def _warm_up(self, key: Hashable, static: Sequence[Tensor]) -> None:
        """Run on the recording's stream; the last run refuses whatever waits for the device."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for index in range(WARMUP_RUNS):
                context = _synchronization_refused() if index == WARMUP_RUNS - 1 else self._first_run()
                with context:
                    self._function(key, *static)
                self._cleanup()
        torch.cuda.current_stream().wait_stream(self._stream)

    def _capture(self, graph: Any, key: Hashable, static: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Run once more while the device only takes note; an error ends the capture and is raised after that."""
        outputs: tuple[Tensor, ...] = ()
        failure: Exception | None = None
        device = static[0].device
        with torch.cuda.stream(torch.cuda.current_stream(device)):  # comes back to it, whatever happens inside
            try:
                with torch.cuda.graph(graph, self._pool, self._stream, "thread_local"):
                    try:
                        outputs = self._function(key, *static)
                    except Exception as error:
                        failure = error
                        join_captured(device)
            except Exception as error:
                failure = failure or error  # a capture that cannot end says less than what came before
        if failure is not None:
            raise failure
        return outputs

    @contextmanager
    def _restored_state(self, device: torch.device) -> Iterator[None]:
        """Put state tensors and random generators back, whatever happens inside."""
        tensors = list(self._state())
        saved = [tensor.clone() for tensor in tensors]
        offsets = [generator.get_state() for generator in self._generators]
        default = torch.cuda.get_rng_state(device)
        try:
            yield
        finally:
            torch.cuda.synchronize(device)
            with torch.no_grad():
                for tensor, value in zip(tensors, saved, strict=True):
                    tensor.copy_(value)
            for generator, offset in zip(self._generators, offsets, strict=True):
                generator.set_state(offset)
            torch.cuda.set_rng_state(default, device)


@cache
def recording_stream(device: torch.device) -> Any:
    """Return the one stream on which recordings of ``device`` are made.

    Libraries keep a workspace for every stream they have seen, so a new one for each recording would leak memory.
    """
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


@contextmanager
def _synchronization_refused() -> Iterator[None]:
    """Make every operation that waits for the device an error."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.cuda.set_sync_debug_mode(before)


@contextmanager
def _collector_held() -> Iterator[None]:
    """Collect garbage now and not during the capture."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
