"""How Triton kernels are started; in a rehearsal they are compiled and loaded side by side instead.

The first step of a run needs some thirty compiled kernels. Compiled where they are first used, each waits for the one
before; a rehearsal asks for all of them and works on every processor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import Context, copy_context
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch

_THREAD_NAME = "compile-kernel"
_rehearsals: list[Context] = []


def launch(kernel: Any, grid: tuple[int, ...], *args: Any, **options: Any) -> None:
    """Start a Triton kernel; in a rehearsal only have it compiled.

    Args:
        kernel: Function under ``triton.jit``.
        grid: Number of programs along each axis.
        args: Tensors and numbers.
        options: Constants of the kernel and options of the compiler.
    """
    if _rehearsals:
        # The backward pass runs in a thread of its own, which has a context of its own.
        _rehearsals[-1].run(kernel.warmup, *args, grid=grid, **options)
    else:
        kernel[grid](*args, **options)


@contextmanager
def rehearsal(num_threads: int) -> Iterator[None]:
    """Compile and load what the block launches, side by side, and run none of it; done when the block has ended.

    What kernels would have written is left as it was allocated, so results of the block mean nothing.

    Args:
        num_threads: How many kernels are compiled at a time.
    """
    if find_spec("triton") is None:
        yield
        return
    import triton

    with _CompilingPool(num_threads) as pool, triton.AsyncCompileMode(pool):
        _rehearsals.append(copy_context())
        try:
            yield
        finally:
            _rehearsals.pop()


class _CompilingPool(ThreadPoolExecutor):
    """Runs Triton's compilations and makes ready at once what it would make ready at the first launch.

    Args:
        num_threads: How many at a time.
    """

    def __init__(self, num_threads: int) -> None:
        has_device = torch.cuda.is_available()
        start = partial(torch.cuda.set_device, torch.cuda.current_device()) if has_device else None
        super().__init__(num_threads, _THREAD_NAME, start)

    def submit(self, compile_kernel: Callable[[], Any]) -> Future[Any]:  # type: ignore[override]
        """Compile a kernel, build its launcher and load both."""
        return super().submit(lambda: _loaded(compile_kernel()))


def _loaded(kernel: Any) -> Any:
    assert kernel.run is not None  # reading it builds and loads
    return kernel
