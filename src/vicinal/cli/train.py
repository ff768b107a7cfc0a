"""``vicinal train``: from a recipe to a finished run with its report."""

import functools
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ParamSpec

import typer

if TYPE_CHECKING:
    from vicinal.training.console import Console
    from vicinal.training.recipe import Recipe

P = ParamSpec("P")

DEFAULT_RECIPE = "glyphs_multi_similarity"


def _said_once(command: Callable[P, None]) -> Callable[P, None]:
    """Of several processes on a machine that refuse the same thing, the first one says so."""

    @functools.wraps(command)
    def call(*words: P.args, **options: P.kwargs) -> None:
        from vicinal.errors import VicinalError

        try:
            command(*words, **options)
        except VicinalError:
            if os.environ.get("LOCAL_RANK", "0") == "0":
                raise
            sys.exit(2)

    return call


@_said_once
def train(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RECIPE] [KEY=VALUE]...", help="A recipe's name or .py file, then settings to change."),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Your data: folder, table or array file; without a recipe, one is chosen.")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="Folder to write; default: a new one in runs/.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with this interrupted run.")] = None,
    processes: Annotated[
        int | None, typer.Option(help="Train in this many processes on this machine, one GPU or some cores each.")
    ] = None,
    report: Annotated[bool, typer.Option(help="Write the report at the end.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but the result.")] = False,
) -> None:
    """Train a recipe, measure it on classes it never saw, and write the report.

    `vicinal recipes` lists the recipes; without one, --data FOLDER chooses one that fits what lies there, and without
    both, the default trains on embedded data. Ctrl-C stops between two steps and says how to go on.
    """
    from vicinal.training import launcher

    if processes is not None and launcher.wanted(processes):
        launcher.launch(processes)
        return
    words = arguments or []
    names = [word for word in words if "=" not in word]
    overrides = [word for word in words if "=" in word]
    from vicinal.errors import ConfigError

    if len(names) > 1:
        raise ConfigError(f"one recipe at a time, but {', '.join(names)} came. Settings are written key=value.")
    if resume is not None and (overrides or data is not None or run is not None):
        raise ConfigError("a resumed run keeps its settings and its folder: leave out KEY=VALUE, --data and --run.")
    if data is not None and any(word.startswith("data=") for word in overrides):
        raise ConfigError(f"--data {data} and data=... say the same thing. Give one of them.")

    from vicinal.parallel import first
    from vicinal.training.console import Console
    from vicinal.training.run import resume as resume_run
    from vicinal.training.run import start

    console = Console(quiet=quiet or not first())
    if resume is not None:
        directory = resume_run(resume, recipe=names[0] if names else None, console=console)
    else:
        name, recipe = _chosen(names[0] if names else None, data, overrides, console)
        directory = start(name, recipe, run or _fresh(Path("runs"), name), command=_command(), console=console)
    from vicinal.cli.report import show

    if first():
        show(directory, write=report)


def _chosen(name: str | None, data: str | None, overrides: list[str], console: "Console") -> tuple[str, "Recipe"]:
    """The recipe that was named, or one for the data, or the default; with its settings changed."""
    from vicinal.errors import ConfigError
    from vicinal.training.choice import choose
    from vicinal.training.listing import packaged_recipes
    from vicinal.training.overrides import apply
    from vicinal.training.recipe import find_recipe

    if name is None and data is not None:
        choice = choose(data, overrides)
        for reason in choice.reasons:
            console.line(reason)
        return choice.name, choice.recipe
    if name is not None and not name.endswith(".py") and name not in packaged_recipes() and Path(name).exists():
        raise ConfigError(f"{name} is data, not a recipe. Train on it with `vicinal train --data {shlex.quote(name)}`.")
    name = name or DEFAULT_RECIPE
    return name, apply(find_recipe(name), overrides if data is None else [f"data={data}", *overrides])


def _fresh(folder: Path, name: str) -> Path:
    """A folder that does not exist yet, named by recipe and time."""
    from datetime import datetime

    base = folder / f"{Path(name).stem}-{datetime.now():%Y%m%d-%H%M%S}"
    return next(p for n in range(1000) if not (p := base if n == 0 else base.with_name(f"{base.name}-{n}")).exists())


def _command() -> str:
    return shlex.join(["vicinal", *sys.argv[1:]])
