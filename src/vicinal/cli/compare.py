"""``vicinal compare``: the paired comparison of any runs."""

import json
from pathlib import Path
from typing import Annotated

import typer


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN...")],
    metric: str = "recall@1",
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Compare runs with a reference, paired by seed and by test class.

    Runs that differ only in their seed form one row. With two shared seeds or more there is an interval over seeds and
    a test; the interval over resampled test classes needs one run on each side and a metric that is a mean over
    queries (Recall@K, MAP@R, R-precision). Runs tested on different records are rejected; different training records
    or protocols are reported.

    Args:
        runs: Folders of finished runs, the reference first.
        metric: The metric to compare.
        as_json: Print JSON instead of a table.

    Examples:
        vicinal compare runs/plain runs/mine
        vicinal compare runs/plain runs/mine --metric map@r
    """
    from dataclasses import asdict

    from vicinal.bench.compare import compare as compare_runs
    from vicinal.bench.page import interval, probability, score
    from vicinal.cli.tables import print_grid
    from vicinal.reports.tables import metric_title, per_cent

    lines = compare_runs(runs, metric)
    if as_json:
        found = [
            {"name": line.group.name, "runs": [str(run.path) for run in line.group.runs.values()]}
            | {"score": line.score, "seeds": line.seeds, "notes": line.notes, **vars(line.difference)}
            for line in lines
        ]
        typer.echo(json.dumps({"metric": metric, "rows": found}, indent=2, default=asdict))
        return
    heads = ["runs", metric_title(metric), "difference", "over classes", "p", "detectable", "seeds"]
    rows = [
        [
            line.group.name,
            score(line.score),
            interval(line.difference.over_seeds),
            interval(line.difference.over_classes),
            probability(line.difference.p),
            per_cent(line.difference.smallest),
            f"{len(line.seeds)} of {len(line.group.runs)}" if line.seeds else str(len(line.group.runs)),
        ]
        for line in lines
    ]
    print_grid("differences to the first row, in points", heads, rows, unbroken=range(1, len(heads)))
    typer.echo(
        f"{metric_title(metric)}: 95 % intervals over paired seeds, and over test classes drawn anew; p after Holm's "
        "correction; detectable: the smallest difference that these seeds would show; seeds: paired, of all."
    )
    for line in lines:
        for note in line.notes:
            typer.secho(f"{line.group.name}: {note}; the difference may come from that", fg="yellow")
