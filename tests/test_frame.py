"""The promises of the repository itself: a light import, frozen names, no dead links, no machine's paths."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

import lucid_yolo
from lucid_yolo.structures import Batch, Prediction

ROOT = Path(__file__).parents[1]
PUBLIC_NAMES = ["Results", "__version__", "load", "train"]
SKIPPED_FOLDERS = {"runs", "demo", "build", "dist", "__pycache__", "node_modules"}
MACHINE_PATH = re.compile(r"(?<![\w.~-])(?:/(?:home|root|work|tmp|mnt|scratch|Users)/\w|[A-Z]:\\\\?Users)")
MARKDOWN_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
DECISIONS = ROOT / "docs" / "decisions"
IMPORT_PROBE = """
import json, sys, time
started = time.perf_counter()
import lucid_yolo
seconds = time.perf_counter() - started
print(json.dumps({"seconds": seconds, "modules": sorted({name.split(".")[0] for name in sys.modules})}))
"""


def repository_files() -> list[Path]:
    """Return the tracked and the not yet tracked files; outside a git checkout every file but build products."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        listed = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if not _is_build_product(path)]
    return sorted(ROOT / name for name in listed if name and (ROOT / name).is_file())


def _is_build_product(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    return any(part in SKIPPED_FOLDERS or (part.startswith(".") and part != ".ci") for part in parts[:-1])


def _text(path: Path) -> str:
    """Return the text of a file, nothing for a binary one."""
    raw = path.read_bytes()
    return "" if b"\0" in raw else raw.decode("utf-8")


def test_import_is_light_and_quick() -> None:
    probes = [
        json.loads(subprocess.run([sys.executable, "-c", IMPORT_PROBE], capture_output=True, check=True).stdout)
        for _ in range(3)
    ]
    assert not {"torch", "lightning", "cv2", "numpy", "matplotlib"} & set(probes[0]["modules"])
    assert min(probe["seconds"] for probe in probes) < 0.3


def test_public_names_are_frozen() -> None:
    assert sorted(lucid_yolo.__all__) == sorted(PUBLIC_NAMES)


@pytest.mark.parametrize("name", PUBLIC_NAMES)
def test_public_name_resolves(name: str) -> None:
    assert getattr(lucid_yolo, name) is not None


def test_version_is_the_installed_one() -> None:
    assert lucid_yolo.__version__ == importlib.metadata.version("lucid-yolo")


def test_no_file_names_a_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in repository_files()
        for number, line in enumerate(_text(path).splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "is_machine_path"),
    [
        (f"{'/'}home/ann/data", True),
        (f'"{"/"}tmp/x"', True),
        (f"see {'/'}work/sets", True),
        ("C:" + r"\Users\ann", True),
        ("https://example.org/home/page", False),
        ("~/work/sets", False),
        ("tests/tmp/x", False),
    ],
)
def test_machine_path_pattern(text: str, is_machine_path: bool) -> None:
    assert bool(MACHINE_PATH.search(text)) is is_machine_path


def test_every_link_in_the_documentation_leads_somewhere() -> None:
    dead = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in repository_files()
        if page.suffix == ".md"
        for target in MARKDOWN_LINK.findall(_text(page))
        if not re.match(r"[a-z]+:|#", target) and not (page.parent / target.split("#")[0]).exists()
    ]
    assert not dead, "\n".join(dead)


def test_the_decision_index_lists_every_page() -> None:
    listed = set(MARKDOWN_LINK.findall((DECISIONS / "README.md").read_text("utf-8")))
    pages = {page.name for page in DECISIONS.glob("[0-9]*.md")}
    assert pages
    assert pages == {name for name in listed if name[0].isdigit()}


@pytest.mark.parametrize("page", sorted(DECISIONS.glob("[0-9]*.md")), ids=lambda page: page.stem)
def test_a_decision_says_why_what_and_what_follows(page: Path) -> None:
    text = page.read_text("utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]
    assert re.match(rf"# {page.stem[:4]} · \S", text)


def test_the_readme_shows_every_folder_of_the_package() -> None:
    tree = (ROOT / "README.md").read_text("utf-8").split("src/lucid_yolo/\n")[1].split("tests/")[0]
    shown = set(re.findall(r"^  (\w+)/ ", tree, re.MULTILINE))
    package = ROOT / "src" / "lucid_yolo"
    assert shown == {path.relative_to(package).parts[0] for path in repository_files() if path.parent.parent == package}


def test_the_licence_is_the_whole_apache_text() -> None:
    text = (ROOT / "LICENSE").read_text("utf-8")
    assert text.lstrip().startswith("Apache License")
    assert "APPENDIX: How to apply the Apache License to your work." in text


@pytest.mark.skipif(os.environ.get("LUCID_YOLO_SHAPE_CHECKS") == "0", reason="turned off by LUCID_YOLO_SHAPE_CHECKS")
def test_shapes_are_checked_under_test() -> None:
    with pytest.raises(Exception, match="class_logit"):
        Prediction(box_ltrb_cell=torch.zeros(2, 8, 4), class_logit=torch.zeros(2, 9, 3))


def _blank_batch(batches: list[int]) -> Batch:
    return Batch.allocate(batches[0], image_size_px=(32, 32), capacity=64)


def test_shape_checks_survive_worker_processes() -> None:
    loader = DataLoader([2, 3], batch_size=1, num_workers=1, collate_fn=_blank_batch)
    assert [len(batch) for batch in loader] == [2, 3]


def test_the_network_is_out_of_reach() -> None:
    with pytest.raises(RuntimeError, match="without one"):
        socket.create_connection(("192.0.2.1", 80), timeout=1)
