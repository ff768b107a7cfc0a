"""``vicinal train``: from a recipe to a finished run with its report."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

DEFAULT_RECIPE = "glyphs_multi_similarity"


def train(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RECIPE] [KEY=VALUE]...", help="A recipe's name or .py file, then settings to change."),
    ] = None,
    run: Annotated[Path | None, typer.Option(help="Folder to write; default runs/RECIPE-DATE.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with this interrupted run.")] = None,
    report: Annotated[bool, typer.Option(help="Write the report at the end.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but the result.")] = False,
) -> None:
    """Train a recipe, measure it on classes it never saw, and write the report.

    `vicinal recipes` lists the recipes; without one, the default trains on embedded data. Ctrl-C stops between
    two steps and says how to go on.
    """
    words = arguments or []
    names = [word for word in words if "=" not in word]
    overrides = [word for word in words if "=" in word]
    from vicinal.errors import ConfigError

    if len(names) > 1:
        raise ConfigError(f"one recipe at a time, but {', '.join(names)} came. Settings are written key=value.")
    if resume is not None and (overrides or run is not None):
        raise ConfigError("a resumed run keeps its settings and its folder: leave out KEY=VALUE and --run.")

    from vicinal.training.console import Console
    from vicinal.training.run import resume as resume_run
    from vicinal.training.run import start

    console = Console(quiet=quiet)
    if resume is not None:
        directory = resume_run(resume, recipe=names[0] if names else None, console=console)
    else:
        from vicinal.training.overrides import apply
        from vicinal.training.recipe import find_recipe

        name = names[0] if names else DEFAULT_RECIPE
        recipe = apply(find_recipe(name), overrides)
        directory = start(name, recipe, run or _fresh(Path("runs"), name), command=_command(), console=console)
    from vicinal.cli.report import show

    show(directory, write=report)


def _fresh(folder: Path, name: str) -> Path:
    """A folder that does not exist yet, named by recipe and time."""
    from datetime import datetime

    base = folder / f"{Path(name).stem}-{datetime.now():%Y%m%d-%H%M%S}"
    return next(p for n in range(1000) if not (p := base if n == 0 else base.with_name(f"{base.name}-{n}")).exists())


def _command() -> str:
    return shlex.join(["vicinal", *sys.argv[1:]])
