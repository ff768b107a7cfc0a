"""``vicinal cluster``, ``dedupe``, ``clean`` and ``suggest``: what a collection holds, as tables
and contact sheets."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vicinal.cli.search import Images, tell_unnamed
from vicinal.errors import ConfigError

if TYPE_CHECKING:
    from vicinal.retrieval.collection import Snapshot
    from vicinal.retrieval.contact_sheets import Contents
    from vicinal.run_directory import RunDirectory
    from vicinal.training.console import Console

_PRINTED = 20  # findings; all stand in the table


def cluster(
    run: Path,
    method: str = "k-means",
    groups: int | None = None,
    least: int = 5,
    to: Annotated[Path | None, typer.Option(metavar="FOLDER")] = None,
    collection: Path | None = None,
    images: Images = None,
) -> None:
    """Cluster the collection of RUN by k-means or density into groups.csv and groups.html.

    Args:
        run: A run's folder.
        method: k-means, or hdbscan, which leaves outliers in no group.
        groups: Number of groups, for k-means. Default: chosen by silhouette.
        least: Size of the smallest group, for hdbscan.
        to: Where to write. Default: RUN/clusters.
        collection: Where the collection is. Default: RUN/collection.

    Examples:
        vicinal cluster runs/birds
        vicinal cluster runs/birds --groups 20
    """
    from vicinal.retrieval.clusters import cluster as group
    from vicinal.retrieval.clusters import cluster_contents
    from vicinal.retrieval.collection import snapshot_of

    opened, console = _opened(run)
    snapshot = snapshot_of(opened, collection, images=images or ())
    tell_unnamed(snapshot)
    found = group(snapshot.euclidean_vectors(), method=method, groups=groups, least=least)
    folder = opened.path / "clusters" if to is None else to
    _write(console, snapshot, cluster_contents(snapshot, found), folder / "groups")


def dedupe(
    run: Path,
    distance: Annotated[float | None, typer.Option("--distance", "--max-distance")] = None,
    embeddings: Annotated[bool, typer.Option("--embeddings")] = False,
    to: Annotated[Path | None, typer.Option(metavar="FOLDER")] = None,
    collection: Path | None = None,
    images: Images = None,
) -> None:
    """List near duplicates in the collection of RUN in duplicates.csv and duplicates.html. Nothing
    is deleted.

    Pixels are compared, not embeddings: copies, crops, re-encoded and resized pictures are found,
    whatever their class.

    Args:
        run: A run's folder.
        distance: Largest distance of duplicates. Default: calibrated.
        embeddings: Compare embeddings within --distance instead of pictures.
        to: Where to write. Default: RUN/duplicates.
        collection: Where the collection is. Default: RUN/collection.

    Examples:
        vicinal dedupe runs/birds
    """
    from vicinal.retrieval import duplicates
    from vicinal.retrieval.collection import snapshot_of

    opened, console = _opened(run)
    words = "The distance was named."
    snapshot = snapshot_of(opened, collection, images=images or ())
    tell_unnamed(snapshot)
    if distance is not None and not 0 <= distance < float("inf"):
        raise ConfigError(f"a distance is 0 or more; got --distance {distance}.")
    if embeddings and distance is None:
        raise ConfigError(
            "--embeddings compares within a distance of your own. Name it with --distance."
        )
    with console.following(len(snapshot), 0, "reading") as follower:
        if embeddings and distance is not None:
            vectors = snapshot.euclidean_vectors()
            pairs = duplicates.close_pairs(vectors, distance, progress=follower.advance)
        else:
            rows, views = duplicates.collection_views(snapshot, follower.advance)
            if distance is None:
                likeness = duplicates.calibrate_likeness(snapshot, rows, views)
                distance = likeness.distance
                words = likeness.words
            pairs = duplicates.duplicate_pairs(snapshot, rows, views, distance)
    groups = duplicates.group_pairs(len(snapshot), pairs)
    contents = duplicates.duplicate_contents(snapshot, groups, distance, words)
    folder = opened.path / "duplicates" if to is None else to
    _write(console, snapshot, contents, folder / "duplicates")


def clean(
    run: Path,
    data: Annotated[str | None, typer.Argument(metavar="[DATA]")] = None,
    apply: Annotated[Path | None, typer.Option(metavar="DECISIONS")] = None,
    new_labels: Annotated[bool, typer.Option("--new-labels")] = False,
    to: Annotated[Path | None, typer.Option(metavar="FOLDER")] = None,
    collection: Path | None = None,
    images: Images = None,
    device: str = "auto",
) -> None:
    """List probable label errors, near duplicates across classes, outliers and classes that
    overlap.

    Writes findings.csv and findings.html; with --apply labels.csv, a new table. The data stay as
    they are.

    Args:
        run: A run's folder.
        data: Labeled data. Default: the collection; without one, the run's own.
        apply: A table of path,label: write the corrected labels. Empty label: drop.
        new_labels: Allow new classes in DECISIONS.
        to: Where to write. Default: RUN/clean.
        collection: Where the collection is. Default: RUN/collection.
        device: auto, cpu or cuda.

    Examples:
        vicinal clean runs/birds
        vicinal clean runs/birds --apply decisions.csv
    """
    from vicinal.cli.tables import print_grid
    from vicinal.files import write_arrays
    from vicinal.parallel import pick_device
    from vicinal.retrieval import cleaning
    from vicinal.retrieval.contact_sheets import write_shown
    from vicinal.retrieval.decisions import apply_decisions

    opened, console = _opened(run)
    folder = opened.path / "clean" if to is None else to
    snapshot = _snapshot(opened, data, "clean/collection", collection, images, device)
    if apply is not None:
        originals = {apply.resolve(), *(Path(place.path).resolve() for place in snapshot.places)}
        table = folder / "labels.csv"
        arrays = folder / "labels.npz"
        for path in (table, arrays):
            if path.resolve() in originals or (to is not None and path.exists()):
                is_there = f"corrected labels are a new table, but {path} is there"
                raise ConfigError(f"{is_there}. Name another folder with --to.")
        corrected = apply_decisions(snapshot, apply, new_labels=new_labels)
        write_shown(table, corrected.table)
        if corrected.arrays is not None:
            write_arrays(table := arrays, corrected.arrays)
        typer.echo(
            f"{corrected.changed:,} relabeled, {corrected.dropped:,} dropped, the data as they were"
        )
        retrain = (
            f"; train on it: `vicinal train --data {shlex.quote(str(table))}`"
            if corrected.trains
            else ""
        )
        typer.echo(f"table: {table}{retrain}")
        return
    features = cleaning.backbone_features(opened, snapshot, pick_device(device))
    with console.following(len(snapshot), 0, "comparing") as follower:
        findings = cleaning.find_issues(snapshot, features, follower.advance)
    items = snapshot.items()
    shown = ((each, items[each.row]) for each in findings.found[:_PRINTED])
    rows = (
        (f"{each.score:.3f}", each.kind, item.label or "", each.suggested, item.path)
        for each, item in shown
    )
    print_grid(
        "", ("score", "kind", "label", "suggested", "path"), rows, unbroken=(), left=range(1, 5)
    )
    contents = cleaning.findings_contents(snapshot, findings)
    _write(
        console,
        snapshot,
        contents,
        folder / "findings",
        cleaning.findings_table(snapshot, findings),
    )
    if findings.found and data is None and to is None and collection is None:
        named = shlex.quote(str(run))
        typer.echo(
            f"then: review them with `vicinal serve {named}`, and `vicinal clean {named} --apply "
            "decisions.csv`"
        )


def suggest(
    run: Path,
    pool: str,
    k: int = 100,
    to: Annotated[Path | None, typer.Option(metavar="FOLDER")] = None,
    collection: Path | None = None,
    images: Images = None,
    device: str = "auto",
) -> None:
    """Choose what to label next: items that represent most of the unlabeled part of POOL.

    Writes suggestions.csv, with a column `label` to fill in, and suggestions.html. Labels of POOL
    are ignored.

    Args:
        run: A run's folder.
        pool: What may be labeled: a folder, table or array file.
        k: Number of items to choose.
        to: Where to write. Default: RUN/suggest.
        collection: Collection of what is labeled. Default: RUN/collection.
        device: auto, cpu or cuda.

    Examples:
        vicinal suggest runs/birds pool/ --k 100
    """
    from vicinal.retrieval.suggestions import choose, suggestions_contents, suggestions_table

    opened, console = _opened(run)
    known = _snapshot(opened, None, "", collection, images, device)
    asked = _snapshot(opened, pool, "suggest/collection", None, images, device)
    chosen = choose(asked, known, k)
    contents = suggestions_contents(chosen)
    folder = opened.path / "suggest" if to is None else to
    _write(console, asked, contents, folder / "suggestions", suggestions_table(asked, chosen))


def _opened(run: Path) -> "tuple[RunDirectory, Console]":
    from vicinal.run_directory import RunDirectory
    from vicinal.training.console import Console

    return RunDirectory.open(run), Console()


def _snapshot(
    run: "RunDirectory",
    data: str | None,
    own: str,
    collection: Path | None,
    images: list[str] | None,
    device: str,
) -> "Snapshot":
    """Return the named data, indexed in a folder of their own, or the run's collection, made if
    missing."""
    from vicinal.data.location import expanded
    from vicinal.parallel import pick_device
    from vicinal.retrieval.collection import FOLDER, CollectionDirectory, snapshot_of
    from vicinal.retrieval.indexing import Request, index
    from vicinal.retrieval.listing import absolute_place
    from vicinal.training.console import Console

    if data is not None and collection is not None:
        raise ConfigError(
            f"DATA and --collection both name what to look at; got {data} and {collection}. Give "
            "one."
        )
    named = list(images or ())
    place = run.path / (own if data is not None else FOLDER)
    held = CollectionDirectory(place)
    if data is not None or (collection is None and not held.latest_generation()):
        before = held.snapshot().places if held.latest_generation() else ()
        asked = "" if data is None else absolute_place(data)
        gone = [each.path for each in before if each.path != asked]  # what was looked at before
        request = Request(paths=() if data is None else (data,), remove=gone)
        index(run, request, Console(), collection=place, device=pick_device(device))
        collection = place
        named += [data] if data is not None and expanded(data).exists() else []
    snapshot = snapshot_of(run, collection, images=named)
    tell_unnamed(snapshot)
    return snapshot


def _write(
    console: "Console",
    snapshot: "Snapshot",
    contents: "Contents",
    stem: Path,
    rows: str | None = None,
) -> None:
    """Write groups as a table, whose text may be given, and as a page; print the facts and where
    they are."""
    from vicinal.retrieval.contact_sheets import as_page, as_table, write_shown

    table = stem.with_suffix(".csv")
    page = stem.with_suffix(".html")
    with console.following(contents.pictures, 0, "pictures") as follower:
        write_shown(table, as_table(snapshot, contents.groups) if rows is None else rows)
        write_shown(page, as_page(snapshot, contents, table.name, follower.advance))
    for sentence in contents.lead:
        typer.echo(sentence)
    typer.echo("; ".join(f"{name}: {value}" for name, value in contents.facts))
    typer.echo(f"table: {table}\npage: {page}")
