"""How Triton kernels are started; in a rehearsal they are compiled side by side instead.

The first step of a run on a new machine needs some twenty compiled kernels. Compiled where they are first used, each
waits for the one before; a rehearsal asks for all of them and compiles on every processor.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import Context, copy_context
from importlib.util import find_spec
from typing import Any

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
    """Compile what the block launches, side by side, and run none of it; done when the block has ended.

    What kernels would have written is left as it was allocated, so results of the block mean nothing.

    Args:
        num_threads: How many kernels are compiled at a time.
    """
    if find_spec("triton") is None:
        yield
        return
    import triton

    with ThreadPoolExecutor(num_threads) as pool, triton.AsyncCompileMode(pool):
        _rehearsals.append(copy_context())
        try:
            yield
        finally:
            _rehearsals.pop()
