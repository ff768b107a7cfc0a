"""``vicinal tune``: settings by cross-validation on the training classes."""

from pathlib import Path
from typing import Annotated

import typer


def tune(
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PRESET | FILE.toml] [KEY=LOW..HIGH | KEY=LOW..HIGH:log | KEY=A,B,C | KEY=VALUE]..."),
    ] = None,
    data: str | None = None,
    fix: Annotated[list[str] | None, typer.Option("--set")] = None,
    trials: int = 20,
    folds: int = 4,
    seed: int = 0,
    searcher: str = "random",
    jobs: int | None = None,
    out: Path | None = None,
) -> None:
    """Choose settings by k-fold cross-validation over training classes; test classes are never used.

    The same command continues after a stop; a larger --trials adds trials. `vicinal bench FILE.py --trials N` tunes all
    rows of a table, a method and its baseline alike.

    Args:
        settings: A preset or TOML file, ranges to search, and fixed settings.
        data: Your data: a folder, a table or an array file.
        fix: A fixed KEY=VALUE, whose value may contain commas.
        trials: Number of settings to try, including the experiment's own.
        folds: Class-disjoint folds of the training classes.
        seed: Seed of folds, settings and runs.
        searcher: random, or optuna (an extra: vicinal\\[tune]).
        jobs: Runs at a time; default one per core, 4 on a GPU.
        out: Folder to write and to continue in; default runs/tune/NAME.

    Examples:
        vicinal tune cub_features optimizer.learning_rate=1e-5..1e-3:log --trials 10
    """
    from vicinal.bench.page import score
    from vicinal.bench.pool import slots_here
    from vicinal.bench.tuning import Search, parse
    from vicinal.bench.tuning import tune as search_settings
    from vicinal.errors import ConfigError
    from vicinal.training.console import Console

    words = list(settings or [])
    source = words.pop(0) if words and "=" not in words[0] else ""
    if source.endswith(".py"):
        raise ConfigError(f"an experiment is tuned, got {source}. `vicinal bench {source} --trials 20` tunes a table.")
    space, fixed = parse(words)
    own = [] if data is None else [f"data={data}"]
    search = Search(source, (*own, *fixed, *(fix or [])), space, trials, folds, seed, searcher)
    folder = out or Path("runs/tune") / (Path(source or data or "glyphs").stem or "data")
    slots = slots_here() if jobs is None else jobs
    console = Console()
    try:
        chosen = search_settings(search, folder, slots=slots, console=console)
    except KeyboardInterrupt:
        console.line(f"stopped. Run the same command to continue; so far: {folder / 'trials.jsonl'}")
        raise

    typer.secho(f"trial {chosen.trial.number} of {trials}, {folds} folds", bold=True)
    if not chosen.trial.values:
        typer.echo("  the experiment as it stands")
    for key, value in chosen.trial.values.items():
        typer.echo(f"  {key} = {value}   (as good within one standard error: {', '.join(chosen.alike[key])})")
    found = score(chosen.trial.score)
    typer.echo(f"  held-out R@1 {found} (95 % over folds), standard deviation {100 * chosen.spread:.1f}")
    typer.echo(f"  after the last epoch; the folds were best after {', '.join(map(str, chosen.epochs))}")
    typer.echo(f"train and test it: {search.command(chosen)}")
    typer.echo(f"all trials: {folder / 'trials.jsonl'}; the choice: {folder / 'tuning.json'}")
