"""``vicinal tune``: settings by cross-validation on the training classes."""

from pathlib import Path
from typing import Annotated

import typer


def tune(
    recipe: Annotated[str, typer.Argument(help="A recipe's name or .py file.")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=LOW..HIGH | KEY=LOW..HIGH:log | KEY=A,B,C | KEY=VALUE]...",
            help="What to search, and what to set.",
        ),
    ] = None,
    fix: Annotated[list[str] | None, typer.Option("--set", help="KEY=VALUE as it is, also with commas.")] = None,
    trials: Annotated[int, typer.Option(help="Settings to try, the recipe's own among them.")] = 20,
    folds: Annotated[int, typer.Option(help="Class-disjoint folds of the training classes.")] = 4,
    seed: Annotated[int, typer.Option(help="Of folds, draws and runs.")] = 0,
    searcher: Annotated[str, typer.Option(help="random, or optuna (an extra: vicinal\\[tune]).")] = "random",
    jobs: Annotated[int | None, typer.Option(help="Runs at a time; default one per core, 4 on a GPU.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write and go on in; default runs/tune/RECIPE.")] = None,
) -> None:
    """Choose settings by k-fold cross-validation over training classes; test classes have no part in it.

    The same command goes on after a stop; a larger --trials adds trials. `vicinal bench TABLE --trials N` tunes all
    rows of a table, a method and its plain twin alike.
    """
    from typing import cast

    from vicinal.bench.pool import slots_here
    from vicinal.bench.search_space import parse
    from vicinal.bench.tuning import Search, Searcher, command
    from vicinal.bench.tuning import tune as search_settings
    from vicinal.bench.wording import score
    from vicinal.training.console import Console

    _refuse_table(recipe)
    space, fixed = parse(settings or [])
    search = Search(recipe, (*fixed, *(fix or [])), space, trials, folds, seed, cast(Searcher, searcher))
    folder = out or Path("runs/tune") / Path(recipe).stem
    slots = slots_here() if jobs is None else jobs
    console = Console()
    try:
        chosen = search_settings(search, folder, slots=slots, console=console)
    except KeyboardInterrupt:
        console.line(f"stopped. The same command goes on; what is there: {folder / 'trials.jsonl'}")
        raise

    typer.secho(f"trial {chosen.trial.number} of {trials}, {folds} folds", bold=True)
    if not chosen.trial.values:
        typer.echo("  the recipe as it stands")
    for key, value in chosen.trial.values.items():
        typer.echo(f"  {key} = {value}   (as good within one standard error: {', '.join(chosen.alike[key])})")
    typer.echo(f"  held-out R@1 {score(chosen.score)} (95 % over folds), standard deviation {100 * chosen.spread:.1f}")
    typer.echo(f"  after the last epoch; the folds were best after {', '.join(map(str, chosen.epochs))}")
    typer.echo(f"train and test it: {command(search, chosen)}")
    typer.echo(f"all trials: {folder / 'trials.jsonl'}; the choice: {folder / 'tuning.json'}")


def _refuse_table(name: str) -> None:
    from vicinal.bench.catalogue import TABLES
    from vicinal.errors import ConfigError
    from vicinal.training.listing import packaged_recipes

    if name not in packaged_recipes() and any(table.name == name for table in TABLES):
        raise ConfigError(
            f"a recipe is tuned, but {name} is a table. `vicinal bench {name} --trials 20` tunes all its rows alike."
        )
