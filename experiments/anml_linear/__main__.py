"""ANML's Table 2: linear methods on tables, fitted and not trained, so no table of ``vicinal
bench``.

python experiments/anml_linear                               # what is missing of 15 sets, 30 splits
python experiments/anml_linear --methods lanml- lmnn --splits 5 --jobs 16 --minutes 9
python experiments/anml_linear --page                       # measure nothing
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

# `published`, which all experiments share.
sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

from sets import file_of, read
from table import markdown, view
from units import FULL, Plan

from methods import METHODS, PEERS
from peers import lacking
from vicinal.bench import results
from vicinal.bench.pool import Pool, Task
from vicinal.data.folder import data_root
from vicinal.errors import ConfigError, DataError, VicinalError
from vicinal.files import read_lines, write_text
from vicinal.training.console import Console


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    plan = FULL
    console = Console()
    path = options.results / f"{plan.kept}.jsonl"
    failed = False
    if not options.page:
        failed = run(plan, options, path, console)
    lines = list(read_lines(path))
    page = options.results / f"{plan.name}.md"
    write_text(page, markdown(lines, plan))
    for sentence in (*view(lines, plan, "accuracy").sentences, f"page: {page}; results: {path}"):
        console.line(sentence)
    return int(failed)


def run(plan: Plan, options: argparse.Namespace, path: Path, console: Console) -> bool:
    """Measure what is missing; whether a unit failed. Ctrl-C and a deadline leave all units that
    have ended."""
    methods = available(options.methods, console)
    limited = plan if options.splits is None else replace(plan, splits=options.splits)
    done = {(line["set"], line["split"], line["method"]) for line in read_lines(path)}
    missing = [unit for unit in limited.units(methods) if unit.key not in done]
    data = (options.data or data_root()) / "tabular"
    check_data({unit.set for unit in missing}, data)
    console.line(
        f"{len(missing)} units to measure, {len(list(limited.units(methods))) - len(missing)} "
        "done before"
    )

    def record(task: Task, lines: list[results.Line]) -> str:
        results.append(path, lines[0])
        return str(lines[0].get("error") or f"{100 * lines[0]['accuracy']:.1f}")

    until = math.inf if options.minutes is None else time.monotonic() + 60 * options.minutes
    with Pool(options.runs, slots=options.jobs, console=console) as pool:
        left = pool.run([unit.task(data) for unit in missing], record, title=plan.name, until=until)
    if left:
        console.line(
            f"{left} units were not started; run the same command to continue", warning=True
        )
    return bool(pool.failures)


def available(asked: Sequence[str], console: Console) -> list[str]:
    """The methods to measure: those asked for, or all that can be measured here."""
    wanted = [method for method in METHODS if not asked or method in asked]
    peers = [method for method in wanted if method in PEERS]
    reason = lacking() if peers else ""
    if reason and asked:
        raise ConfigError(f"--methods asks for {' and '.join(peers)}, and {reason}.")
    if reason:
        console.line(f"{' and '.join(peers)} are left out: {reason}", warning=True)
    return [method for method in wanted if not reason or method not in PEERS]


def check_data(sets: set[str], data: Path) -> None:
    """Reject a folder that lacks sets or has one that cannot be read, before any process starts."""
    if absent := sorted(name for name in sets if not file_of(name, data).is_file()):
        raise DataError(
            f"{len(absent)} of {len(sets)} sets are not in {data} ({', '.join(absent[:3])}). "
            f"Name the folder that holds `{data.name}` with --data or VICINAL_DATA."
        )
    for name in sets:
        read(file_of(name, data))


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python experiments/anml_linear", description=(__doc__ or "").splitlines()[0]
    )
    found.add_argument("--page", action="store_true", help="measure nothing; write the page")
    found.add_argument("--methods", nargs="+", choices=METHODS, default=[])
    found.add_argument("--splits", type=int, help="the first so many")
    found.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    found.add_argument("--minutes", type=float, help="no unit starts later than this")
    found.add_argument("--data", type=Path, help="folder that holds `tabular`")
    found.add_argument(
        "--results", type=Path, default=Path(__file__).resolve().parents[1] / "results"
    )
    found.add_argument("--runs", type=Path, default=Path("runs/anml_linear"))
    return found


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except VicinalError as error:
        sys.exit(f"error: {error}")
