"""The ``vicinal`` command: finds the subcommand, prints errors without a traceback."""

import errno
import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.main import get_group

from vicinal.arguments import docstring_section
from vicinal.errors import VicinalError

# The function behind each command, by module of this package.
COMMANDS = {
    "train": "train:train",
    "evaluate": "evaluate:evaluate",
    "embed": "evaluate:embed",
    "report": "train:report",
    "explain": "train:explain",
    "bench": "bench:bench",
    "compare": "bench:compare",
    "best": "bench:best",
    "index": "search:index",
    "search": "search:search",
    "calibrate": "search:calibrate",
    "cluster": "clean:cluster",
    "dedupe": "clean:dedupe",
    "clean": "clean:clean",
    "suggest": "clean:suggest",
    "mine": "clean:mine",
    "export": "evaluate:export",
    "serve": "search:serve",
    "list": "train:list_",
    "data": "train:app",
}

AS_IS = "\b"  # before lines of help that are not to be filled


class _Commands(Mapping[str, Any]):
    """The commands by name, each of which is imported when it is asked for: they are many, and a
    call needs one."""

    def __getitem__(self, name: str) -> Any:
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


@cache
def _command(name: str) -> Any:
    module, _, function = COMMANDS[name].partition(":")
    found = getattr(importlib.import_module(f"vicinal.cli.{module}"), function)
    alone = typer.Typer()
    if isinstance(found, typer.Typer):
        alone.add_typer(found, name=name)
    else:
        alone.command(name)(found)
    return _documented(get_group(alone).commands[name])


class _Group(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands()  # type: ignore[assignment]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take ``--trust MODULE:CLASS`` from any place."""
        rest = list(args)
        if not rest:
            self.epilog = f"{self.epilog}{_next_steps(Path('runs'))}"
            rest = ["--help"]
        named = list[str]()
        while "--trust" in rest:
            place = rest.index("--trust")
            named += rest[place : place + 2]
            del rest[place : place + 2]
        return super().parse_args(ctx, named + rest)


def _next_steps(folder: Path) -> str:
    """Return what to do next with the newest runs in a folder, if there are any."""
    from vicinal.run_directory import RunDirectory

    lines = []
    newest = sorted(folder.glob("*/status.json"), key=lambda file: -file.stat().st_mtime)
    for file in newest[:3]:
        run = RunDirectory(file.parent)
        with suppress(VicinalError, OSError):
            state = run.status.get("state")
            index, _, serve = run.next_commands(tested=True)
            if state == "finished":
                lines.append(serve if (run.path / "collection").exists() else index)
            elif state != "running":
                lines.append(run.resume_command())
    return "\n".join(["", AS_IS, "Next:", *(f"  {line}" for line in lines)]) if lines else ""


def _documented(command: Any) -> Any:
    """Take the help of a command and of its options, and its examples, from its docstring."""
    for inner in getattr(command, "commands", {}).values():
        _documented(inner)
    command.rich_markup_mode = None  # rich takes longer to import than help to write
    if command.callback is None:
        return command
    doc = inspect.getdoc(command.callback) or ""
    text = re.split(r"\n\n(?:Args|Examples):\n", doc)[0]
    # The terminal breaks lines.
    command.help = "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
    command.short_help = command.help.partition("\n")[0]
    examples = [f"  {line.strip()}" for line in doc.partition("\nExamples:\n")[2].splitlines()]
    command.epilog = "\n".join(
        [AS_IS, "Example:" if len(examples) == 1 else "Examples:", *examples]
    )
    helps = docstring_section(command.callback, "Args")
    for parameter in command.params:
        if parameter.default is False:
            parameter.secondary_opts = []  # nothing else is said by --no-SOMETHING
        parameter.help = getattr(parameter, "help", None) or helps.get(parameter.name, "")
        if parameter.param_type_name == "argument":
            parameter.metavar = parameter.metavar or parameter.name.upper()
    return command


app = typer.Typer(
    cls=_Group,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={
        "color": False if os.environ.get("NO_COLOR") else None
    },  # which typer alone ignores
    help="Metric learning for PyTorch and scikit-learn: train, measure, search, export.",
    epilog=f"""{AS_IS}
Examples:
  vicinal train
  vicinal train --data pictures/ --run runs/birds
  vicinal index runs/birds pictures/
  vicinal serve runs/birds""",
)


@app.callback()
def _main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    trust: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:CLASS", help="Your own class, which runs may import."),
    ] = None,
) -> None:
    if trust:
        from vicinal.models.custom import TRUSTED, trusted

        TRUSTED.update(trusted(trust))
    if version:
        import vicinal

        typer.echo(f"vicinal {vicinal.__version__}")
        raise typer.Exit


FAILED = 2  # by the conventions of shells
INTERRUPTED = 130
_OUT_OF_MEMORY = re.compile(
    "can't allocate memory|out of memory|Storage size calculation overflowed", re.IGNORECASE
)


def run() -> None:
    """Run the command line; exit status 0 done, 2 error, 130 interrupted."""
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        if stream is None:  # closed by the caller, who wants no output
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):  # an alphabet without a letter stops no command
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except VicinalError as error:
        _fail(str(error))
    except OSError as error:
        if error.filename is None and error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise  # about no file, so a mistake of our own
        place = error.filename or "the disk"
        _fail(
            f"{place} cannot be used: {error.strerror}. Check the path, its rights and the room "
            "there."
        )
    except (MemoryError, RuntimeError) as error:
        if str(error).startswith("Symlink loop"):
            _fail(f"{error}: a link that leads back to itself. Remove it.")
        if not isinstance(error, MemoryError) and not _OUT_OF_MEMORY.search(str(error)):
            raise
        settings = (
            "training.batch_size, evaluation.batch_size, model.dim or the setting that you changed"
        )
        _fail(f"out of memory: {str(error).splitlines()[0]} Set {settings} lower.")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _fail(message: str) -> NoReturn:
    typer.secho(
        f"error: {message}", fg="red", err=True, color=False if os.environ.get("NO_COLOR") else None
    )
    sys.exit(FAILED)
