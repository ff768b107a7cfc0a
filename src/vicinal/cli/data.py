"""``vicinal data``: look at data before training on it."""

import json
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Look at data before training on it.")


@app.callback()
def _group() -> None:
    """Keeps ``data check`` a subcommand while it is the only one."""


@app.command()
def check(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Folder of class folders, table, or array file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Read a whole set: counts, unreadable files, duplicates across train and test, sizes. Exit 1 if it has faults."""
    from vicinal.data import check as check_data
    from vicinal.data import load_unchecked, open_path
    from vicinal.training.console import Console

    records = load_unchecked(open_path(path))
    with Console(quiet=as_json).following(len(records), 0, "reading") as follower:
        found = check_data(records, progress=follower.advance)
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=2, ensure_ascii=False))
    else:
        for line in found.lines():
            typer.echo(line)
    raise typer.Exit(0 if found.ok else 1)
