from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import lucid_yolo
from lucid_yolo.cli import predict
from lucid_yolo.cli.errors import run_command
from lucid_yolo.cli.main import COMMANDS, main

PROBE = """
import sys, time
started = time.perf_counter()
from lucid_yolo.cli.{module} import main
try:
    code = main({argv})
except SystemExit as done:
    code = done.code
heavy = sorted({{"torch", "lightning", "cv2"}} & set(sys.modules))
print(repr((code, heavy, time.perf_counter() - started)))
"""


@pytest.mark.parametrize(
    ("module", "argv", "limit_s"),
    [
        ("main", ["--help"], 0.5),
        ("main", ["--version"], 0.5),
        ("main", ["sizes", "--help"], 0.5),
        ("main", ["predict", "--help"], 1.0),
        ("predict", ["--help"], 1.0),
        ("evaluate", ["--help"], 1.0),
        ("data", ["--help"], 1.0),
        ("data", ["check", "--help"], 1.0),
        ("export", ["--help"], 1.0),
        ("bench", ["--help"], 1.0),
        ("bench", ["prove", "--help"], 1.0),
        ("bench", ["step", "--help"], 1.0),
    ],
)
def test_help_is_quick_and_light(module: str, argv: list[str], limit_s: float) -> None:
    code = PROBE.format(module=module, argv=argv)
    seconds = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        *text, answer = done.stdout.splitlines()
        exit_code, heavy, elapsed = eval(answer)
        assert (exit_code, heavy) == (0, [])
        assert text
        seconds.append(elapsed)
        if elapsed < limit_s:
            break
    assert min(seconds) < limit_s


@pytest.mark.parametrize("argv", [["-h"], ["--help"]])
def test_help_names_every_command(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 0
    text = capsys.readouterr().out
    assert all(f"  {command} " in text for command in COMMANDS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"lucid-yolo {lucid_yolo.__version__}\n"


@pytest.mark.parametrize("argv", [[], ["train"], ["--config", "detect"]], ids=str)
def test_an_unknown_command_lists_the_known(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert "fit, validate, test, predict, sizes" in printed.err


@pytest.mark.parametrize("command", ["fit", "validate", "test"])
def test_trainer_commands_get_the_whole_line(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def run(argv: list[str]) -> int:
        seen.append(argv)
        return 5

    trainer = ModuleType("lucid_yolo.cli.trainer")
    trainer.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lucid_yolo.cli.trainer", trainer)
    monkeypatch.setattr(lucid_yolo.cli, "trainer", trainer, raising=False)
    assert main([command, "--x", "1"]) == 5
    assert seen == [[command, "--x", "1"]]


def test_predict_is_the_same_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "--source", "x"]) == 2
    own = capsys.readouterr()
    assert predict.main(["--source", "x"]) == 2
    assert capsys.readouterr() == own


def raise_error(error: BaseException) -> int:
    raise error


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (FileNotFoundError("no file x"), 2, "error: no file x\n"),
        (PermissionError(13, "Permission denied", "x"), 2, "error: [Errno 13] Permission denied: 'x'\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
    ids=repr,
)
def test_errors_of_the_user(error: BaseException, code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(lambda: raise_error(error)) == code
    assert capsys.readouterr().err == message


@pytest.mark.parametrize("error", [ValueError("raised by a library"), RuntimeError("a fault")], ids=repr)
def test_other_errors_keep_their_traceback(error: BaseException) -> None:
    with pytest.raises(type(error)):
        run_command(lambda: raise_error(error))
