"""The ``vicinal`` command: finds the subcommand, prints refusals without a traceback."""

import sys
from typing import Annotated

import typer

from vicinal.cli.bench import bench
from vicinal.cli.cluster import cluster
from vicinal.cli.compare import compare
from vicinal.cli.data import app as data
from vicinal.cli.dedupe import dedupe
from vicinal.cli.embed import embed
from vicinal.cli.evaluate import evaluate
from vicinal.cli.export import export
from vicinal.cli.index import index
from vicinal.cli.recipes import recipes
from vicinal.cli.report import report
from vicinal.cli.search import search
from vicinal.cli.serve import serve
from vicinal.cli.train import train
from vicinal.cli.tune import tune
from vicinal.errors import VicinalError

app = typer.Typer(
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Metric learning in which hardness is a quantity one can see and steer.",
)


@app.callback()
def _main(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        import vicinal

        typer.echo(f"vicinal {vicinal.__version__}")
        raise typer.Exit


for command in (
    train,
    evaluate,
    embed,
    report,
    recipes,
    bench,
    compare,
    tune,
    index,
    search,
    cluster,
    dedupe,
    export,
    serve,
):
    app.command()(command)
app.add_typer(data, name="data")

REFUSED, INTERRUPTED = 2, 130  # as the shell's own conventions have them


def run() -> None:
    """Entry point; exit status 0 done, 2 refused, 130 interrupted."""
    try:
        app()
    except VicinalError as error:
        typer.secho(f"error: {error}", fg="red", err=True)
        sys.exit(REFUSED)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
