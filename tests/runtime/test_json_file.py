from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path

import pytest

import lucid_yolo
from lucid_yolo.runtime.json_file import to_json, write_json

CONTENT = {"names": ["für", "犬"], "values": [1, 0.1, None, True]}


@pytest.mark.parametrize("is_compact", [False, True])
def test_what_is_written_reads_back(tmp_path: Path, is_compact: bool) -> None:
    path = tmp_path / "new" / "a.json"
    write_json(path, CONTENT, is_compact)
    text = path.read_text("utf-8")
    assert json.loads(text) == CONTENT
    assert "für" in text
    assert text.endswith("}\n")
    assert (text.count("\n") == 1) is is_compact


def test_a_file_name_that_is_no_utf8_reads_back(tmp_path: Path) -> None:
    name = os.fsdecode(b"picture_\xe9.jpg")
    write_json(tmp_path / "a.json", [name])
    assert json.loads((tmp_path / "a.json").read_text("utf-8")) == [name]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_json_leaves_the_old_file(tmp_path: Path, value: float) -> None:
    path = tmp_path / "a.json"
    write_json(path, CONTENT)
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, [value])
    assert json.loads(path.read_text("utf-8")) == CONTENT


def test_a_reader_never_sees_half_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write_text = tmp_path / "a.json", Path.write_text
    write_json(path, CONTENT)

    def break_off(self: Path, text: str, **options: str) -> None:
        write_text(self, text[:5], **options)
        assert json.loads(path.read_text("utf-8")) == CONTENT
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_text", break_off)
    with pytest.raises(OSError, match="no space"):
        write_json(path, [1])
    assert json.loads(path.read_text("utf-8")) == CONTENT
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to(tmp_path / "a.json")
    write_json(tmp_path / "link.json", CONTENT)
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "a.json").read_text("utf-8")) == CONTENT


def test_a_device_is_written_through() -> None:
    write_json("/dev/null", CONTENT)
    assert Path("/dev/null").is_char_device()


def test_no_other_place_writes_json_files() -> None:
    package = Path(lucid_yolo.__file__).parent
    written = re.compile(r"(write_text|\.write|print)\([^\n]*json\.dumps|json\.dump\(")
    places = {str(p.relative_to(package)) for p in package.rglob("*.py") if written.search(p.read_text("utf-8"))}
    assert places == {"data/made_root.py", "data/transfer.py"}  # notes that the layer below leaves for itself


def test_compact_rows_are_one_line_each() -> None:
    assert to_json([{"a": 1}, {"a": 2}], is_compact=True) == '[{"a": 1}, {"a": 2}]'
