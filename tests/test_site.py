"""The site builds strictly, opens from the disk, asks for nothing outside, and its search finds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from browser import Browser

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[1]
PAGES = [
    "index.html",
    "quickstart.html",
    "recipes.html",
    "commands.html",
    "api/lucid_yolo.html",
    "notebooks/train.html",
]
OUTSIDE = re.compile(
    r"<(?:script|img|iframe|link rel=.?(?:stylesheet|preload|preconnect).?)\s[^>]*(?:src|href)=.?https?:"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser((400, 800)) as opened:
        yield opened


def test_no_page_names_a_file_outside(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    assert [str(page.relative_to(site)) for page in pages if OUTSIDE.search(page.read_text("utf-8"))] == []
    assert OUTSIDE.search('<script src="https://example.org/x.js">')


@pytest.mark.parametrize("page", PAGES)
def test_a_page_opens_from_the_disk_and_fits_a_phone(site: Path, browser: Browser, page: str) -> None:
    browser.errors.clear()
    browser.open(site / page)
    assert browser.errors == []
    assert browser.evaluate("document.documentElement.scrollWidth") == 400
    assert "<!-- table" not in (site / page).read_text("utf-8")


def test_search_finds_without_a_server(site: Path, browser: Browser) -> None:
    browser.errors.clear()
    browser.open(site / "index.html")
    box = "document.querySelector('.md-search__input')"
    browser.evaluate(f"document.querySelector('#__search').click(); {box}.focus(); {box}.value = 'checkpoint_every'")
    browser.evaluate(f"{box}.dispatchEvent(new KeyboardEvent('keyup', {{bubbles: true}}))")
    browser.wait("document.querySelectorAll('.md-search-result__item').length > 0", 20)
    found = browser.evaluate("[...document.querySelectorAll('.md-search-result__link')].map(a => a.href).join(' ')")
    assert "training.html" in found
    assert browser.errors == []


def test_a_notebook_is_there_to_read_and_to_download(site: Path, browser: Browser) -> None:
    browser.open(site / "notebooks" / "train.html")
    assert "result.metrics[" in browser.text()
    assert "Draws a small data set" in browser.text()
    assert sorted(p.name for p in (site / "notebooks").glob("*.ipynb")) == sorted(
        f"{p.stem}.ipynb" for p in (ROOT / "notebooks").glob("*.py")
    )
