"""The words of a Trainer command, with what the recipe, the checkpoint and the data set know besides."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from lucid_yolo.cli.run_root import RunRoot
from lucid_yolo.data.dataset import read_class_map
from lucid_yolo.engine.config import DEFAULT_RECIPE, resolve_arguments, split_flags
from lucid_yolo.engine.finetune import read_start_weights
from lucid_yolo.engine.module import DEFAULT_IMAGE_SIZE_PX, DEFAULT_TASK, DEFAULT_VARIANT
from lucid_yolo.runtime.checkpoint_file import ModelMeta, read_checkpoint, read_meta
from lucid_yolo.structures import ClassMap

SHARED_KEYS = ("trainer", "model", "data", "seed_everything")


def resolve_command(arguments: Sequence[str]) -> tuple[list[str], ModelMeta | None, RunRoot]:
    """Return resolved arguments, what the network of the checkpoint is, and where the run's folder comes from.

    Args:
        arguments: Sub-command and flags.

    Raises:
        ValueError: A flag, configuration or checkpoint cannot be used, or ``validate`` and ``test`` have none to score.
    """
    command, flags = arguments[0], list(arguments[1:])
    given = dict(split_flags(flags))
    ckpt_path = given.get("ckpt_path")
    saved = read_meta(read_checkpoint(ckpt_path)) if ckpt_path else None
    if command == "fit" and "config" not in given:
        flags = ["--config", _run_config(ckpt_path) if ckpt_path else DEFAULT_RECIPE, *flags]
    config, rest = resolve_arguments(flags, saved.variant if saved else None)
    if weights := _start_weights(command, given, config):
        config, rest = resolve_arguments(flags, read_start_weights(weights).meta.variant)
    if command != "fit":
        if not ckpt_path and not {"help", "print_config"} & given.keys():
            raise ValueError(f"{command}: missing --ckpt_path, the checkpoint to score; --help lists the arguments")
        config = {key: config[key] for key in SHARED_KEYS if key in config}
        config["model"] = {**(config.get("model") or {}), "weights": None}
    config.pop("ckpt_path", None)
    return [command, "--config", json.dumps(config), *rest], saved, _run_root(command, given.get("config"), ckpt_path)


def _start_weights(command: str, given: Mapping[str, str | None], config: Mapping[str, Any]) -> str | None:
    """Return the file that a new run starts from, by the command line, else by the configuration.

    Raises:
        ValueError: Weights for something else than a new run.
    """
    is_given, ckpt_path = "model.weights" in given, given.get("ckpt_path")
    weights = (
        yaml.safe_load(given["model.weights"] or "null") if is_given else (config.get("model") or {}).get("weights")
    )
    if is_given and weights and command != "fit":
        raise ValueError(f"--model.weights: only a fit starts from weights; {command} takes --ckpt_path")
    if is_given and weights and ckpt_path:
        raise ValueError(
            f"--model.weights {weights} starts a run, --ckpt_path {ckpt_path} continues one; give one of them"
        )
    return weights if command == "fit" and not ckpt_path else None


def _run_config(ckpt_path: str) -> str:
    path = Path(ckpt_path).parent.parent / "config.yaml"
    if not path.is_file():
        raise ValueError(f"fit --ckpt_path without --config: expected the run's configuration at {path}, found none")
    return str(path)


def _run_root(command: str, config: str | None, ckpt_path: str | None) -> RunRoot:
    """Return ``runs/<recipe>`` for a fit, the checkpoint's own folder for a resumed one, else ``runs/<command>``."""
    if command != "fit":
        return RunRoot(Path("runs", command))
    recipe = DEFAULT_RECIPE if config is None else Path(config).stem
    return RunRoot(Path("runs", recipe), Path(ckpt_path).parent.parent if ckpt_path else None)


def settle_network(config: Any, saved: ModelMeta | None) -> None:
    """Settle what the network is: from the checkpoint, else from the arguments, the data set and the defaults.

    Args:
        config: Parsed arguments of a command; the model's are filled in.
        saved: What the network in ``--ckpt_path`` is; None without one.

    Raises:
        ValueError: The command line or configuration asks for another network than the checkpoint's.
    """
    meta = saved
    if meta is None:
        classes = read_class_map(config.data.data_root, config.data.source_format)
        class_map = ClassMap.from_dict(config.model.class_map) if config.model.class_map else classes
        meta = ModelMeta(DEFAULT_TASK, DEFAULT_VARIANT, class_map, DEFAULT_IMAGE_SIZE_PX)
        if config.model.weights is not None:
            meta = replace(read_start_weights(config.model.weights).meta, class_map=class_map)
        meta = ModelMeta(
            config.model.task or meta.task,
            config.model.variant or meta.variant,
            class_map,
            config.model.image_size or meta.image_size_px,
        )
    _fill_in(config.model, meta)


def _fill_in(model: Any, meta: ModelMeta) -> None:
    """Set the model's undetermined arguments; refuse contradictions.

    Args:
        model: Parsed model arguments; changed in place.
        meta: What the network is.

    Raises:
        ValueError: An argument that was given differs.
    """
    saved = {
        "task": meta.task,
        "variant": meta.variant,
        "image_size": meta.image_size_px,
        "class_map": meta.class_map.to_dict(),
    }
    for name, value in saved.items():
        given = model[name]
        if given is not None and given != value:
            raise ValueError(f"model.{name}: the checkpoint has {value}, the command line or configuration {given}")
        model[name] = value
