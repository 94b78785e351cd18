"""Configurations and command lines, before any parser sees them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import yaml
from lightning.pytorch import Trainer

from lucid_yolo.engine.config import (
    MOVED_FLAGS,
    REFUSED_FLAGS,
    list_recipes,
    load_config,
    merge,
    move_config_keys,
    resolve_arguments,
    split_flags,
)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--a", "1", "--b=2"], [("a", "1"), ("b", "2")]),
        (["--a", "--b", "x"], [("a", None), ("b", "x")]),
        (["--a=x=y"], [("a", "x=y")]),
        (["--a", "-1"], [("a", "-1")]),
        (["-c", "detect"], [("config", "detect")]),
        (["--a", "[1, 2]"], [("a", "[1, 2]")]),
        ([], []),
    ],
    ids=str,
)
def test_words_belong_to_the_flag_before_them(words: list[str], expected: list[tuple[str, str | None]]) -> None:
    assert split_flags(words) == expected


@pytest.mark.parametrize("words", [["x"], ["--a", "1", "2"], ["--a=1", "2"]], ids=str)
def test_a_word_without_a_flag_is_refused(words: list[str]) -> None:
    with pytest.raises(ValueError, match="expected a flag"):
        split_flags(words)


def test_merge_goes_mapping_by_mapping() -> None:
    base = {"a": {"x": 1, "y": {"z": 2}}, "b": 3, "c": [1, 2]}
    over = {"a": {"y": {"w": 4}}, "b": {"q": 5}, "c": [3]}
    assert merge(base, over) == {"a": {"x": 1, "y": {"z": 2, "w": 4}}, "b": {"q": 5}, "c": [3]}
    assert base == {"a": {"x": 1, "y": {"z": 2}}, "b": 3, "c": [1, 2]}


@pytest.mark.parametrize("position", [0, 1, 2])
def test_config_counts_first_wherever_it_stands(tmp_path: Path, position: int) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("data: {batch_size: 3, seed: 5}", "utf-8")
    words = [["--data.batch_size", "7"], ["--data.root=x"]]
    words.insert(position, ["--config", str(path)])
    config, rest = resolve_arguments([word for part in words for word in part])
    assert config == {"data": {"batch_size": 3, "seed": 5}}
    assert rest == ["--data.batch_size=7", "--data.root=x"]


def test_later_configs_lie_over_earlier_ones(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("trainer: {max_epochs: 7}", "utf-8")
    config, _ = resolve_arguments(["--config", "detect", "--config", str(path)])
    assert config["trainer"]["max_epochs"] == 7
    assert config["data"] == load_config("detect")["data"]


@pytest.mark.parametrize("recipe", list_recipes())
def test_every_recipe_is_a_mapping_with_an_end(recipe: str) -> None:
    assert load_config(recipe)["trainer"]["max_epochs"] > 0


@pytest.mark.parametrize(
    ("flags", "saved", "scale"),
    [
        ([], None, 0.5),
        (["--variant", "n"], None, 0.5),
        (["--variant", "s"], None, 0.9),
        (["--variant=x"], None, 0.9),
        (["--model.variant", "m"], None, 0.9),
        ([], "l", 0.9),
        (["--variant", "n"], "l", 0.5),
    ],
    ids=str,
)
def test_a_scale_takes_its_own_values(flags: list[str], saved: str | None, scale: float) -> None:
    config, rest = resolve_arguments(["--config", "detect", *flags], saved)
    assert config["data"]["augment"]["scale"] == scale
    assert config["data"]["augment"]["mosaic"] == 1.0
    assert "by_variant" not in config
    assert all(word.startswith("--model.variant=") for word in rest)


def test_a_config_may_name_the_scale(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("model: {variant: s}", "utf-8")
    config, _ = resolve_arguments(["--config", str(path), "--config", "detect"])
    assert config["data"]["augment"]["scale"] == 0.9


MOVED = [
    ("trainer.gradient_clip_val", 5.0, "clip_norm", 5.0),
    ("trainer.accumulate_grad_batches", 4, "accumulate", 4),
    ("trainer.precision", "bf16-mixed", "precision", "bf16"),
    ("trainer.precision", "16-mixed", "precision", "fp16"),
    ("trainer.precision", 32, "precision", "fp32"),
]


@pytest.mark.parametrize(("flag", "value", "key", "moved"), MOVED, ids=str)
def test_trainer_flags_of_the_step_move_to_the_model(
    tmp_path: Path, flag: str, value: Any, key: str, moved: Any
) -> None:
    _, rest = resolve_arguments([f"--{flag}", str(value)])
    assert rest == [f"--model.{key}={moved}"]
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump({"trainer": {flag.split(".")[1]: value, "max_epochs": 3}}), "utf-8")
    config, _ = resolve_arguments(["--config", str(path)])
    assert config == {"trainer": {"max_epochs": 3}, "model": {key: moved}}


def test_a_moved_key_may_not_contradict_the_models_own() -> None:
    same = {"trainer": {"accumulate_grad_batches": 4}, "model": {"accumulate": 4}}
    assert move_config_keys(same)["model"] == {"accumulate": 4}
    with pytest.raises(ValueError, match=r"accumulate_grad_batches says 2, model\.accumulate says 4"):
        move_config_keys({"trainer": {"accumulate_grad_batches": 2}, "model": {"accumulate": 4}})


REFUSED = [
    ("gradient_clip_algorithm", "value", "model.clip_norm"),
    ("sync_batchnorm", True, "not implemented"),
    ("deterministic", False, "every run is deterministic"),
    ("benchmark", True, "differ"),
    ("use_distributed_sampler", False, "plan"),
    ("reload_dataloaders_every_n_epochs", 2, "loader"),
    ("overfit_batches", 0.1, "limit_train_batches"),
    ("barebones", True, "callbacks"),
    ("default_root_dir", "there", "run_dir"),
]


@pytest.mark.parametrize(("name", "value", "reason"), REFUSED, ids=str)
def test_refused_flags_say_why(tmp_path: Path, name: str, value: Any, reason: str) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump({"trainer": {name: value}}), "utf-8")
    for words in ([f"--trainer.{name}={value}"], ["--config", str(path)]):
        with pytest.raises(ValueError, match=f"trainer.{name} .*{reason}"):
            resolve_arguments(words)


def test_values_that_change_nothing_are_dropped() -> None:
    defaults = {name: inspect.signature(Trainer).parameters[name].default for name, _, _ in REFUSED}
    assert {f"trainer.{name}" for name in defaults} == set(REFUSED_FLAGS)
    assert move_config_keys({"trainer": defaults}) == {"trainer": {}}
    _, rest = resolve_arguments([f"--trainer.{name}={yaml.safe_dump(v).split()[0]}" for name, v in defaults.items()])
    assert rest == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--config", "detekt"], r"expected a file or a recipe \(detect, .*found 'detekt'"),
        (["--config"], "expected a file or a recipe"),
        (["--trainer.precision", "64"], "expected one of 32-true"),
    ],
    ids=str,
)
def test_what_cannot_be_resolved(words: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve_arguments(words)


def test_a_config_that_is_no_mapping(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("- 1", "utf-8")
    with pytest.raises(ValueError, match="expected a mapping, found list"):
        load_config(str(path))


def test_every_trainer_flag_has_its_line_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "trainer_flags.md").read_text("utf-8")
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    assert rows.keys() == set(inspect.signature(Trainer).parameters)
    for flag, target in MOVED_FLAGS.items():
        assert f"moved to `{target}`" in rows[flag.removeprefix("trainer.")]
    for flag in REFUSED_FLAGS:
        assert "refused" in rows[flag.removeprefix("trainer.")]
