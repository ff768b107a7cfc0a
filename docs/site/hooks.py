"""Put the pages of experiments/ into the site, lead links to them there, and keep numbers in tables
on one line."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
SUFFIXES = {".md", ".png"}
_SPACE = re.compile(
    r"(?<=[\d.]) (?=±)|(?<=±) (?=\d)|(?<=\d) (?=to [−+]?\d)|(?<=\d\u00a0to) (?=[−+\d])"
)
_LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)]*)?\))")


def on_files(files: Files, config: Any) -> Files:
    """Add experiments/**.md and their pictures below ``experiments/``."""
    for path in sorted((ROOT / "experiments").rglob("*")):
        if path.suffix in SUFFIXES:
            files.append(
                File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path))
            )
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Rewrite links by their place in the repository, where docs/ and experiments/ lie side by
    side."""
    source = page.file.src_uri
    if source.startswith("experiments/results/"):
        page.meta["search"] = {"exclude": True}  # tables of numbers would bury the guides
    here = posixpath.dirname(source if source.startswith("experiments/") else f"docs/{source}")
    site = posixpath.dirname(source)

    def moved(match: re.Match[str]) -> str:
        before, target, after = match.groups()
        place = posixpath.normpath(posixpath.join(here, target))
        crosses = place.startswith("experiments/") != source.startswith("experiments/")
        if "://" in target or not crosses or Path(place).suffix not in SUFFIXES:
            return match[0]
        return before + posixpath.relpath(place.removeprefix("docs/"), site or ".") + after

    lines = _LINK.sub(moved, markdown).split("\n")
    return "\n".join(_unbroken(line) if line.startswith("|") else line for line in lines)


def _unbroken(line: str) -> str:
    """``1.0 ± 0.2`` and ``−0.3 to +0.3`` with spaces that do not break."""
    return _SPACE.sub("\u00a0", _SPACE.sub("\u00a0", line))
