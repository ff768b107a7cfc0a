"""The ``vicinal`` command: finds the subcommand, prints refusals without a traceback."""

import errno
import inspect
import os
import sys
from collections.abc import Callable
from typing import Annotated, NoReturn

import typer

from vicinal.cli.bench import bench
from vicinal.cli.catalog import explain, list_, recipes
from vicinal.cli.cluster import cluster
from vicinal.cli.compare import compare
from vicinal.cli.data import app as data
from vicinal.cli.dedupe import dedupe
from vicinal.cli.embed import embed
from vicinal.cli.evaluate import evaluate
from vicinal.cli.examples import epilog
from vicinal.cli.export import export
from vicinal.cli.index import index
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
    context_settings={"color": False if os.environ.get("NO_COLOR") else None},  # which typer alone does not heed
    help="Metric learning in which hardness is a quantity one can see and steer.",
    epilog=epilog("vicinal"),
)


@app.callback()
def _main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    trust: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:CLASS", help="A network of your own that runs may be rebuilt from."),
    ] = None,
) -> None:
    if trust:
        from vicinal.config import trusted
        from vicinal.models.custom import TRUSTED

        TRUSTED.update(trusted(trust))
    if version:
        import vicinal

        typer.echo(f"vicinal {vicinal.__version__}")
        raise typer.Exit


def _flowing(command: Callable[..., None]) -> str:
    """The docstring with its lines joined, for the terminal to break where it ends."""
    return "\n\n".join(" ".join(part.split()) for part in (inspect.getdoc(command) or "").split("\n\n"))


for command in (
    train,
    evaluate,
    embed,
    report,
    explain,
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
    app.command(help=_flowing(command), epilog=epilog(command.__name__))(command)
app.command(name="list", help=_flowing(list_), epilog=epilog("list"))(list_)
app.command(hidden=True)(recipes)
app.add_typer(data, name="data")

REFUSED, INTERRUPTED = 2, 130  # as the shell's own conventions have them


def run() -> None:
    """Entry point; exit status 0 done, 2 refused, 130 interrupted."""
    try:
        app()
    except VicinalError as error:
        _refuse(str(error))
    except OSError as error:
        if error.filename is None and error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise  # no file that the system refuses us, so a mistake of our own
        place = error.filename or "the disk"
        _refuse(f"{place} cannot be used: {error.strerror}. Check the path, its rights and the room there.")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _refuse(message: str) -> NoReturn:
    typer.secho(f"error: {message}", fg="red", err=True, color=False if os.environ.get("NO_COLOR") else None)
    sys.exit(REFUSED)
