"""JSON for people and tools: UTF-8, no NaN, one indent."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def to_json(content: Any, is_compact: bool = False) -> str:
    """Return plain values as JSON that every reader takes.

    Args:
        content: Mappings, sequences, texts, finite numbers, bools and None. Of a file name that is no UTF-8 the odd
            bytes are escaped.
        is_compact: Everything in one line, for long lists of rows.

    Raises:
        ValueError: A number is not finite.
    """
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, indent=None if is_compact else 2)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def write_json(path: str | Path, content: Any, is_compact: bool = False) -> None:
    """Write a file of :func:`to_json`; who reads it meanwhile finds the old content or the new, whole.

    Args:
        path: File; missing folders are made. A link or a device such as ``/dev/stdout`` is written through.
        content: As of :func:`to_json`.
        is_compact: As of :func:`to_json`.

    Raises:
        ValueError: A number is not finite; nothing is written.
    """
    path = Path(path)
    text = to_json(content, is_compact) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() or (path.exists() and not path.is_file()):
        path.write_text(text, encoding="utf-8")
        return
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
