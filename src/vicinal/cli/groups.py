"""``vicinal cluster`` and ``vicinal dedupe``: groups in a run's collection, as a table and a page of contact sheets."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from vicinal.cli.search import Trust

if TYPE_CHECKING:
    from vicinal.retrieval.clusters import Method
    from vicinal.retrieval.collection import Snapshot
    from vicinal.retrieval.contact_sheets import Contents
    from vicinal.training.console import Console


def cluster(
    run: Path,
    method: str = "k-means",
    groups: int | None = None,
    least: int = 5,
    distance: Annotated[float | None, typer.Option("--distance", "--max-distance")] = None,
    max_false_match: Annotated[float | None, typer.Option(metavar="RATE")] = None,
    to: Annotated[Path | None, typer.Option(metavar="FOLDER")] = None,
    collection: Path | None = None,
    seed: int = 0,
    parquet: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    trust: Trust = False,
    device: str = "auto",
) -> None:
    """Cluster the collection of RUN by k-means or density into groups.csv and groups.html.

    Args:
        run: A run's folder.
        method: k-means, hdbscan or dbscan.
        groups: Number of groups, for k-means. Default: chosen by silhouette.
        least: Size of the smallest group, for hdbscan and dbscan.
        distance: For dbscan. Default: calibrated.
        max_false_match: For dbscan: calibrate its distance at this rate.
        to: Where to write. Default: RUN/clusters.
        collection: Where the collection is. Default: RUN/collection.
        seed: Seed of k-means.
        parquet: Also write map, groups and neighbors for embedding-atlas.
        device: For a calibration: auto, cpu or cuda.
    """
    from vicinal.errors import ConfigError
    from vicinal.parallel import pick_device
    from vicinal.retrieval.calibration import DENSE_RATE, distance_threshold
    from vicinal.retrieval.clusters import cluster as group
    from vicinal.retrieval.clusters import cluster_contents
    from vicinal.retrieval.collection import snapshot_of
    from vicinal.run_directory import RunDirectory
    from vicinal.training.console import Console

    opened, words = RunDirectory.open(run), list[str]()
    snapshot = snapshot_of(opened, collection, trust=trust)
    if method == "dbscan":
        device_ = pick_device(device)
        near = distance_threshold(opened, distance=distance, rate=max_false_match, usual=DENSE_RATE, device=device_)
        distance, words = near.distance, [near.words]
    elif max_false_match is not None:
        raise ConfigError(f"--max-false-match calibrates DBSCAN's distance; got --method {method}. Leave it out.")
    known = cast("Method", method)  # checked there
    found = group(snapshot.euclidean_vectors(), method=known, groups=groups, distance=distance, least=least, seed=seed)
    contents = cluster_contents(snapshot, found, *words)
    write(Console(), snapshot, contents, (opened.path / "clusters" if to is None else to) / "groups")
    if parquet is not None:
        from vicinal.retrieval.map import write_parquet

        ids = [item.id for item in snapshot.items()]
        held = {ids[row]: group.number for group in contents.groups for row in group.rows}
        count = write_parquet(snapshot, parquet, held)
        command = f"embedding-atlas {parquet} --x x --y y --text text --neighbors neighbors"
        typer.echo(f"parquet: {parquet}, {count} rows; open it with `{command}`")


def dedupe(
    run: Path,
    distance: Annotated[float | None, typer.Option("--distance", "--max-distance")] = None,
    embeddings: Annotated[bool, typer.Option("--embeddings")] = False,
    to: Annotated[Path | None, typer.Option(metavar="FOLDER")] = None,
    collection: Path | None = None,
    trust: Trust = False,
) -> None:
    """List near duplicates in the collection of RUN in duplicates.csv and duplicates.html. Nothing is deleted.

    Pixels are compared, not embeddings: copies, crops, re-encoded and resized pictures are found, whatever their class.

    Args:
        run: A run's folder.
        distance: Largest distance of duplicates. Default: calibrated.
        embeddings: Compare embeddings within --distance instead of pictures.
        to: Where to write. Default: RUN/duplicates.
        collection: Where the collection is. Default: RUN/collection.
    """
    from vicinal.errors import ConfigError
    from vicinal.retrieval import duplicates
    from vicinal.retrieval.collection import snapshot_of
    from vicinal.run_directory import RunDirectory
    from vicinal.training.console import Console

    opened, console, words = RunDirectory.open(run), Console(), "The distance was named."
    snapshot = snapshot_of(opened, collection, trust=trust)
    if distance is not None and not 0 <= distance < float("inf"):
        raise ConfigError(f"a distance is 0 or more; got --distance {distance}.")
    if embeddings and distance is None:
        raise ConfigError("--embeddings compares within a distance of your own. Name it with --distance.")
    with console.following(len(snapshot), 0, "reading" if not embeddings else "comparing") as follower:
        if embeddings and distance is not None:
            pairs = duplicates.close_pairs(snapshot.euclidean_vectors(), distance, progress=follower.advance)
            found = duplicates.group_pairs(len(snapshot), pairs)
        else:
            rows, views = duplicates.collection_views(snapshot, follower.advance)
            if distance is None:
                likeness = duplicates.calibrate_likeness(snapshot, rows, views)
                distance, words = likeness.distance, likeness.words
            found = duplicates.find_duplicates(snapshot, rows, views, distance)
    contents = duplicates.duplicate_contents(snapshot, found, distance or 0.0, [words])
    write(console, snapshot, contents, (opened.path / "duplicates" if to is None else to) / "duplicates")


def write(console: "Console", snapshot: "Snapshot", contents: "Contents", stem: Path, rows: str | None = None) -> None:
    """Write groups as a table, whose text may be given, and as a page; print the facts and where they are."""
    from vicinal.retrieval.contact_sheets import write_groups

    table, page = stem.with_suffix(".csv"), stem.with_suffix(".html")
    with console.following(contents.pictures, 0, "pictures") as follower:
        write_groups(snapshot, contents, table, page, follower.advance, rows)
    for sentence in contents.lead:
        typer.echo(sentence)
    typer.echo("; ".join(f"{name}: {value}" for name, value in contents.facts))
    typer.echo(f"table: {table}\npage: {page}")
