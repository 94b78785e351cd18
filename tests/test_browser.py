"""The browser of the tests: a page that works, one that throws, one that asks for something outside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from browser import Browser, PageError

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser((320, 200)) as opened:
        yield opened


@pytest.fixture(autouse=True)
def no_errors_yet(browser: Browser) -> None:
    browser.errors.clear()


def write_page(folder: Path, body: str) -> Path:
    path = folder / "page.html"
    path.write_text(f"<!doctype html><meta charset=utf-8><body style='margin:0;background:#00ff00'>{body}</body>")
    return path


def test_text_picture_and_chosen_file(browser: Browser, tmp_path: Path) -> None:
    script = "addEventListener('change', async e => { p.textContent = await e.target.files[0].text() })"
    page = write_page(tmp_path, f"<p id=p>écoute</p><input type=file><script>{script}</script>")
    browser.open(page)
    assert browser.text().strip() == "écoute"
    browser.choose_files("input", [page])
    browser.wait("p.textContent.startsWith('<!doctype')")
    browser.screenshot(tmp_path / "page.png")
    pixels = np.asarray(Image.open(tmp_path / "page.png").convert("RGB"))
    assert pixels.shape == (200, 320, 3)
    assert pixels[-1, -1].tolist() == [0, 255, 0]
    assert browser.errors == []


def test_what_goes_wrong_on_a_page_is_seen(browser: Browser, tmp_path: Path) -> None:
    script = "console.error('first'); setTimeout(() => { throw new Error('second') }); fetch('http://192.0.2.1/')"
    browser.open(write_page(tmp_path, f"<p>here</p><script>{script}</script>"))
    browser.evaluate("new Promise(done => setTimeout(done, 200))")
    seen = "\n".join(browser.errors)
    assert all(word in seen for word in ("first", "second", "ERR_PROXY_CONNECTION_FAILED"))
    with pytest.raises(PageError, match=r"never held.*here"):
        browser.wait("false", timeout_s=0.1)
    with pytest.raises(PageError, match="nowhere is not defined"):
        browser.evaluate("nowhere + 1")
