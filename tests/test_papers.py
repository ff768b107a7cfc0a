"""The paper pages: their functions exist, their numbers are those of the results that they link,
their figures draw."""

import importlib
import re
from pathlib import Path
from runpy import run_path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "papers").glob("*.md"))
METHODS = [page for page in PAGES if page.stem != "when_hardness_helps"]
DIFFERENCE = re.compile(r"[+−]?\d+\.\d \([+−]?\d+\.\d to [+−]?\d+\.\d\)")
names = pytest.mark.parametrize("page", METHODS, ids=lambda page: page.stem)


def section(page: Path, title: str) -> str:
    found = re.search(
        rf"^## {title}\n(.*?)(?=^## |\Z)", page.read_text(encoding="utf-8"), re.S | re.M
    )
    assert found, f"{page.name} has no section {title!r}"
    return found.group(1)


def resolve(name: str) -> object:
    """The object of a dotted name, or an AttributeError."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    raise AttributeError(name)


@names
def test_the_functions_of_the_equations_exist(page):
    rows = [
        line
        for line in section(page, "Equations and functions").splitlines()
        if line.startswith("| ")
    ][1:]
    assert rows
    for row in rows:
        functions = re.findall(r"`(vicinal\.[\w.]+)`", row.rsplit("|", 2)[1])
        assert functions, row
        for name in functions:
            resolve(name)


@names
def test_the_files_that_a_page_names_exist(page):
    for name in re.findall(
        r"`((?:src|benchmarks|experiments)/[\w/.]+)`", page.read_text(encoding="utf-8")
    ):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_differences_on_a_page_are_those_of_its_sources(page):
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+/(?:results/[\w-]+|learning_curves)\.md)\)", text)
    sources = {page.parent / target for target in links}
    recorded = "\n".join(source.read_text(encoding="utf-8") for source in sources).replace("-", "−")
    for difference in DIFFERENCE.findall(text):
        mean, interval = difference.rstrip(")").split(" (")
        # Learning curves.
        found = difference in recorded or (
            f"| {interval} |" in recorded and f"{mean} ± " in recorded
        )
        assert found, f"{difference} is in none of {sorted(source.name for source in sources)}"


@pytest.mark.slow
def test_every_figure_can_be_drawn_anew(tmp_path):
    figures = run_path(str(ROOT / "docs" / "figures.py"))
    assert {f"{name}.svg" for name in figures["DRAWN"]} == {
        path.name for path in figures["FIGURES"].iterdir()
    }
    for name in figures["DRAWN"]:
        assert figures["draw"](name, tmp_path).stat().st_size > 10_000
