"""``vicinal train``, ``report``, ``list``, ``explain`` and ``data``: from slots to a finished run
and its page, what can fill a slot, and a look at data before."""

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.errors import ConfigError

if TYPE_CHECKING:
    from vicinal.config import Config
    from vicinal.run_directory import RunDirectory

RUNS = 20  # such as the one that ended: the time that `vicinal best` is given


def train(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PRESET|FILE.toml|DATA] [SLOT=NAME] [SLOT.ARGUMENT=VALUE]..."),
    ] = None,
    data: str | None = None,
    run: Path | None = None,
    resume: Path | None = None,
    head_only: bool = False,
    dry_run: bool = False,
    processes: int | None = None,
    report: bool = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q")] = False,
) -> None:
    """Train any model with any loss and method, evaluate it on classes it never saw, and write the
    report.

    An experiment has nine slots: data, transform, model, sampler, loss, method, optimizer,
    training, evaluation. Each takes a class name and its arguments: `loss=multi_similarity
    loss.alpha=2`. What you leave out is derived from the data and the other slots and printed.
    `vicinal list losses` lists the losses, `vicinal explain
    loss=triplet` the arguments of one. Ctrl-C stops after the current step and prints how to
    resume.

    Args:
        arguments: A preset, a TOML file or your data, then settings that override it.
        data: Your data: folder, table or array file; selects the preset.
        run: Folder to write; default: a new one in runs/.
        resume: Go on with this run; training.epochs or training.steps may be more than before.
        head_only: Only compute the head in closed form; try it first.
        dry_run: Print the resolved settings and the estimated cost, and exit.
        processes: Train in this many processes on this machine, one GPU or some cores each.
        report: Write the report at the end.
        quiet: Print nothing but the result.

    Examples:
        vicinal train --data pictures/ --head-only
        vicinal train --data pictures/
        vicinal train --data pictures/ loss=n_pair method=hdml training.steps=2000 --run runs/hdml
        vicinal train --resume runs/hdml
        vicinal train --resume runs/hdml training.steps=4000
    """
    words = arguments or []
    names = [word for word in words if "=" not in word]
    settings = [word for word in words if "=" in word]
    if len(names) > 1:
        raise ConfigError(
            f"one preset at a time, got {', '.join(names)}. Settings are written "
            "slot.argument=value."
        )
    if resume is not None and (names or data is not None or run is not None):
        raise ConfigError(
            "a resumed run keeps its data and its folder: leave out presets, --data and --run."
        )
    if data is not None and any(word.startswith("data=") for word in settings):
        raise ConfigError(f"--data {data} and data=... say the same thing. Give one of them.")

    from vicinal.parallel import first, from_first, joined, launch, restarted

    if launch(processes):
        return

    from vicinal.api import fresh
    from vicinal.config import from_words
    from vicinal.models.custom import trusted
    from vicinal.training.console import Console
    from vicinal.training.run import resume as resume_run
    from vicinal.training.run import start

    console = Console(quiet=quiet or not first())
    with joined():
        known = trusted(None)
        if run is not None and restarted() and from_first((run / "run.json").is_file):
            resume = run
            settings = []
        if resume is not None:
            directory = resume_run(resume, own=from_words(settings), trust=known, console=console)
        else:
            if head_only:
                closed = (
                    "model.start=discriminant",
                    "training.head_only=true",
                    "training.validation=0",
                )
                settings = [*closed, *settings]
            config = _composed(names[0] if names else None, data, settings, known)
            if dry_run:
                from vicinal.training.estimate import describe

                typer.echo(describe(config))
                return
            command = shlex.join(["vicinal", *sys.argv[1:]])
            directory = start(config, run or fresh(config), command=command, console=console)
    if first():
        show(directory, write=report)
        if (results := directory.results) and not quiet:
            typer.echo(_worth(directory, results))


def _composed(
    name: str | None, data: str | None, settings: list[str], trust: dict[str, Any]
) -> "Config":
    from vicinal.config import compose, from_words, presets, read

    layers: list[dict[str, object]] = []
    title = None
    if (
        name is not None
        and not name.endswith(".toml")
        and name not in presets()
        and Path(name).exists()
    ):
        if data is not None or any(word.startswith("data=") for word in settings):
            raise ConfigError(
                f"{name} is data, and --data or data=... names other data. Give one of them."
            )
        data = name
        name = None
    if name is not None:
        title, layer = read(name)
        layers.append(layer)
    if data is not None:
        layers.append({"data": data})
    return compose(*layers, from_words(settings), preset_name=title, trust=trust)


def _worth(run: "RunDirectory", results: dict[str, Any]) -> str:
    """Say when `vicinal best` would be worth its time, and how held-out classes are trained on."""
    data = run.config["slots"]["data"]
    minutes = max(5, round(RUNS * run.status["seconds"] / 60))
    command = shlex.join(["vicinal", "best", data.get("path", data["name"])])
    chosen = results["selected"]
    above = chosen.get("above", {}).get("the start")
    why = "here: no held-out class says that this training helped"
    whole = ""
    if above is not None and above["low"] is not None and above["low"] > 0:
        why = "where half a point of MAP@R counts"
        whole = (
            f"`training.validation=0 training.steps={chosen['step']}` after this command trains on "
            "the held-out classes, too: 0.9 to 2.4 points of Recall@1 on three sets, judged by "
            "none\n"
        )
    best = f"`{command} --minutes {minutes}` tries other losses, heads and rates; worth it {why}"
    return whole + best


def report(run: Path) -> None:
    """Write RUN/report.html and its figures, and print the result table.

    Args:
        run: A run's folder.

    Examples:
        vicinal report runs/birds
    """
    from vicinal.run_directory import RunDirectory

    show(RunDirectory.open(run), write=True)


def show(run: "RunDirectory", *, write: bool) -> None:
    """Print the result table and where the report lies."""
    from vicinal.cli.tables import print_table
    from vicinal.files import decoding
    from vicinal.reports import write_report

    if run.results is not None:
        with decoding(run.results_path):
            print_table(run.results)
    if write:
        typer.echo(f"report: {write_report(run.path)}")


KINDS = ("losses", "methods", "models", "samplers", "miners", "presets", "datasets")
_SLOTS = {"losses": "loss", "methods": "method", "models": "model", "samplers": "sampler"}
_SLOTS["datasets"] = "data"


def list_(kind: Annotated[str, typer.Argument(metavar="|".join(KINDS))]) -> None:
    """List the losses, methods, models, samplers, miners, presets or data sets.

    Args:
        kind: What to list.

    Examples:
        vicinal list losses
        vicinal list presets
    """
    from vicinal.documentation import summaries

    found = summaries(kind)
    width = max(map(len, found))
    for name, summary in found.items():
        typer.echo(f"{typer.style(name.ljust(width), bold=True)}  {summary}")
    if kind != "miners":
        slot = f"{_SLOTS[kind]}=" if kind in _SLOTS else ""
        typer.echo(f"\n`vicinal explain {slot}{next(iter(found))}` shows what it takes.")


def explain(what: Annotated[str, typer.Argument(metavar="SLOT=NAME")]) -> None:
    """Explain a class: what it does, its paper, its arguments and their defaults.

    Args:
        what: Such as loss=triplet, training, or a preset.

    Examples:
        vicinal explain loss=proxy_anchor
        vicinal explain training
    """
    from vicinal.documentation import explanation

    title, text, settings = explanation(what)
    typer.secho(title, bold=True)
    if text:
        typer.echo(f"\n{text}")
    if settings:
        typer.echo("\nsettings, with their defaults:")
    for key, default, words in settings:
        typer.echo(f"  {typer.style(key, bold=True)}={default}{'  ' + words if words else ''}")


# -- data -----------------------------------------------------------------------------------------

app = typer.Typer(
    no_args_is_help=True,
    help="Check data before training.",
    epilog="\b\nExample:\n  vicinal data check pictures/",
)


@app.command()
def check(path: str, as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """Read every file: counts, unreadable files, duplicates across train and test, sizes. Exit 1 on
    faults.

    Args:
        path: Folder of class folders, table, or array file.
        as_json: Print JSON instead of text.

    Examples:
        vicinal data check pictures/
        vicinal data check pictures.csv --json
    """
    from vicinal.data import check as check_data
    from vicinal.data import open_path
    from vicinal.data.check import load_unchecked
    from vicinal.training.console import Console

    records = load_unchecked(open_path(path))
    with Console(quiet=as_json).following(len(records), 0, "reading") as follower:
        found = check_data(records, progress=follower.advance)
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=2, ensure_ascii=False))
    else:
        typer.echo("\n".join(found.lines()))
    raise typer.Exit(0 if found.ok else 1)
