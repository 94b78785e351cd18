"""Reading in order, by threads that stay a little ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from lucid_yolo.data import host

Item = TypeVar("Item")


def read_ahead(read: Callable[[int], Item], indices: Iterable[int], ahead_per_core: int = 4) -> Iterator[Item]:
    """Yield what is read, in the order of the indices; one thread per core.

    Args:
        read: Reads one item; mostly outside the interpreter, so that threads gain something.
        indices: What to read.
        ahead_per_core: Items per core that are read or wait to be taken.
    """
    cores, rest = host.usable_cores(), iter(indices)
    with ThreadPoolExecutor(cores) as pool:
        pending: deque[Future[Item]] = deque(pool.submit(read, i) for i in islice(rest, cores * ahead_per_core))
        while pending:
            item = pending.popleft().result()
            pending.extend(pool.submit(read, index) for index in islice(rest, 1))
            yield item
