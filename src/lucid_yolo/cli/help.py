"""How ``--help`` looks: a short usage, groups, one line for each argument, defaults where they say something."""

from __future__ import annotations

import re
import shutil
from argparse import SUPPRESS, Action
from collections.abc import Iterable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, ClassVar, Literal, get_args, get_origin

from jsonargparse import DefaultHelpFormatter

MAX_WIDTH = 120
HELP_COLUMN = 40
SILENT_DEFAULTS: tuple[str, ...] = ("None", "False", "[]", SUPPRESS)
"""Defaults that are not shown: nothing given, switched off."""


class CompactHelp(DefaultHelpFormatter):
    """Prints what a reader looks for and leaves out types, known subclasses and the list of all flags.

    Values inside values, such as ``--model.speed.accelerate``, get a line each. Arguments that are set by others are
    left out.
    """

    texts: ClassVar[dict[str, str]] = {
        "help": "this text",
        "config": "YAML file with values for the arguments below",
        "print_config": "print the values of all arguments as YAML and exit",
    }
    """Help by name of the argument, in the place of its own."""

    def __init__(self, prog: str, **options: Any) -> None:
        width = min(shutil.get_terminal_size().columns - 2, MAX_WIDTH)
        super().__init__(prog, **{"max_help_position": HELP_COLUMN, "width": width, **options})  # type: ignore[no-untyped-call]

    def add_usage(self, usage: str | None, actions: Iterable[Action], *args: Any, **kwargs: Any) -> None:
        """Name the command and what it needs, not every flag."""
        shown = list(actions)
        required = [f"{a.option_strings[0]} {self._value(a)}" for a in shown if a.option_strings and a.required]
        rest = "COMMAND [arguments]" if any(not a.option_strings for a in shown) else "[arguments]"
        words = [self._prog.replace(" [options]", "")]
        if kwargs.get("prefix", args[1] if len(args) > 1 else None) != "":  # empty where sub-commands ask for the name
            words += [*required, rest]
        super().add_usage(" ".join(words) if usage is None else usage, [], *args, **kwargs)

    def add_argument(self, action: Action) -> None:
        """Add a line, or one for each value inside a structured argument."""
        if is_hidden(action):
            return
        inner = structured_type(action)
        if inner is None:
            super().add_argument(action)
            return
        meanings = docstring_meanings(inner)
        for field in fields(inner):
            default = None if field.default is MISSING else field.default
            name = f"{action.dest}.{field.name}"
            super().add_argument(Action([f"--{name}"], name, default=default, help=meanings.get(field.name, "")))

    def _format_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None) -> str:  # noqa: ARG002
        return f"{'usage: ' if prefix is None else prefix}{usage}\n\n"

    def _format_action_invocation(self, action: Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        flag = max((name for name in action.option_strings if not name.endswith("+")), key=len)
        return f"{flag} {self._value(action)}".rstrip()

    def _value(self, action: Action) -> str:
        """Return what stands for the value of an argument."""
        if action.dest in ("print_config", "help") or action.nargs == 0:
            return ""
        if action.choices is not None:
            return "{" + ",".join(str(choice) for choice in action.choices) + "}"
        name = action.metavar or action.dest.rpartition(".")[2].upper()
        if isinstance(name, tuple):
            return " ".join(name)
        word = name if action.metavar else one_word(action, name)
        many = {"+": f"{word} ...", "*": f"{word} ...", "?": f"[{word}]"}
        return " ".join([word] * action.nargs) if isinstance(action.nargs, int) else many.get(str(action.nargs), word)

    def _get_help_string(self, action: Action) -> str:
        text = tidy(self.texts.get(action.dest, action.help or ""))
        if action.required and action.option_strings:
            return f"{text} (required)"
        says_default = "default" in text or str(action.default) in SILENT_DEFAULTS
        is_shown = action.option_strings and action.dest not in self.texts and not says_default
        return f"{text} (default: {show(action.default)})" if is_shown else text

    def _expand_help(self, action: Action) -> str:
        return self._get_help_string(action).replace("%%", "%")


class TrainerHelp(CompactHelp):
    """Help of the commands that take Lightning's flags: of those the first sentence."""

    texts: ClassVar[dict[str, str]] = {
        **CompactHelp.texts,
        "config": "name of a recipe, or YAML file; several lie over each other",
        "seed_everything": "seed of weights, shuffling and augmentation (default: 0)",
        "ckpt_path": "checkpoint: fit continues its run, validate and test score it",
        "trainer.accelerator": "cpu, gpu, auto, ... (default: auto)",
        "trainer.strategy": "auto or ddp (default: auto)",
        "trainer.devices": "how many, or which (default: auto)",
        "trainer.fast_dev_run": "so many batches of each kind, to find faults",
        "trainer.inference_mode": "evaluate in torch's inference mode (default: true)",
    }

    def start_section(self, heading: str | None) -> None:
        """Name the group of the checkpoint, whose title would be Lightning's description of the command."""
        is_lightnings = heading is not None and heading.startswith(("Runs the full", "Perform one evaluation"))
        super().start_section("checkpoint" if is_lightnings else heading)

    def _get_help_string(self, action: Action) -> str:
        if not action.dest.startswith("trainer.") or action.dest in self.texts:
            return super()._get_help_string(action)
        whole, action.help = action.help, first_sentence(action.help or "")
        try:
            return super()._get_help_string(action)
        finally:
            action.help = whole


def first_sentence(text: str) -> str:
    """Return the first sentence of a text."""
    return re.split(r"(?<=[a-z)`])\.\s|\sDefault:|:\s", f"{text} ", maxsplit=1)[0].strip()


def tidy(text: str) -> str:
    """Return a text as the others are written: one line, a small first letter, no full stop."""
    text = " ".join(text.replace("``", "`").split())
    text = text if text.endswith("...") else text.removesuffix(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


def one_word(action: Action, name: str) -> str:
    """Return ``{a,b}`` where an argument takes one of a few words or is a switch, else the name in capitals."""
    hint = getattr(action, "_typehint", None)
    kinds = [kind for kind in (hint, *get_args(hint)) if get_origin(kind) is Literal]
    is_only_words = get_origin(hint) is Literal or all(k in kinds or k is type(None) for k in get_args(hint))
    words = ["true", "false"] if hint is bool else [str(word) for kind in kinds for word in get_args(kind)]
    shown = "{" + ",".join(words) + "}"
    return shown if words and (is_only_words or hint is bool) and len(shown) <= HELP_COLUMN else name


def show(value: Any) -> str:
    """Return a default as a user writes it."""
    if isinstance(value, list | tuple):
        return " ".join(show(entry) for entry in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_hidden(action: Action) -> bool:
    """Return whether an argument is set by another one, or only shows help or reads a file for a part."""
    kind = type(action).__name__
    is_part = kind == "_ActionConfigLoad" or (kind == "ActionParser")
    return kind == "ActionLink" or action.dest.endswith(".help") or is_part


def structured_type(action: Action) -> type | None:
    """Return the dataclass that an argument takes, None if it takes none."""
    hint = getattr(action, "_typehint", None)
    return next((kind for kind in (hint, *get_args(hint)) if isinstance(kind, type) and is_dataclass(kind)), None)


def docstring_meanings(cls: type) -> dict[str, str]:
    """Return the meaning of every attribute that a class documents."""
    from docstring_parser import parse

    return {entry.arg_name: entry.description or "" for entry in parse(cls.__doc__ or "").params}
