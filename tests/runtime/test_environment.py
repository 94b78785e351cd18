"""What stands beside every figure."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from lucid_yolo.runtime.environment import commit

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package in a checkout that does not know it yet."""
    package = tmp_path / "project" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    git(tmp_path / "project", "init", "--quiet")
    git(tmp_path / "project", "commit", "--quiet", "--allow-empty", "--message", "none of the package")
    return package


def test_commit_is_that_of_the_packages_own_checkout(package: Path) -> None:
    assert commit(package) == "unknown", "installed inside the checkout of another project"
    git(package, "add", ".")
    git(package, "commit", "--quiet", "--message", "the package")
    head = git(package, "rev-parse", "HEAD")
    assert commit(package) == head
    (package / "__init__.py").write_text("x = 1\n")
    assert commit(package) == f"{head} with changes"


def test_there_is_no_commit_outside_a_checkout(tmp_path: Path) -> None:
    assert commit(tmp_path) == "unknown"
