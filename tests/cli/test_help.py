"""Help is short, grouped and says defaults; no flag is lost on the way."""

from __future__ import annotations

import re

import pytest
from jsonargparse import ArgumentParser

from lucid_yolo.cli import bench, data, evaluate, export, predict, sizes
from lucid_yolo.cli.help import first_sentence, tidy

PARSERS = {
    "eval": evaluate._parser,
    "predict": lambda: predict._parser("lucid-predict"),
    "export": export._parser,
    "sizes": sizes._parser,
    "check": data._check_parser,
    "convert": data._convert_parser,
    "demo": data._demo_parser,
    "download": data._download_parser,
    "prove": bench._prove_parser,
    "pair": bench._pair_parser,
    "step": bench._step_parser,
    "loader": bench._loader_parser,
}


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


@pytest.mark.parametrize("name", PARSERS)
def test_every_argument_has_a_line_and_a_meaning(name: str) -> None:
    parser = PARSERS[name]()
    text = parser.format_help()
    for action in parser._actions:
        if action.dest == "print_config" or not action.option_strings:
            continue
        flag = max((o for o in action.option_strings if not o.endswith("+")), key=len)
        found = re.search(rf"^  (?:-\w, )?{flag}\b(?: \S.*?)?\s{{2,}}(\S.*)$", text, re.MULTILINE)
        assert found, f"{flag} has no line"
    usage = text.partition("\n\n")[0]
    assert usage.startswith("usage: ")
    assert "\n" not in usage
    assert "(type:" not in text
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize(
    ("flag", "shown"),
    [
        ("count", "--count COUNT    how many (default: 3)"),
        ("none", "--none NONE      nothing yet"),
        ("kind", "--kind {a,b}     sort (default: a)"),
        ("pair", "--pair PAIR PAIR"),
        ("zero", "--zero ZERO      from here (default: 0.0)"),
        ("flag", "--flag           whether"),
        ("must", "--must MUST      must be (required)"),
    ],
)
def test_lines(flag: str, shown: str) -> None:
    from lucid_yolo.cli.arguments import make_parser

    parser: ArgumentParser = make_parser("x", "Does.")
    parser.add_argument("--count", type=int, default=3, help="How many.")
    parser.add_argument("--none", type=int | None, default=None, help="Nothing yet.")
    parser.add_argument("--kind", choices=["a", "b"], default="a", help="sort")
    parser.add_argument("--pair", type=int, nargs=2, default=[1, 2], help="two")
    parser.add_argument("--zero", type=float, default=0.0, help="from here")
    parser.add_argument("--flag", action="store_true", help="whether")
    parser.add_argument("--must", type=str, required=True, help="must be")
    text = re.sub(r"^(  --\S+.*?)\s{2,}", lambda m: f"{m[1]:<19}", parser.format_help(), flags=re.MULTILINE)
    assert f"  {shown}" in text
    assert text.startswith("usage: x --must MUST [arguments]\n")


@pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning.pytorch.cli")
def test_help_of_a_fit(capsys: pytest.CaptureFixture[str]) -> None:
    from lucid_yolo.cli.main import main

    with pytest.raises(SystemExit) as done:
        main(["fit", "--help"])
    assert done.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: lucid-yolo fit --data.data_root DATA_ROOT [arguments]\n\nTrain a detector.")
    groups = re.findall(r"^(\w.*):$", text, re.MULTILINE)
    assert groups == ["options", "trainer, as in Lightning", "model", "data", "run", "checkpoint"]
    for flag in (
        "--model.speed.accelerate",
        "--data.augment.mosaic",
        "--trainer.max_epochs",
        "--patience",
        "--ckpt_path",
    ):
        assert f"  {flag} " in text
    assert "known subclasses" not in text
    assert ".help" not in text
    assert "--model.seed" not in text, "seed_everything sets it"
    assert len(text.splitlines()) < 260


def test_sub_commands_are_named_in_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for words, usage in (
        (["--help"], "lucid-data COMMAND"),
        (["check", "--help"], "lucid-data check --data_root DATA_ROOT"),
    ):
        with pytest.raises(SystemExit):
            data.main(words)
        assert capsys.readouterr().out.startswith(f"usage: {usage} [arguments]\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("How many. Or else.", "How many"),
        ("The devices. Default: ``auto``.", "The devices"),
        ("Names (such as ``a``). More.", "Names (such as ``a``)"),
        ("No stop", "No stop"),
    ],
)
def test_first_sentence(text: str, expected: str) -> None:
    assert first_sentence(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("How\n many.", "how many"),
        ("AP of ``a``", "AP of `a`"),
        ("cpu, ...", "cpu, ..."),
        ("", ""),
        ("A file", "a file"),
    ],
)
def test_tidy(text: str, expected: str) -> None:
    assert tidy(text) == expected
