"""The page of ANML's Table 2, as Markdown and as one HTML file, and its tables in a document."""

from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from vicinal.bench.excerpt import place, read_document
from vicinal.bench.linear_contestants import FOLDS
from vicinal.bench.linear_plan import Plan
from vicinal.bench.linear_sets import DIRECTIONS, LEAST, TEST_SHARE
from vicinal.bench.linear_table import Cell, Reading, lacking, reading
from vicinal.bench.linear_units import FIT_ROWS, FIT_STEPS, LARGE, RACED, SEARCH_STEPS, SUBSAMPLE
from vicinal.bench.page import grid, plain
from vicinal.bench.results import Line
from vicinal.files import write_text

ABOUT = (
    "Accuracy of k nearest neighbours in per cent, mean ± standard deviation over random splits; in bold the best and "
    "all that the corrected resampled t-test (Nadeau and Bengio 2003, 95 %) does not tell from it. A number in "
    "brackets is that of splits, where a method has fewer."
)
HEADINGS = ("k by cross-validation", "The paper's reading: the best k on the test part")
FLATTERS = (
    "By the paper's reading, the best k in 1 .. 40 on the test part itself, which flatters every method. Below each "
    "set stand the means that the paper prints, of 30 splits of its own; it has neither euclidean nor lda."
)


def both_readings(lines: Sequence[Line], plan: Plan) -> tuple[Reading, Reading]:
    """By cross-validation, and as the paper reads it."""
    return reading(lines, plan, "accuracy"), reading(lines, plan, "oracle")


def tables(lines: Sequence[Line], plan: Plan) -> str:
    """Both readings as Markdown, the one of the paper below."""
    ours, paper = ("\n".join(_markdown(found)) for found in both_readings(lines, plan))
    return f"{ours}\n\n{FLATTERS}\n\n{paper}"


def write_pages(lines: Sequence[Line], plan: Plan, folder: Path) -> tuple[Path, Path]:
    """Write ``TABLE.md`` and ``TABLE.html``, and return them."""
    text, page = folder / f"{plan.name}.md", folder / f"{plan.name}.html"
    write_text(text, markdown(lines, plan))
    write_text(page, html(lines, plan))
    return text, page


def markdown(lines: Sequence[Line], plan: Plan) -> str:
    """Both tables, what they lack, and how they were measured."""
    parts = [f"# {plan.title}", "", ABOUT, "", tables(lines, plan), ""]
    if lacks := lacking(lines, plan):
        parts += ["## What is missing", *(f"- {plain(sentence)}" for sentence in lacks), ""]
    parts += ["## How it was measured", *(f"- {sentence}" for sentence in protocol(plan)), "", f"`{plan.command}`:"]
    parts += ["", *(f"- {plain(sentence)}" for sentence in origins(lines))]
    return "\n".join(parts) + "\n"


def html(lines: Sequence[Line], plan: Plan) -> str:
    """The same for a browser; whatever comes from results is escaped."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_shipped("vicinal.bench", "linear.html.j2")).render(
        css=Markup(_shipped("vicinal.reports", "page.css")),
        title=plan.title,
        about=ABOUT,
        readings=list(zip(HEADINGS, ("", FLATTERS), both_readings(lines, plan), strict=True)),
        lacking=lacking(lines, plan),
        protocol=protocol(plan),
        command=plan.command,
        origins=origins(lines),
    )


def protocol(plan: Plan) -> list[str]:
    """How a unit is measured, in sentences."""
    return [
        f"Each split tests a random {TEST_SHARE:.0%} of a set. Scaling, and PCA to {DIRECTIONS} directions where there "
        f"are more features, are fitted on the training part. Classes with fewer than {LEAST} samples are left out.",
        f"Parameters and k are chosen by {FOLDS}-fold cross-validation on the training part, on a stratified "
        f"{SUBSAMPLE:,} rows of it where it has more than {LARGE:,}. Of a method's grid at most {plan.budget} points "
        f"are drawn; above {RACED} training rows {plan.raced}, which race: all on one fold, the best third on three, "
        "the best third of those on all.",
        "Grids are the paper's where it names one. NCA has no dial, so its start and tolerance are tuned; GMML uses "
        "all pairs; RVML is the linear form with class-based virtual points.",
        f"Iterative methods may take {SEARCH_STEPS} steps of their own kind in the search, and {FIT_STEPS} or their "
        "own default, whichever is more, in the fit that follows. The first limit hurts LMNN's choice of parameters: "
        "it needs some 1,000 steps where LANML needs 20.",
        f"The last fit uses a stratified {FIT_ROWS:,} rows at most; neighbours are looked for among all training rows.",
    ]


def origins(lines: Sequence[Line]) -> list[str]:
    """Code and packages of the units, those of most units first."""
    made = Counter(line["versions"] for line in lines if "versions" in line)
    return [f"{count} units: {versions}" for versions, count in made.most_common()] or ["Nothing has run yet."]


def write_into(document: Path, lines: Sequence[Line], plan: Plan) -> None:
    """Write both tables between their markers; the rest of the document stays byte for byte."""
    text = read_document(document)
    start, end = place(text, plan.name, document)
    write_text(document, f"{text[:start]}\n{tables(lines, plan)}\n{text[end:]}")


def _markdown(found: Reading) -> Iterator[str]:
    rows = list[list[str]]()
    for row in found.rows:
        rows.append([row.label, row.splits, *map(_marked, row.cells)])
        rows += [["*the paper*", "", *row.printed]] if row.printed else []
    yield from grid(["set", "splits", *found.methods], rows)
    yield ""
    yield from found.sentences


def _marked(cell: Cell) -> str:
    return f"{f'**{cell.score}**' if cell.best else cell.score} {cell.remark}".rstrip()


def _shipped(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")
