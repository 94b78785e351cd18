"""What every command does with errors: one line for the user's, a traceback for the package's own."""

from __future__ import annotations

import sys
from argparse import ArgumentError
from collections.abc import Callable

USER_ERROR = 2
INTERRUPTED = 130


def run_command(command: Callable[[], int]) -> int:
    """Run a command and turn the user's errors into one line on standard error.

    Wrong arguments, files that are missing or cannot be used, and a ``ValueError`` or ``ImportError`` (an extra that is
    not installed) that this package raises are the user's. Any other exception is a fault of the program and keeps its
    traceback.

    Args:
        command: Does the work and returns the exit code.

    Returns:
        The command's exit code; 2 after an error of the user, 130 after an interrupt.
    """
    try:
        return command()
    except ArgumentError as error:
        message = " ".join(str(error).split())
    except OSError as error:
        message = str(error)
    except (ValueError, ImportError) as error:
        if not _is_raised_here(error):
            raise
        message = str(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    print(f"error: {message}", file=sys.stderr)
    return USER_ERROR


def _is_raised_here(error: BaseException) -> bool:
    """Return whether a module of this package raised the error, not a library it called."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module: str = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    return module.partition(".")[0] == __name__.partition(".")[0]
