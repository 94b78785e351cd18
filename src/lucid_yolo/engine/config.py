"""From a command line to one resolved configuration, before any parser sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from lucid_yolo.engine.module import DEFAULT_VARIANT

DEFAULT_RECIPE = "detect"

MOVED_FLAGS = {
    "trainer.gradient_clip_val": "model.clip_norm",
    "trainer.accumulate_grad_batches": "model.accumulate",
    "trainer.precision": "model.precision",
}
PRECISIONS = {
    "32-true": "fp32",
    "32": "fp32",
    "bf16-mixed": "bf16",
    "bf16": "bf16",
    "16-mixed": "fp16",
    "16": "fp16",
    "fp32": "fp32",
    "fp16": "fp16",
    "auto": "auto",
}
REFUSED_FLAGS = {
    "trainer.gradient_clip_algorithm": "clipping is by global norm; use model.clip_norm",
    "trainer.sync_batchnorm": "statistics over several devices are not implemented",
}


def list_recipes() -> list[str]:
    """Return the names of the packaged recipes."""
    folder = resources.files("lucid_yolo") / "configs"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def load_config(name_or_path: str) -> dict[str, Any]:
    """Read a packaged recipe by name, or a file.

    Raises:
        ValueError: Neither exists, or the file holds no mapping.
    """
    if name_or_path in list_recipes():
        text = (resources.files("lucid_yolo") / "configs" / f"{name_or_path}.yaml").read_text(encoding="utf-8")
    elif Path(name_or_path).is_file():
        text = Path(name_or_path).read_text(encoding="utf-8")
    else:
        raise ValueError(f"--config: expected a file or a recipe ({', '.join(list_recipes())}), found {name_or_path!r}")
    config = yaml.safe_load(text) or {}
    if not isinstance(config, dict):
        raise ValueError(f"--config {name_or_path}: expected a mapping, found {type(config).__name__}")
    return config


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``over`` laid over it, mapping by mapping."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def resolve_variant(config: Mapping[str, Any], variant: str | None) -> dict[str, Any]:
    """Lay the values that a configuration carries for one scale over the rest.

    Args:
        config: May hold ``by_variant``, a mapping from scale to values.
        variant: The scale, where the command line or a checkpoint names it.
    """
    rest = {key: value for key, value in config.items() if key != "by_variant"}
    chosen = variant or (rest.get("model") or {}).get("variant") or DEFAULT_VARIANT
    return merge(rest, config.get("by_variant", {}).get(chosen, {}))


def move_config_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Move Trainer keys that belong to the step to the model; see :data:`MOVED_FLAGS`."""
    moved = {section: dict(values) if isinstance(values, Mapping) else values for section, values in config.items()}
    for source, target in MOVED_FLAGS.items():
        (section, key), (to_section, to_key) = source.split("."), target.split(".")
        value = moved.get(section, {}).pop(key, None) if isinstance(moved.get(section), dict) else None
        if value is not None:
            moved.setdefault(to_section, {})[to_key] = _moved_value(source, str(value))
    return moved


def _moved_value(flag: str, value: str) -> str:
    if flag != "trainer.precision":
        return value
    if value not in PRECISIONS:
        raise ValueError(f"--{flag}: expected one of {', '.join(PRECISIONS)}, found {value!r}")
    return PRECISIONS[value]


def split_flags(arguments: Sequence[str]) -> list[tuple[str, str | None]]:
    """Return ``(flag, value)`` pairs of a command line in which every flag takes one value.

    A word that is no flag belongs to the flag before it.
    """
    pairs: list[tuple[str, str | None]] = []
    for word in arguments:
        if word.startswith("--"):
            flag, has_value, value = word.partition("=")
            pairs.append((flag[2:], value if has_value else None))
        elif pairs and pairs[-1][1] is None:
            pairs[-1] = (pairs[-1][0], word)
        else:
            pairs.append((word, None))
    return pairs


def resolve_arguments(arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return (configuration, remaining command line): configurations first, flags over them.

    ``--config`` counts first wherever it stands, later ones over earlier ones. ``--variant`` writes
    ``model.variant``. Trainer flags that belong to the step move to the model.

    Args:
        arguments: Command line behind the sub-command.

    Raises:
        ValueError: An unknown recipe or precision, or a refused flag.
    """
    config: dict[str, Any] = {}
    rest: list[str] = []
    variant = None
    for flag, value in split_flags(arguments):
        if flag in ("config", "c"):
            config = merge(config, load_config(value or ""))
            continue
        if flag in REFUSED_FLAGS:
            raise ValueError(f"--{flag} is not available: {REFUSED_FLAGS[flag]}")
        target = {"variant": "model.variant"}.get(flag, MOVED_FLAGS.get(flag, flag))
        if target == "model.variant":
            variant = value
        if flag in MOVED_FLAGS and value is not None:
            value = _moved_value(flag, value)
        name = f"--{target}" if _is_flag(arguments, flag) else flag
        rest.append(name if value is None else f"{name}={value}")
    return move_config_keys(resolve_variant(config, variant)), rest


def _is_flag(arguments: Sequence[str], flag: str) -> bool:
    return any(word == f"--{flag}" or word.startswith(f"--{flag}=") for word in arguments)


def next_run_dir(parent: str | Path) -> Path:
    """Return the first unused numbered folder under ``parent``."""
    parent = Path(parent)
    numbers = [int(entry.name) for entry in parent.glob("*") if entry.name.isdigit()]
    return parent / str(max(numbers, default=0) + 1)
