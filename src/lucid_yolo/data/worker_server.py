"""The process that loader workers are forked from, started before whatever else takes seconds to import."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from itertools import pairwise
from multiprocessing.context import BaseContext

WORKER_MODULE = "lucid_yolo.data.loader"
"""What a worker needs, and no more: neither Lightning nor matplotlib nor Triton."""


def worker_context() -> BaseContext:
    """Return how workers are started: from a fork server that holds :data:`WORKER_MODULE`, else spawned."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([WORKER_MODULE])
    return context


def start_worker_server() -> None:
    """Start the fork server, which imports what workers need while this process imports what it needs.

    It ends with this process. Without fork servers, and where one is running, nothing happens.
    """
    if worker_context().get_start_method() == "forkserver":
        from multiprocessing import forkserver

        forkserver.ensure_running()


def wants_workers(flags: Sequence[str]) -> bool:
    """Return whether a command line is that of a run whose loaders have workers, as far as it alone tells.

    Args:
        flags: Flags of the command.
    """
    words = [word for flag in flags for word in flag.split("=", 1)]
    if any(word in ("-h", "--help", "--print_config") or word.startswith("--help.") for word in words):
        return False
    return ("--data.num_workers", "0") not in pairwise(words)
