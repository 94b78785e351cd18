"""Fonts that can draw a text: the one matplotlib ships, else one that the system has. Nothing is downloaded."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import matplotlib
from matplotlib.ft2font import FT2Font

# Covers every code point with a box that says which script is missing.
PLACEHOLDER_FONT = "Last Resort"


def default_font_path() -> str:
    """Return the file of DejaVu Sans inside matplotlib."""
    return str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf")


def drawable_text(text: str, substitute: str) -> tuple[str, str]:
    """Return (text, font file) such that the font has a glyph for every character.

    Args:
        text: What should be drawn; line breaks and tabs become blanks.
        substitute: ASCII text for the case that no font on this machine has the glyphs.
    """
    text = " ".join(text.split())
    path = _covering_font(frozenset(text))
    return (text, path) if path else (substitute, default_font_path())


@lru_cache(maxsize=4096)
def _covering_font(characters: frozenset[str]) -> str | None:
    codes = {ord(c) for c in characters}
    if codes <= _coverage(default_font_path()):
        return default_font_path()
    # Imported late: it reads the list of system fonts, which few users need.
    from matplotlib.font_manager import fontManager

    fonts = sorted((f.weight != 400, f.style != "normal", f.name, f.fname) for f in fontManager.ttflist)
    paths = (path for _, _, name, path in fonts if not name.startswith(PLACEHOLDER_FONT))
    return next((path for path in paths if codes <= _coverage(path)), None)


@lru_cache(maxsize=1024)
def _coverage(path: str) -> frozenset[int]:
    try:
        return frozenset(FT2Font(path).get_charmap())
    except (OSError, RuntimeError):  # listed, but gone or unreadable
        return frozenset()
