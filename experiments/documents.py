"""Write all tables of the pages anew from the results.

python experiments/documents.py

writes experiments/results/*.md, then the parts of docs/ and README.md between markers.
"""

import re
import sys
from functools import cache
from pathlib import Path

from vicinal.bench.page import markdown
from vicinal.bench.results import Store
from vicinal.bench.run import Bench, collect
from vicinal.bench.summary import Summary, summarize
from vicinal.bench.table import Budget, Table, load_tables
from vicinal.bench.tuning import tune_table
from vicinal.training.console import Console

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "results"
DOCUMENTS = FOLDER.parent / "docs"
WRITTEN = [
    *sorted(FOLDER.glob("*.md")),
    *sorted(DOCUMENTS.rglob("*.md")),
]  # what holds generated parts
COMMAND = re.compile(
    r"^`vicinal bench (\S+?)( --protocol \S+)?( --trials \d+)?( --folds \d+)? --seeds (\d+)`", re.M
)
# Columns that pages leave out, and rows that only the pages of headlines have.
RARELY_READ = re.compile(
    r"over classes|p \(Holm\)|detectable|held out|NMI|F1|Recall@(2|4|8|16|32)\b|in training"
)
PROJECTIONS = re.compile(r"\| (whitened )?PCA\b")
SPREAD = re.compile(r" ± [\d.]+")
MADE = re.compile(r"^(`vicinal bench [^`]*`): .*")
# The columns of `comparison`: what they are called, and the page they come from.
COMPARED = {
    "CUB-200": "headline-cub",
    "CUB-200 features, tuned": "headline-cub_features-tuned",
    "Glyphs": "headline-glyphs",
    "Omniglot": "headline-omniglot",
}


def files() -> list[Path]:
    """The files of this folder that define tables at their top level."""
    defined = re.compile(r"^TABLES? = ", re.M)
    return [
        path
        for path in sorted(FOLDER.glob("*.py"))
        if defined.search(path.read_text(encoding="utf-8"))
    ]


@cache
def tables() -> dict[str, Table]:
    """Every table of this folder, by name; their files are named from the root of the
    repository."""
    found = [table for path in files() for table in load_tables(str(path))]
    return {
        table.name: table.replace(file=f"experiments/{Path(table.file).name}") for table in found
    }


store = cache(lambda: Store(RESULTS))


def pages() -> dict[str, Path]:
    """The page of each table that a command has made, by the table's name."""
    found = sorted(RESULTS.glob("*.md"))
    return {path.stem: path for path in found if COMMAND.search(path.read_text(encoding="utf-8"))}


def summary(text: str) -> Summary:
    """The results of the command that a text names."""
    match = COMMAND.search(text)
    if match is None:
        raise ValueError("the text names no command")
    source, protocol, trials, folds, seeds = match.groups()
    file, _, name = source.partition("::")
    table = (
        tables()[name] if name else next(each for each in tables().values() if each.file == file)
    )
    table = table if protocol is None else table.under(protocol.split()[1])
    if trials:
        budget = Budget(int(trials.split()[1]), int(folds.split()[1]) if folds else 4)
        bench = Bench(RESULTS, RESULTS, Console())
        table = tune_table(table, budget, bench, recorded_only=True) or table
    return summarize(collect(table.replace(seeds=int(seeds)), store()))


def page(path: Path) -> str:
    """A page of the results made anew, without what is rarely read: `vicinal bench FILE --page`
    prints all columns, and the results hold their commits and machines."""
    found = summary(path.read_text(encoding="utf-8"))
    lines = markdown(found, pictured=path.with_suffix(".png").is_file()).splitlines()
    head = [cell.strip() for cell in next(filter(_is_row, lines), "").strip("|").split("|")]
    kept = [place for place, name in enumerate(head) if not RARELY_READ.search(name)]
    written = []
    for line in lines:
        cells = line.strip("|").split("|")
        if not _is_row(line):
            written.append(MADE.sub(r"\1", line))
        elif path.stem.startswith("headline") or not PROJECTIONS.match(line):
            cells = [
                SPREAD.sub("", cells[place]) if "MAP@R" in head[place] else cells[place]
                for place in kept
            ]
            written.append(f"|{'|'.join(cells)}|")
    return "\n".join(written) + "\n"


def _is_row(line: str) -> bool:
    return line.startswith("|")


def rows(text: str) -> list[list[str]]:
    """The cells of the first Markdown table of a text, its head first."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], *lines[2:])
    ]


def comparison() -> str:
    """Each method beside its baseline on several benchmarks: Recall@1, and the paired
    difference."""
    found = {}
    for title, name in COMPARED.items():
        head, *body = rows(pages()[name].read_text(encoding="utf-8"))
        score = head.index("Recall@1")
        versus = head.index("Recall@1 vs. baseline")
        found[title] = {cells[0].partition(";")[0]: (cells[score], cells[versus]) for cells in body}
    names = [name for name in next(iter(found.values())) if name not in ("PCA", "whitened PCA")]
    lines = [["Recall@1", *found], ["---"] * (len(found) + 1)]
    for name in names:
        cells = [column[name] for column in found.values()]
        lines.append(
            [name, *(value if not versus else f"{value}<br>{versus}" for value, versus in cells)]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def index() -> str:
    """Every table that has results, with a link to its page; those of one kind in one line."""
    kinds: dict[str, list[str]] = {}
    for path in pages().values():
        title = path.read_text(encoding="utf-8").split("\n")[0].removeprefix("# ")
        kinds.setdefault(title.partition(":")[0], []).append(f"[{path.stem}](results/{path.name})")
    return "".join(f"- {title}: {', '.join(links)}\n" for title, links in kinds.items())


def curves() -> str:
    """The long runs after their last step."""
    sys.path.insert(0, str(FOLDER))
    import learning_curves as runs

    lines = runs.read(RESULTS / "learning_curves.jsonl")
    made = (*runs.comparisons(lines), *runs.table(lines), *runs.selected(lines))
    return "\n".join(made).lstrip() + "\n"


GENERATED = {"comparison": comparison, "index": index, "curves": curves}


def renewed(text: str) -> str:
    """A text whose parts between ``<!-- experiments:NAME:start -->`` and ``end`` are made anew from
    the pages."""
    for name, make in GENERATED.items():
        start, end = (f"<!-- experiments:{name}:{side} -->" for side in ("start", "end"))
        if start in text:
            before, _, rest = text.partition(start)
            text = f"{before}{start}\n{make()}{end}{rest.partition(end)[2]}"
    return text


if __name__ == "__main__":
    for path in pages().values():
        path.write_text(page(path), encoding="utf-8")
    sys.stdout.write(f"{len(pages())} pages of results\n")
    for document in WRITTEN:
        document.write_text(renewed(document.read_text(encoding="utf-8")), encoding="utf-8")
