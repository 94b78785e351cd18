"""How every command ends: one line for the user's errors, a traceback for the package's own."""

from __future__ import annotations

import atexit
import difflib
import gc
import re
import sys
from argparse import ArgumentError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING

from lucid_yolo.cli.help import structured_type

if TYPE_CHECKING:
    from argparse import ArgumentParser

USER_ERROR = 2
INTERRUPTED = 130
NO_MEMBER = "Does not validate against any of the Union subtypes"
TYPES = {"int": "a whole number", "float": "a number", "str": "a text", "bool": "true or false"}


def run_command(command: Callable[[], int]) -> int:
    """Run a command and turn the user's errors into one line on standard error.

    Wrong arguments, files that are missing or cannot be used, and a ``ValueError`` or ``ImportError`` (an extra that is
    not installed) that this package raises are the user's. Any other exception is a fault of the program and keeps its
    traceback.
    The process ends without a last collection of garbage.

    Args:
        command: Does the work and returns the exit code.

    Returns:
        The command's exit code; 2 after an error of the user, 130 after an interrupt.
    """
    # A last collection over all that was imported would take the process a second or two for nothing.
    atexit.register(gc.freeze)
    try:
        return command()
    except ArgumentError as error:
        message = plain(" ".join(str(error).split()))
    except OSError as error:
        message = str(error)
    except (ValueError, ImportError) as error:
        if not (_is_raised_here(error) or str(error).startswith(NO_MEMBER)):
            raise
        message = plain(" ".join(str(error).split())) if str(error).startswith(NO_MEMBER) else str(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    print(f"error: {message}", file=sys.stderr)
    return USER_ERROR


def plain(message: str) -> str:
    """Return a message of the parser as a user can act on it: flags as they are typed, expected, found.

    Args:
        message: On one line.
    """
    if missing := re.fullmatch(r"the following arguments are required: (.+)", message):
        names = (_without_command(name) for name in missing[1].split(", "))
        return f"missing {', '.join(f'--{name}' for name in names)}; --help lists the arguments"
    if wrong := re.fullmatch(r'Parser key "(.+?)": (.+)', message):
        return f"--{_without_command(wrong[1])}{_what_is_wrong(wrong[2])}"
    if message.startswith(NO_MEMBER):
        return _what_is_wrong(message).removeprefix(": ")
    return message


def _what_is_wrong(text: str) -> str:
    """Return what follows the name of an argument: the rest of the name inside a structured value, and the fault."""
    if inside := re.search(r"Problem with given class_path '[\w.]+': (.+?) - Expected a <class 'NoneType'>", text):
        if unknown := re.match(r"Option '(.+)' is not accepted", inside[1]):
            return f".{unknown[1]}: no such argument; --help lists the arguments"
        nested = re.fullmatch(r'Parser key "(.+?)": (.+)', inside[1])
        return f".{nested[1]}{_what_is_wrong(nested[2])}" if nested else f": {inside[1]}"
    if own := re.search(r"Errors: - (\w+: expected .+?) - Expected a <class 'NoneType'>", text):
        return f": {own[1]}"
    if union := re.search(r"Subtypes: \[(.+)\] Errors: .* Given value: (.*)", text):
        return f": expected {_kinds(union[1])}, found {union[2]!r}"
    if single := re.fullmatch(r"Expected an? (.+)\. Got value: (.*)", text):
        return f": expected {_kinds(single[1])}, found {single[2]!r}"
    return f": {text}"


def _without_command(name: str) -> str:
    """Return the name of an argument without the sub-command that the parser puts before it."""
    first, _, rest = name.partition(".")
    return rest if rest and first not in ("trainer", "model", "data") else name


def _kinds(text: str) -> str:
    """Return the members of a union in words."""
    words = text.replace("typing.", "").replace("<class 'NoneType'>", "null")
    words = re.sub(r"<class '(\w+)'>", lambda match: TYPES.get(match[1], match[1]), words)
    words = re.sub(r"Literal\[(.+?)\]", lambda match: f"one of {match[1]}" if "," in match[1] else match[1], words)
    return re.sub(r", (?=null$|one of|'\w+'$|list\[)", " or ", words)


@contextmanager
def suggestions(parser: ArgumentParser) -> Iterator[None]:
    """Add what was probably meant to the parser's complaint about an unknown flag.

    Args:
        parser: Knows the flags, also those of its sub-commands.

    Raises:
        ArgumentError: The complaint.
    """
    try:
        yield
    except ArgumentError as error:
        unknown = re.match(r"unrecognized arguments: (--[\w.]+)[^;]*$", error.message)
        if unknown:
            near = difflib.get_close_matches(unknown[1], sorted(set(_flags(parser))), n=1, cutoff=0.75)
            hint = f"did you mean {near[0]}?" if near else "--help lists the arguments"
            raise ArgumentError(None, f"{error.message}; {hint}") from error
        raise


def _flags(parser: ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        inner = structured_type(action)
        yield from (f"--{action.dest}.{field.name}" for field in (fields(inner) if inner else ()))
        yield from (name for name in action.option_strings if name.startswith("--"))
    commands = getattr(parser, "_subcommands_action", None)
    for command in commands._name_parser_map.values() if commands is not None else ():
        yield from _flags(command)


def _is_raised_here(error: BaseException) -> bool:
    """Return whether a module of this package raised the error, not a library it called."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module: str = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    return module.partition(".")[0] == __name__.partition(".")[0]
