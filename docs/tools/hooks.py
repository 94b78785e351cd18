"""What the site has beyond the pages of ``docs/``: MkDocs calls the functions named ``on_*``.

The home page is README.md; files of the repository that a page links to become pages; notebooks are converted; markers
such as ``<!-- table: recipes -->`` are replaced by tables made from the code.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
import tables

ROOT = Path(__file__).parents[2]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Markdown files outside docs/ that are pages, by their place in the repository."""
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
MARKER = re.compile(r"^<!-- table: (\w+)(?: (.+?))? -->$", re.MULTILINE)
LANGUAGES = {".py": "python", ".sh": "bash", ".yaml": "yaml", ".toml": "toml"}


def place_of(path: str) -> str:
    """Return where a file of the repository stands in the site, as a source name.

    Args:
        path: Relative to the repository.
    """
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("benchmarks/results/") and path.endswith(".md"):
        return path.replace("/results/", "/", 1)
    if path.startswith("notebooks/"):
        return path.removesuffix(".py") + ".md"
    return f"source/{path}.md"


def origin_of(place: str) -> str:
    """Return the file of the repository that a page is made from; the inverse of :func:`place_of`."""
    made = {target: source for source, target in PAGES.items()}
    if place in made:
        return made[place]
    if place.startswith("benchmarks/"):
        return place.replace("benchmarks/", "benchmarks/results/", 1)
    if place.startswith("notebooks/"):
        return place.removesuffix(".md") + ".py"
    if place.startswith("source/"):
        return place.removeprefix("source/").removesuffix(".md")
    return f"docs/{place}"


def linked_files(text: str, origin: str) -> list[str]:
    """Return the files of the repository that a page links to, relative to the repository.

    Args:
        text: Markdown.
        origin: The page's own place in the repository.
    """
    targets = [target.partition("#")[0] for _, target, _ in LINK.findall(FENCE.sub("", text))]
    paths = [posixpath.normpath(posixpath.join(posixpath.dirname(origin), t)) for t in targets if is_relative(t)]
    return [path for path in paths if (ROOT / path).is_file()]


def is_relative(target: str) -> bool:
    """Return whether a link leads to a file of the repository."""
    return bool(target) and not re.match(r"[a-z]+:|[#/]", target)


def relink(text: str, place: str, origin: str) -> str:
    """Return Markdown whose links lead to places of the site.

    Args:
        text: Markdown with links that are right in the repository.
        place: Where the page stands in the site.
        origin: Where it stands in the repository.
    """

    def replace(match: re.Match[str]) -> str:
        target, _, anchor = match[2].partition("#")
        if not is_relative(target):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
        if not (ROOT / path).is_file():
            return match[0]
        link = posixpath.relpath(place_of(path), posixpath.dirname(place) or ".")
        return f"{match[1]}{link}{'#' + anchor if anchor else ''}{match[3]}"

    pieces, last = [], 0
    for fence in FENCE.finditer(text):
        pieces += [LINK.sub(replace, text[last : fence.start()]), fence[0]]
        last = fence.end()
    return "".join([*pieces, LINK.sub(replace, text[last:])])


def source_page(path: str) -> str:
    """Return a page that shows a text file of the repository."""
    text = (ROOT / path).read_text(encoding="utf-8")
    language = LANGUAGES.get(PurePosixPath(path).suffix, "text")
    return f'# {path}\n\n``````{language} linenums="1"\n{text}\n``````\n'


def notebook_files(config: Any) -> list[File]:
    """Return a page and an ``.ipynb`` for every notebook."""
    import jupytext

    made = []
    for path in sorted((ROOT / "notebooks").glob("*.py")):
        notebook = jupytext.read(path)
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        page = re.sub(r"\A---\n.*?\n---\n+", "", jupytext.writes(notebook, fmt="md"), flags=re.DOTALL)
        title, _, rest = page.partition("\n")
        link = f"[Download as a notebook]({path.stem}.ipynb)"
        made.append(File.generated(config, f"notebooks/{path.stem}.md", content=f"{title}\n\n{link}\n{rest}"))
        content = jupytext.writes(notebook, fmt="ipynb")
        made.append(File.generated(config, f"notebooks/{path.stem}.ipynb", content=content))
    return made


def on_files(files: Files, config: Any) -> Files:
    """Add what is made: home, pages outside docs/, shown sources, notebooks."""
    for made in notebook_files(config):
        files.append(made)
    origins = [*PAGES, *(str(p.relative_to(ROOT)) for p in (ROOT / "benchmarks" / "results").glob("*.md"))]
    for origin in origins:
        files.append(File.generated(config, place_of(origin), content=(ROOT / origin).read_text(encoding="utf-8")))
    for file in list(files.documentation_pages()):
        for path in linked_files(file.content_string, origin_of(file.src_uri)):
            place = place_of(path)
            if place.startswith("source/") and files.get_file_from_path(place) is None:
                files.append(File.generated(config, place, content=source_page(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:  # noqa: ARG001
    """Lead links to places of the site and put tables in the place of their markers."""
    place = page.file.src_uri
    if place.startswith("source/"):
        page.meta.update({"search": {"exclude": True}, "hide": ["toc"]})
        return markdown
    if place == "index.md":
        page.meta["hide"] = ["navigation"]
    text = relink(markdown, place, origin_of(place))
    return MARKER.sub(lambda match: tables.TABLES[match[1]](*(match[2] or "").split()), text)
