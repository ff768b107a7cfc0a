"""``vicinal dedupe``: things of a run's collection that may be the same; nothing is removed."""

from pathlib import Path
from typing import Annotated

import typer


def dedupe(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    distance: Annotated[
        float | None, typer.Option("--distance", "--max-distance", help="Up to which things are the same.")
    ] = None,
    max_false_match: Annotated[
        float | None, typer.Option(metavar="RATE", help="Calibrate the distance at this rate. Default: 1e-5.")
    ] = None,
    to: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where to write. Default: RUN/duplicates.")] = None,
    collection: Annotated[Path | None, typer.Option(help="Where the collection is. Default: RUN/collection.")] = None,
    device: Annotated[str, typer.Option(help="For a calibration: auto, cpu or cuda.")] = "auto",
) -> None:
    """List near duplicates in the collection of RUN: duplicates.csv and duplicates.html. Nothing is deleted."""
    from vicinal.run_directory import RunDirectory
    from vicinal.search.collection import CollectionDirectory
    from vicinal.search.duplicates import near_duplicates
    from vicinal.search.fingerprint import require_same_model
    from vicinal.search.group_page import pictures_on, write_groups
    from vicinal.search.grouping import duplicate_contents
    from vicinal.search.nearness import nearness
    from vicinal.training.console import Console
    from vicinal.training.experiment import pick_device

    opened, console = RunDirectory.open(run), Console()
    snapshot = CollectionDirectory.of(run, collection).snapshot()
    require_same_model(opened, snapshot.about)
    near = nearness(opened, metric=snapshot.metric, distance=distance, rate=max_false_match, device=pick_device(device))
    with console.following(len(snapshot), 0, "comparing") as follower:
        found = near_duplicates(snapshot.vectors(), near.distance, metric=snapshot.metric, progress=follower.advance)
    contents = duplicate_contents(snapshot, found, near)
    folder = opened.path / "duplicates" if to is None else to
    table, page = folder / "duplicates.csv", folder / "duplicates.html"
    with console.following(pictures_on(contents), 0, "pictures") as follower:
        write_groups(snapshot, contents, table, page, follower.advance)
    for sentence in contents.lead:
        typer.echo(sentence)
    typer.echo("; ".join(f"{name}: {value}" for name, value in contents.facts))
    typer.echo(f"table: {table}\npage: {page}")
