"""A page of made-up numbers: everything is escaped, nothing is outside of it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from lucid_yolo.viz import plot_confusion
from lucid_yolo.viz.report import MAX_PICTURE_BYTES, Card, Drawing, Picture, Report, Section, Table, _jpeg, write_report

EVIL = '</script></svg><script>alert("1")</script><img src=x onerror=alert(1)>'


class Page(HTMLParser):
    """Collects tags, references and cells."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.handlers: list[str] = []
        self.cells: list[str] = []
        self._is_in_cell = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [str(v) for k, v in attrs if k in {"src", "href", "xlink:href", "action", "data"}]
        self.handlers += [k for k, _ in attrs if k.startswith("on")]
        if tag in {"td", "th"}:
            self.cells.append("")
            self._is_in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in {"td", "th"}:
            self._is_in_cell = False

    def handle_data(self, data: str) -> None:
        if self._is_in_cell:
            self.cells[-1] += data


@pytest.fixture
def path(tmp_path: Path) -> Path:
    rows = ((EVIL, 1200, 0.5, None), ("b", 7, -0.00001, 0.25))
    section = Section(
        EVIL,
        EVIL,
        (Table(("name", "count", EVIL, "d"), rows, EVIL, is_sortable=True), Table((), (("key", EVIL),))),
        (Drawing(plot_confusion(np.eye(2, dtype=np.int64), [EVIL]), EVIL),),
        (Picture(np.full((30, 40, 3), 90, np.uint8), EVIL),),
        {EVIL: EVIL},
    )
    write_report(Report(EVIL, EVIL, (Card(EVIL, EVIL, EVIL),), (section,)), tmp_path / "new" / "report.html")
    return tmp_path / "new" / "report.html"


def test_texts_of_users_stay_texts(path: Path) -> None:
    page = Page()
    page.feed(path.read_text("utf-8"))
    assert page.tags.count("script") == 1
    assert page.tags.count("img") == 1
    assert page.handlers == []
    assert page.cells[:4] == ["name", "count", EVIL, "d"]
    assert page.cells[4:8] == [EVIL, "1,200", "0.5000", "–"]
    assert page.cells[8:12] == ["b", "7", "0.0000", "0.2500"]


def test_nothing_outside_is_referred_to(path: Path) -> None:
    page, text = Page(), path.read_text("utf-8")
    page.feed(text)
    assert page.references
    assert all(reference.startswith(("data:", "#")) for reference in page.references)
    assert not re.search(r"https?:|@import|url\((?!#)", text)


def test_the_same_report_is_the_same_bytes(tmp_path: Path) -> None:
    for name in ("1.html", "2.html"):
        drawing = Drawing(plot_confusion(np.eye(2, dtype=np.int64), ["a"]))
        write_report(Report("a", "", (), (Section("s", drawings=(drawing,)),)), tmp_path / name)
    assert (tmp_path / "1.html").read_bytes() == (tmp_path / "2.html").read_bytes()


def test_pictures_stay_small(rng: np.random.Generator) -> None:
    noise = rng.integers(0, 256, (320, 480, 3), dtype=np.uint8)
    assert len(_jpeg(noise)) <= MAX_PICTURE_BYTES
    assert len(_jpeg(np.full((320, 480, 3), 90, np.uint8))) < 5000
