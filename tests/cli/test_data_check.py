"""``lucid-data check`` and ``convert``: exit codes, files, messages."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from faulty_roots import make_coco, make_faulty
from lucid_yolo.cli.data import main
from lucid_yolo.data.dataset import open_split


def test_clean_set_exits_zero_and_writes_what_was_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, report, sheet = make_coco(tmp_path / "set"), tmp_path / "out/report.json", tmp_path / "out/sheet.png"
    arguments = ["check", "--data_root", str(root), "--json", str(report), "--sheet", str(sheet)]
    assert main([*arguments, "--image_size", "64"]) == 0
    assert json.loads(report.read_text(encoding="utf-8"))["is_clean"] is True
    with Image.open(sheet) as opened:
        assert opened.width > 64
    printed = capsys.readouterr().out
    assert "class traffic light" in printed
    assert "no findings" in printed


def test_errors_exit_one_with_valid_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, report = make_faulty(tmp_path / "set"), tmp_path / "report.json"
    assert main(["check", "--data_root", str(root), "--json", str(report)]) == 1
    assert json.loads(report.read_text(encoding="utf-8"))["num_errors"] == 3
    assert "ERROR" in capsys.readouterr().out


def test_warnings_alone_exit_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = make_faulty(tmp_path / "set")
    assert main(["check", "--data_root", str(root), "--split", "val"]) == 0
    assert "WARNING" in capsys.readouterr().out


def test_fix_exits_with_the_code_of_the_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, report = make_faulty(tmp_path / "set"), tmp_path / "report.json"
    arguments = ["check", "--data_root", str(root), "--fix", str(tmp_path / "mended"), "--json", str(report)]
    assert main(arguments) == 0
    content = json.loads(report.read_text(encoding="utf-8"))
    assert (content["num_errors"], content["after_fix"]["num_errors"]) == (3, 0)
    assert main(["check", "--data_root", str(tmp_path / "mended")]) == 0
    assert main(arguments) == 2
    assert "new or empty" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["check", "convert"])
def test_missing_root_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    more = ["--to", "yolo", "--out", str(tmp_path / "out")] if command == "convert" else []
    assert main([command, "--data_root", str(tmp_path / "gone"), *more]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "found nothing at" in error


def test_convert_writes_links_and_says_what_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, report = make_coco(tmp_path / "set"), tmp_path / "report.json"
    arguments = ["--data_root", str(root), "--to", "yolo", "--out", str(tmp_path / "out"), "--json", str(report)]
    assert main(["convert", *arguments, "--link"]) == 0
    assert "4 lost" in capsys.readouterr().out
    assert json.loads(report.read_text(encoding="utf-8"))["num_ignored_lost"] == 4
    assert open_split(tmp_path / "out", "train").records[0].path.endswith("images/train/0.png")
    assert (tmp_path / "out/images/train/0.png").is_symlink()


@pytest.mark.parametrize("command", ["check", "convert", "download", "demo"])
def test_help_is_quick(command: str) -> None:
    code = f"from lucid_yolo.cli.data import main; main(['{command}', '--help'])"
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True)
    assert time.perf_counter() - started < 5
    assert f"lucid-data {command}" in done.stdout
    assert not [name for name in ("torch", "cv2", "lightning", "PIL") if f"| {name}\n" in done.stderr]
