"""Tables of the site that are made from the code: recipes, options of a run, help texts."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import os
import re
import subprocess
import sys
import tomllib
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import griffe


def recipes_table() -> str:
    """Return what every recipe sets at scale n, one row per option."""
    from lucid_yolo.engine.config import list_recipes, load_config, resolve_variant

    recipes = {name: flatten(resolve_variant(load_config(name), "n")) for name in list_recipes()}
    options = list(dict.fromkeys(key for values in recipes.values() for key in values))
    rows = [[f"`{key}`", *(show(values.get(key)) for values in recipes.values())] for key in sorted(options, key=order)]
    return to_table(["option", *(f"`{name}`" for name in recipes)], rows)


def variants_table(recipe: str) -> str:
    """Return what a recipe changes from scale to scale."""
    from lucid_yolo.engine.config import load_config, resolve_variant
    from lucid_yolo.models.scales import VARIANTS

    scales = {name: flatten(resolve_variant(load_config(recipe), name)) for name in VARIANTS}
    options = [
        key for key in scales["n"] | scales["x"] if len({str(values.get(key)) for values in scales.values()}) > 1
    ]
    rows = [[f"`{key}`", *(show(values.get(key)) for values in scales.values())] for key in sorted(options, key=order)]
    return to_table(["option", *scales], rows)


def options_table(section: str) -> str:
    """Return the options of ``model`` or ``data`` with their defaults and meanings, values in values included."""
    from lucid_yolo.engine.datamodule import DetectorDataModule
    from lucid_yolo.engine.module import DetectorModule

    linked = ("model.seed", "data.seed", "model.resume_override")
    classes = {"model": DetectorModule, "data": DetectorDataModule}
    rows = [row for row in option_rows(section, classes[section]) if row[0] not in linked]
    return to_table(["option", "default", "meaning"], [[f"`{name}`", default, text] for name, default, text in rows])


def option_rows(prefix: str, cls: type) -> Iterator[tuple[str, str, str]]:
    """Yield (dotted name, default, meaning) of every argument of a class; a dataclass among them by its own fields."""
    meanings = docstring_entries(cls)
    hints = typing.get_type_hints(cls if dataclasses.is_dataclass(cls) else cls.__init__)
    for name, parameter in inspect.signature(cls).parameters.items():
        inner = next((t for t in union_members(hints[name]) if dataclasses.is_dataclass(t)), None)
        if inner is not None:
            yield from option_rows(f"{prefix}.{name}", inner)
            continue
        default = "required" if parameter.default is inspect.Parameter.empty else show(parameter.default)
        yield f"{prefix}.{name}", default, meanings[name]


def union_members(hint: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the type itself."""
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def docstring_entries(cls: type) -> dict[str, str]:
    """Return the meaning of every argument or attribute that a class documents, each on one line."""
    logging.getLogger("griffe").setLevel(logging.ERROR)
    sections = griffe.Docstring(inspect.getdoc(cls) or "", parser="google").parse(warnings=False)
    entries = [entry for s in sections if s.kind.value in ("parameters", "attributes") for entry in s.value]
    return {entry.name: " ".join(entry.description.split()) for entry in entries}


def help_text(*words: str) -> str:
    """Return what a command prints for ``--help``, as a code block."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, function = project["scripts"][words[0]].partition(":")
    code = f"import sys; from {module} import {function} as main; sys.argv[0] = {words[0]!r}; sys.exit(main())"
    command = [sys.executable, "-c", code, *words[1:], "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "100"})
    return f"```text\n{done.stdout.rstrip()}\n```"


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values by their dotted names."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def order(key: str) -> tuple[int, str]:
    """Return a sort key: trainer, model, data, the rest; in each in alphabetical order."""
    sections = ("trainer", "model", "data")
    section = key.partition(".")[0]
    return (sections.index(section) if section in sections else len(sections), key)


def show(value: Any) -> str:
    """Return a value as it is written in a configuration; an absent one as a dash."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if value != "" else "–"


def to_table(head: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    cells = [[re.sub(r"(?<!\\)\|", r"\\|", cell) for cell in row] for row in [head, ["---"] * len(head), *rows]]
    return "\n".join("| " + " | ".join(row) + " |" for row in cells)


TABLES: dict[str, Callable[..., str]] = {
    "recipes": recipes_table,
    "variants": variants_table,
    "options": options_table,
    "help": help_text,
}
"""What a marker ``<!-- table: NAME ARGUMENTS -->`` is replaced by."""
