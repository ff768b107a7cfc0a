"""The ``vicinal`` command: finds the subcommand, prints errors without a traceback."""

import errno
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any, NoReturn, cast

import typer
from typer.core import TyperGroup
from typer.main import get_command

from vicinal.cli.examples import epilog
from vicinal.errors import VicinalError

# The module of each command. It is imported when the command is called: the others' settings are none of its concern.
MODULES = {
    "train": "train",
    "evaluate": "evaluate",
    "embed": "embed",
    "report": "report",
    "explain": "catalog",
    "bench": "bench",
    "compare": "compare",
    "tune": "tune",
    "index": "index",
    "search": "search",
    "cluster": "groups",
    "dedupe": "groups",
    "export": "export",
    "serve": "serve",
    "list": "catalog",
    "recipes": "catalog",
    "data": "data",
}


class Commands(Mapping[str, Any]):
    """The commands by name, each loaded when it is first asked for."""

    def __getitem__(self, name: str) -> Any:
        return _load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(MODULES)

    def __len__(self) -> int:
        return len(MODULES)


class LazyGroup(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = cast(Any, Commands())


@cache
def _load(name: str) -> Any:
    module = import_module(f"vicinal.cli.{MODULES[name]}")
    if name == "data":
        command = get_command(module.app)
    else:
        single, function = typer.Typer(add_completion=False), getattr(module, "list_" if name == "list" else name)
        hidden = name == "recipes"
        single.command(help=_flowing(function), epilog=None if hidden else epilog(name), hidden=hidden)(function)
        command = get_command(single)
    command.name = name
    return command


app = typer.Typer(
    cls=LazyGroup,
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


FAILED, INTERRUPTED = 2, 130  # as the shell's own conventions have them


def run() -> None:
    """Entry point; exit status 0 done, 2 error, 130 interrupted."""
    try:
        app()
    except VicinalError as error:
        _fail(str(error))
    except OSError as error:
        if error.filename is None and error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise  # not about a file of the user, so a mistake of our own
        place = error.filename or "the disk"
        _fail(f"{place} cannot be used: {error.strerror}. Check the path, its rights and the room there.")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _fail(message: str) -> NoReturn:
    typer.secho(f"error: {message}", fg="red", err=True, color=False if os.environ.get("NO_COLOR") else None)
    sys.exit(FAILED)
