import subprocess
import sys
from pathlib import Path

import pytest

from lucid_yolo.cli.data import main
from lucid_yolo.data import download

SMALL = ["--num_train", "2", "--num_val", "1", "--image_size_px", "64", "--object_px", "4", "16"]


def demo(name: str, root: Path) -> int:
    return main(["demo", "--name", name, "--data_root", str(root), *SMALL])


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> Path:
        raise download.DownloadError("pip could not fetch deepforest==2.1.0: no network")

    monkeypatch.setattr(download, "_download_wheel", refuse)


def test_shapes_are_written_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo("shapes", tmp_path / "set") == 0
    assert "written" in capsys.readouterr().out
    assert demo("shapes", tmp_path / "set") == 0
    assert "there already" in capsys.readouterr().out
    assert len(list((tmp_path / "set/images/train").iterdir())) == 2


def test_trees_fall_back_to_shapes_with_a_notice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], offline: None
) -> None:
    assert demo("trees", tmp_path / "set") == 0
    printed = capsys.readouterr().out
    assert "no network" in printed
    assert "drawing `shapes` instead" in printed
    assert "0: circle" in (tmp_path / "set/data.yaml").read_text()
    assert demo("trees", tmp_path / "set") == 0
    assert "from an earlier run" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["shapes", "trees"])
def test_others_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], offline: None, name: str) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    assert demo(name, tmp_path) == 2
    assert "with other files" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_wrong_values_and_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--name", "shapes", "--data_root", str(tmp_path / "set"), "--object_px", "9", "4"]) == 2
    assert "object_px: expected" in capsys.readouterr().err
    for arguments in (["demo", "--name", "cats", "--data_root", "x"], ["demo"], []):
        assert main(arguments) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_options_may_come_from_a_file(tmp_path: Path) -> None:
    config = tmp_path / "demo.yaml"
    sizes = "num_train: 3\nnum_val: 1\nimage_size_px: 64\nobject_px: [4, 16]\n"
    config.write_text(f"name: shapes\ndata_root: {tmp_path / 'set'}\n{sizes}")
    assert main(["demo", "--config", str(config), "--num_train", "1"]) == 0
    assert len(list((tmp_path / "set/images/train").iterdir())) == 1


def test_help_imports_neither_torch_nor_opencv() -> None:
    code = (
        "import sys; from lucid_yolo.cli.data import build_parser; build_parser().format_help(); "
        "sys.exit(bool({'torch', 'cv2', 'lightning', 'PIL'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
