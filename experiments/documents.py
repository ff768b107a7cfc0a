"""Write all tables of the documents anew from the results, each between its markers.

python experiments/documents.py              # docs/*.md and experiments/*.md
"""

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from vicinal.bench.page import excerpt, write_into
from vicinal.bench.results import Store
from vicinal.bench.run import Bench, collect
from vicinal.bench.summary import summarize
from vicinal.bench.table import Budget, Table, load_tables
from vicinal.bench.tuning import tune_table
from vicinal.training.console import Console

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "results"
DOCUMENTS = [*sorted((FOLDER.parent / "docs").rglob("*.md")), *sorted(FOLDER.glob("*.md"))]
COMMAND = re.compile(r"^`vicinal bench (\S+?)( --protocol \S+)?( --trials \d+)?( --folds \d+)? --seeds (\d+)`: ", re.M)
_MARKED = re.compile(r"^<!-- bench:(\S+):start -->\n(.*?)^<!-- bench:\1:end -->", re.S | re.M)


def files() -> list[Path]:
    """The files of this folder that define tables at their top level."""
    defined = re.compile(r"^TABLES? = ", re.M)
    return [path for path in sorted(FOLDER.glob("*.py")) if defined.search(path.read_text(encoding="utf-8"))]


@cache
def tables() -> dict[str, Table]:
    """Every table of this folder, by name; their files are named from the root of the repository."""
    found = [table for path in files() for table in load_tables(str(path))]
    return {table.name: table.replace(file=f"experiments/{Path(table.file).name}") for table in found}


store = cache(lambda: Store(RESULTS))


def shown(document: Path) -> Iterator[tuple[str, str]]:
    """Name and text of each table of a document that was made by a command."""
    for name, inside in _MARKED.findall(document.read_text(encoding="utf-8")):
        if COMMAND.search(inside):
            yield name, inside


def made(inside: str, document: Path) -> str:
    """The text of a table made anew by the command that it names."""
    match = COMMAND.search(inside)
    if match is None:
        raise ValueError("the text names no command")
    source, protocol, trials, folds, seeds = match.groups()
    file, _, name = source.partition("::")
    table = tables()[name] if name else next(each for each in tables().values() if each.file == file)
    table = table if protocol is None else table.under(protocol.split()[1])
    if trials:
        budget = Budget(int(trials.split()[1]), int(folds.split()[1]) if folds else 4)
        bench = Bench(RESULTS, RESULTS, Console())
        table = tune_table(table, budget, bench, recorded_only=True) or table
    summary = summarize(collect(table.replace(seeds=int(seeds)), store()))
    return excerpt(summary, document, RESULTS)


if __name__ == "__main__":
    for document in DOCUMENTS:
        if contents := [(name, made(inside, document)) for name, inside in shown(document)]:
            write_into(document, contents)
            sys.stdout.write(f"{document.name}: {len(contents)} tables\n")
