"""``lucid-bench`` in this process, on ten drawn pictures at 64 px."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cv2
import pytest
import torch

from lucid_yolo.bench import pair
from lucid_yolo.bench.pair import FitFailedError, FitRun, PairResult
from lucid_yolo.cli.bench import main, take_flags
from lucid_yolo.data.synthetic import draw_shapes
from lucid_yolo.optim.musgd import MuSGD

TINY = ["--data.num_workers=0", "--data.batch_size=2", "--model.image_size=64", "--trainer.accelerator=cpu"]
PROBE = """
import sys, time
started = time.perf_counter()
from lucid_yolo.cli.bench import main
try:
    code = main({argv})
except SystemExit as done:
    code = done.code
heavy = sorted({{"torch", "lightning", "cv2"}} & set(sys.modules))
print(repr((code, heavy, time.perf_counter() - started)))
"""

# Lightning calls a method of jsonargparse that is on its way out; users are not shown such warnings.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning.pytorch.cli")


@pytest.fixture(scope="module")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data") / "shapes"
    draw_shapes(root, num_train=10, num_val=5, image_size_px=64, object_px=(12, 40), seed=3)
    return root


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(MuSGD, "orthogonalize", lambda _, update: update)  # slow on a CPU


@pytest.mark.parametrize("argv", [["--help"], *([name, "--help"] for name in ("prove", "pair", "step", "loader"))])
def test_help_is_quick_and_light(argv: list[str]) -> None:
    seconds = []
    for _ in range(3):
        code = PROBE.format(argv=argv)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        *text, answer = done.stdout.splitlines()
        exit_code, heavy, elapsed = eval(answer)
        assert (exit_code, heavy) == (0, [])
        assert text
        seconds.append(elapsed)
        if elapsed < 1:
            break
    assert min(seconds) < 1


def test_own_flags_are_taken_out_of_those_of_fit() -> None:
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--a", type=str, default="")
    parser.add_argument("--steps", type=int, default=1)
    line = [
        "x.yaml",
        "y.yaml",
        "--root",
        "set",
        "--a",
        "--model.seed=3 --b",
        "--steps=4",
        "--c=1",
        "--d",
        "2",
    ]
    own, rest = take_flags(parser, line)
    assert (own.words, own.a, own.steps) == (["x.yaml", "y.yaml"], "--model.seed=3 --b", 4)
    assert rest == ["--root", "set", "--c=1", "--d", "2"]


@pytest.mark.parametrize("argv", [[], ["prov"]])
def test_an_unknown_command_lists_the_known(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert "expected one of prove, pair, step, loader" in capsys.readouterr().err


def test_prove_writes_a_certificate_and_no_run(data_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = Path("own.yaml")
    own.write_text("trainer: {max_epochs: 4}\nmodel: {accumulate: 2}", "utf-8")
    outputs = ["--steps", "4", "--json", "proof/p.json", "--report=proof/p.md"]
    assert main(["prove", "own.yaml", f"--data.data_root={data_root}", *TINY, *outputs]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("# Plain against accelerated: equal, both eager\n")
    assert Path("proof/p.md").read_text("utf-8") == printed
    proof = json.loads(Path("proof/p.json").read_text("utf-8"))
    assert proof["is_equal"]
    assert (proof["num_steps"], proof["num_updates"], proof["batches per update"]) == (4, 2, 2)
    assert proof["plain_sha256"] == proof["accelerated_sha256"]
    assert proof["plain_counts"]["eager"] == 4
    assert {"command", "data", "device", "torch", "commit", "precision"} <= proof.keys()
    assert sorted(path.name for path in Path().iterdir()) == ["own.yaml", "proof"]


def test_prove_names_a_planted_fault(data_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["prove", "--config", "detect", f"--data.data_root={data_root}", *TINY]
    assert main([*argv, "--steps=2", "--fault=neck.out3.split.act", "--json=p.json"]) == 1
    assert "* where it arises: forward: neck.out3.split.act (SiLU)" in capsys.readouterr().out
    failure = json.loads(Path("p.json").read_text("utf-8"))["failure"]
    assert failure["location"]["stage"] == "forward"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--steps=0"], "steps: expected at least 1"),
        (["--steps=many"], "many"),
        (["--trainer.devices=2"], "expected one device"),
        (["--model.speed.capture_step=true"], "speed.capture_step cannot be honoured: the device is cpu"),
        (["--fault=nowhere"], "expected 'update' or a module"),
        (["--model.sped=1"], "model.sped"),
    ],
)
def test_wrong_use_of_prove_is_one_line(
    flags: list[str], message: str, data_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prove", "detect", f"--data.data_root={data_root}", *TINY, *flags]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert message in lines[0]


@pytest.mark.parametrize(("difference", "code"), [(None, 0), ("B1 differs from A1: step 1, loss", 1)])
def test_pair_gives_each_side_its_flags(
    difference: str | None, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []

    def measure_pair(flags_a: list[str], flags_b: list[str], num_pairs: int) -> PairResult:
        seen.append((flags_a, flags_b, num_pairs))
        runs = tuple(
            FitRun(name, 1.0, 2.0, None, None, dict.fromkeys(pair.COMPARED, "0"), "", "cpu") for name in ("A1", "B1")
        )
        return PairResult({"A": (), "B": ()}, runs, {**dict.fromkeys(pair.COMPARED), "losses": difference})

    monkeypatch.setattr(pair, "measure_pair", measure_pair)
    assert (
        main(["pair", "a.yaml", "b.yaml", "--data.data_root=x", "--pairs=2", "--b", "--trainer.max_epochs=1 --c 2"])
        == code
    )
    assert seen == [
        (
            ["--data.data_root=x", "--config", "a.yaml"],
            ["--data.data_root=x", "--config", "b.yaml", "--trainer.max_epochs=1", "--c", "2"],
            2,
        )
    ]
    assert (difference or "equal in all 2 runs") in capsys.readouterr().out


def test_pair_says_what_a_failed_fit_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def measure_pair(*_: object) -> PairResult:
        raise FitFailedError("fit A1 ended with exit code 2")

    monkeypatch.setattr(pair, "measure_pair", measure_pair)
    assert main(["pair", "--data.data_root=x", "--a=--c=1"]) == 1
    assert capsys.readouterr().err == "error: fit A1 ended with exit code 2\n"
    assert main(["pair", "a.yaml"]) == 2


def test_pair_shows_no_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pair", "--print_config", "--a=--model.accumulate=2"]) == 2
    assert "ask `lucid-yolo fit` with the flags of a side" in capsys.readouterr().err


@pytest.fixture
def threads() -> Iterator[None]:
    """Measuring a loader sets the process up like one of its workers."""
    before = torch.get_num_threads(), cv2.getNumThreads()
    yield
    torch.set_num_threads(before[0])
    cv2.setNumThreads(before[1])


@pytest.mark.usefixtures("threads")
def test_step_and_loader_report(data_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["step", "--device=cpu", "--image_size=64", "--batch_sizes=1", "--capacity=[64,256]", "--num_steps=1"]
    assert main([*argv, "--report=step.md"]) == 0
    assert "| 1 | 256 |" in Path("step.md").read_text("utf-8")
    argv = ["loader", f"--data_root={data_root}", "--image_size=64", "--num_workers=0", "--max_images=4"]
    assert main([*argv, "--batch_size=2", "--repeats=1", "--json=loader.json"]) == 0
    assert "| decode |" in capsys.readouterr().out
    assert json.loads(Path("loader.json").read_text("utf-8"))["num_images"] == 4
