"""Commands and Python on the pages are right: every command parses, every flag of a run is explained, Python runs."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from argparse import ArgumentError
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonargparse import ArgumentParser

from lucid_yolo.cli import bench, data, evaluate, export, predict, sizes
from lucid_yolo.cli.run_arguments import resolve_command
from lucid_yolo.cli.run_root import RunRoot
from lucid_yolo.cli.trainer import COMMANDS, RunCLI
from lucid_yolo.data.dataset import open_split
from lucid_yolo.data.plan import AugmentPolicy, TrainPlanner
from lucid_yolo.data.synthetic import draw_shapes
from samples import write_untrained
from test_frame import ROOT, repository_files

PAGES = [p for p in repository_files() if p.suffix == ".md" and (p.parent == ROOT or ROOT / "docs" in p.parents)]
PARSERS: dict[str, Callable[[], ArgumentParser]] = {
    "lucid-eval": evaluate._parser,
    "lucid-predict": lambda: predict._parser("lucid-predict"),
    "lucid-export": export._parser,
    "lucid-data": data.build_parser,
    "lucid-yolo sizes": sizes._parser,
    "lucid-yolo predict": lambda: predict._parser("lucid-yolo predict"),
    "lucid-bench step": bench._step_parser,
    "lucid-bench loader": bench._loader_parser,
}
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning.pytorch.cli")


class Unbuilt(RunCLI):
    """Parses as ``lucid-yolo fit`` does and builds nothing."""

    def _parse_ckpt_path(self) -> None: ...

    def instantiate_classes(self) -> None: ...

    def _run_subcommand(self, subcommand: str) -> None: ...


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.+?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of every ``lucid-*`` command of a shell text."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words and words[0].startswith("lucid-"):
            yield words


FOUND = [(page, words) for page in PAGES for block in blocks(page, "bash") for words in commands(block)]


def parse(words: list[str]) -> None:
    """Parse a command with the command's own parser.

    Raises:
        ArgumentError, ValueError: It is wrong.
    """
    name = words[0] if words[0] in PARSERS else " ".join(words[:2])
    rest = [word for word in words[len(name.split()) :] if word != "--print_config"]  # it would print and exit
    if name in PARSERS:
        PARSERS[name]().parse_args(rest)
    elif name in ("lucid-bench prove", "lucid-bench pair"):
        is_pair = name.endswith("pair")
        own, flags = bench.take_flags(bench._pair_parser() if is_pair else bench._prove_parser(), rest)
        sides = [own.a, own.b] if is_pair else [""]
        configs = [f"--config={word}" for word in own.words]
        for side in sides:
            parse(["lucid-yolo", "fit", *configs, *flags, *shlex.split(side)])
    elif words[0] == "lucid-yolo" and words[1] in COMMANDS:
        Unbuilt(*resolve_command([words[1], *rest]))
    else:
        raise ValueError(f"no such command: {name}")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_untrained(tmp_path_factory.mktemp("checkpoint") / "best.ckpt")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint: Path) -> Callable[[list[str]], None]:
    """Put the files that a command names where it looks for them."""
    monkeypatch.chdir(tmp_path)

    def put(words: list[str]) -> None:
        for word in words:
            path = Path(word)
            if path.suffix == ".ckpt" and not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(checkpoint, path)
                (path.parent.parent / "config.yaml").write_text("data: {data_root: my_dataset}", "utf-8")
            elif path.suffix == ".yaml":
                path.write_text("data: {data_root: my_dataset}", "utf-8")

    return put


def test_commands_are_found() -> None:
    assert len(FOUND) > 30
    assert {words[0] for _, words in FOUND} >= {
        "lucid-yolo",
        "lucid-eval",
        "lucid-predict",
        "lucid-data",
        "lucid-bench",
    }


@pytest.mark.parametrize(
    ("page", "words"), FOUND, ids=[f"{page.stem}-{shlex.join(words)[:50]}" for page, words in FOUND]
)
def test_a_command_on_a_page_parses(page: Path, words: list[str], place: Callable[[list[str]], None]) -> None:
    place(words)
    parse(words)


@pytest.mark.parametrize(
    "text",
    [
        "lucid-yolo fit --config detect --data.data_rot my_dataset",
        "lucid-yolo fit --config detekt --data.data_root my_dataset",
        "lucid-yolo fit --config detect --data.data_root my_dataset --model.freze_ 11",
        "lucid-yolo train --data.data_root my_dataset",
        "lucid-bench pair --data.data_root my_dataset --a '--model.sped none'",
        "lucid-eval --ckpt_path best.ckpt --data_rot my_dataset",
        "lucid-data convert --data_root my_dataset --to cocoa --out x",
    ],
)
def test_a_wrong_command_does_not_parse(text: str, place: Callable[[list[str]], None]) -> None:
    (words,) = commands(text)
    place(words)
    with pytest.raises((ArgumentError, ValueError)):
        parse(words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_on_a_page_compiles(page: Path) -> None:
    for block in blocks(page, "python"):
        compile(block, str(page), "exec")


def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint: Path) -> None:
    draw_shapes(tmp_path / "drawn", num_train=2, num_val=1, image_size_px=128)
    (tmp_path / "drawn/images/train").rename(tmp_path / "my_images")
    (tmp_path / "runs/detect/1/checkpoints").mkdir(parents=True)
    shutil.copy(checkpoint, tmp_path / "runs/detect/1/checkpoints/best.ckpt")
    monkeypatch.chdir(tmp_path)
    (block,) = blocks(ROOT / "README.md", "python")
    exec(compile(block, "README.md", "exec"), {})
    assert len(list((tmp_path / "predictions").iterdir())) == 2


def test_the_black_box_is_replayed_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw_shapes(tmp_path / "my_dataset", num_train=6, num_val=1, image_size_px=128)
    monkeypatch.chdir(tmp_path)
    records = open_split("my_dataset", "train").records
    plan = TrainPlanner(records, 64, AugmentPolicy(), batch_size=4, seed=0, num_epochs=1).plan(0)
    Path("runs/detect/1").mkdir(parents=True)
    Path("runs/detect/1/black_box.json").write_text(json.dumps({"plans": [plan.to_dict()]}))
    (block,) = blocks(ROOT / "docs" / "reliability.md", "python")
    space: dict[str, Any] = {}
    exec(compile(block, "reliability.md", "exec"), space)
    assert tuple(space["batch"].images.shape) == (4, 3, 64, 64)


def test_every_flag_of_a_run_is_explained() -> None:
    parser = Unbuilt(["fit", "--data.data_root", "x"], None, RunRoot(Path("runs"))).parser
    fit = parser._subcommands_action._name_parser_map["fit"]
    flags = {a.dest for a in fit._actions if "." not in a.dest}
    flags -= {"help", "config", "print_config", "trainer", "model", "data"}
    explained = set(re.findall(r"^\| `--(\w+)", (ROOT / "docs/training.md").read_text("utf-8"), re.MULTILINE))
    assert flags
    assert flags <= explained


def test_the_tour_has_ten_files() -> None:
    stops = re.findall(
        r"^(\d+)\. \[([\w/.]+)\]\(\.\./src/lucid_yolo/([\w/.]+)\)", (ROOT / "docs/tour.md").read_text(), re.M
    )
    assert [int(number) for number, _, _ in stops] == list(range(1, 11))
    assert all(shown == path and (ROOT / "src/lucid_yolo" / path).is_file() for _, shown, path in stops)


def test_nobody_is_sent_to_the_package_of_the_same_name() -> None:
    """The name belongs to another team on the package index; ours installs from the repository."""
    wrong = re.compile(r"pip install [^\n]*?\blucid-yolo\b(?!\.)|lucid-yolo\[")
    decided = ROOT / "docs/decisions/0021-package-name.md"  # says that no page shows the line
    texts = [p for p in repository_files() if p.suffix in (".md", ".py", ".toml", ".yml")]
    texts = [p for p in texts if p not in (Path(__file__), decided)]
    assert [str(p.relative_to(ROOT)) for p in texts if wrong.search(p.read_text("utf-8"))] == []
