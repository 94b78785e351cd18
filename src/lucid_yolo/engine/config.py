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
SHORT_FLAGS = {"-c": "config", "-h": "help"}
REFUSED_FLAGS: dict[str, tuple[tuple[Any, ...], str]] = {
    "trainer.gradient_clip_algorithm": ((None, "norm"), "clipping is by global norm; use model.clip_norm"),
    "trainer.sync_batchnorm": ((None, False), "statistics over several devices are not implemented"),
    "trainer.deterministic": ((None, True), "every run is deterministic"),
    "trainer.benchmark": ((None, False), "choosing algorithms by timing would make runs differ"),
    "trainer.use_distributed_sampler": ((None, True), "the plan of the data decides which rank sees which image"),
    "trainer.reload_dataloaders_every_n_epochs": ((None, 0), "the loader lives as long as the run"),
    "trainer.overfit_batches": ((None, 0), "use trainer.limit_train_batches"),
    "trainer.barebones": ((None, False), "the run folder needs callbacks; see trainer.enable_progress_bar and logger"),
    "trainer.default_root_dir": ((None,), "use run_dir"),
}
"""Trainer flags with the values that change nothing here, which are dropped, and why any other is an error."""


def list_recipes() -> list[str]:
    """Return the names of the packaged recipes."""
    folder = resources.files("lucid_yolo") / "configs"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def load_config(name_or_path: str) -> dict[str, Any]:
    """Read a packaged recipe by name, or a file.

    Raises:
        ValueError: Neither exists, or the file is no YAML or holds no mapping.
    """
    if name_or_path in list_recipes():
        text = (resources.files("lucid_yolo") / "configs" / f"{name_or_path}.yaml").read_text(encoding="utf-8")
    elif Path(name_or_path).is_file():
        text = Path(name_or_path).read_text(encoding="utf-8")
    else:
        raise ValueError(f"--config: expected a file or a recipe ({', '.join(list_recipes())}), found {name_or_path!r}")
    try:
        config = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise ValueError(f"--config {name_or_path}: expected YAML, found: {' '.join(str(error).split())}") from error
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
    """Move Trainer keys that belong to the step to the model and drop those that may not be set.

    Args:
        config: May hold keys of :data:`MOVED_FLAGS` and :data:`REFUSED_FLAGS`.

    Raises:
        ValueError: A refused key changes something, or a moved one contradicts the model's own.
    """
    moved = {section: dict(values) if isinstance(values, Mapping) else values for section, values in config.items()}
    trainer = moved.get("trainer") or {}
    for flag in REFUSED_FLAGS:
        check_refused(flag, trainer.pop(flag.partition(".")[2], None))
    for source, target in MOVED_FLAGS.items():
        value = trainer.pop(source.partition(".")[2], None)
        if value is None:
            continue
        value, key = _moved_value(source, value), target.partition(".")[2]
        model = moved["model"] = moved.get("model") or {}
        if key in model and model[key] != value:
            raise ValueError(f"configuration: {source} says {value}, {target} says {model[key]}; give one of them")
        model[key] = value
    return moved


def check_refused(flag: str, value: Any) -> None:
    """Refuse a value that would change what a Trainer flag of :data:`REFUSED_FLAGS` stands for here.

    Raises:
        ValueError: The value changes something.
    """
    harmless, reason = REFUSED_FLAGS[flag]
    if value not in harmless:
        raise ValueError(f"--{flag} {value} is not available: {reason}")


def _moved_value(flag: str, value: Any) -> Any:
    if flag != "trainer.precision":
        return value
    if str(value) not in PRECISIONS:
        raise ValueError(f"--{flag}: expected one of {', '.join(PRECISIONS)}, found {value!r}")
    return PRECISIONS[str(value)]


def split_flags(arguments: Sequence[str]) -> list[tuple[str, str | None]]:
    """Return ``(flag, value)`` pairs of a command line in which every flag takes at most one value.

    Raises:
        ValueError: A word belongs to no flag.
    """
    pairs: list[tuple[str, str | None]] = []
    for word in arguments:
        if word in SHORT_FLAGS:
            pairs.append((SHORT_FLAGS[word], None))
        elif word.startswith("--"):
            flag, has_value, value = word.partition("=")
            pairs.append((flag[2:], value if has_value else None))
        elif pairs and pairs[-1][1] is None:
            pairs[-1] = (pairs[-1][0], word)
        else:
            raise ValueError(f"expected a flag that begins with --, found {word!r}")
    return pairs


def resolve_arguments(arguments: Sequence[str], variant: str | None = None) -> tuple[dict[str, Any], list[str]]:
    """Return (configuration, remaining command line): configurations first, flags over them.

    ``--config`` counts first wherever it stands, later ones over earlier ones. ``--variant`` writes
    ``model.variant``. Trainer flags that belong to the step move to the model.

    Args:
        arguments: Command line behind the sub-command.
        variant: Scale of the checkpoint, where there is one; it chooses among the values of a recipe.

    Raises:
        ValueError: An unknown recipe or precision, or a refused flag.
    """
    config: dict[str, Any] = {}
    rest: list[str] = []
    for flag, value in split_flags(arguments):
        if flag == "config":
            config = merge(config, load_config(value or ""))
            continue
        if flag in REFUSED_FLAGS:
            check_refused(flag, yaml.safe_load(value or "null"))
            continue
        target = {"variant": "model.variant"}.get(flag, MOVED_FLAGS.get(flag, flag))
        if target == "model.variant":
            variant = value
        if flag in MOVED_FLAGS and value is not None:
            value = _moved_value(flag, value)
        rest.append(f"--{target}" if value is None else f"--{target}={value}")
    return move_config_keys(resolve_variant(config, variant)), rest
