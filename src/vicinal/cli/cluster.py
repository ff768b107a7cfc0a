"""``vicinal cluster``: the groups in a run's collection, as a table and a page of contact sheets."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

if TYPE_CHECKING:
    from vicinal.search.clusters import Method


def cluster(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    method: Annotated[str, typer.Option(help="k-means, hdbscan or dbscan.")] = "k-means",
    groups: Annotated[int | None, typer.Option(help="How many, for k-means. Default: chosen by silhouette.")] = None,
    least: Annotated[int, typer.Option(help="Things in the smallest dense group.")] = 5,
    distance: Annotated[
        float | None, typer.Option("--distance", "--max-distance", help="For dbscan. Default: calibrated.")
    ] = None,
    max_false_match: Annotated[
        float | None, typer.Option(metavar="RATE", help="For dbscan: calibrate its distance at this rate.")
    ] = None,
    to: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where to write. Default: RUN/clusters.")] = None,
    collection: Annotated[Path | None, typer.Option(help="Where the collection is. Default: RUN/collection.")] = None,
    seed: Annotated[int, typer.Option(help="Of k-means.")] = 0,
    device: Annotated[str, typer.Option(help="For a calibration: auto, cpu or cuda.")] = "auto",
) -> None:
    """Group the collection of RUN by k-means or density: groups.csv and groups.html."""
    from vicinal.run_directory import RunDirectory
    from vicinal.search.collection import CollectionDirectory
    from vicinal.search.fingerprint import require_same_model
    from vicinal.search.group_page import pictures_on, write_groups
    from vicinal.search.grouping import cluster_contents, cluster_snapshot
    from vicinal.training.console import Console
    from vicinal.training.experiment import pick_device

    opened = RunDirectory.open(run)
    snapshot = CollectionDirectory.of(run, collection).snapshot()
    require_same_model(opened, snapshot.about)
    found, lead = cluster_snapshot(
        opened,
        snapshot,
        method=cast("Method", method),  # checked there
        groups=groups,
        least=least,
        distance=distance,
        rate=max_false_match,
        seed=seed,
        device=pick_device(device),
    )
    contents = cluster_contents(snapshot, found, lead)
    folder = opened.path / "clusters" if to is None else to
    table, page = folder / "groups.csv", folder / "groups.html"
    with Console().following(pictures_on(contents), 0, "pictures") as follower:
        write_groups(snapshot, contents, table, page, follower.advance)
    for sentence in contents.lead:
        typer.echo(sentence)
    typer.echo("; ".join(f"{name}: {value}" for name, value in contents.facts))
    typer.echo(f"table: {table}\npage: {page}")
