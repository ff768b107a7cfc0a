"""``vicinal cluster``, ``dedupe``, ``clean``, ``suggest`` and ``mine``: what a collection or other
data hold, as tables and pages."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vicinal.cli.search import Images, tell_unnamed
from vicinal.errors import ConfigError

if TYPE_CHECKING:
    from vicinal.retrieval.collection import Snapshot
    from vicinal.retrieval.pages import Page

_PRINTED = 20  # findings; all stand in the table
To = Annotated[Path | None, typer.Option(metavar="FOLDER")]


def cluster(
    run: Path,
    data: Annotated[str | None, typer.Argument(metavar="[DATA]")] = None,
    groups: int | None = None,
    to: To = None,
    collection: Path | None = None,
    images: Images = None,
    device: str = "auto",
) -> None:
    """Cluster DATA or the collection of RUN by k-means into groups.csv and groups.html.

    Args:
        run: A run's folder.
        data: What to cluster. Default: the collection.
        groups: Number of groups. Default: as many as labels.
        to: Where to write. Default: RUN/clusters.
        collection: Where the collection is. Default: RUN/collection.
        device: auto, cpu or cuda.

    Examples:
        vicinal cluster runs/birds
        vicinal cluster runs/birds --groups 20
    """
    from vicinal.retrieval.overview import cluster_page

    snapshot = _snapshot(run, data, "clusters/collection", collection, images, device)
    page = cluster_page(snapshot, groups)
    _write(snapshot, page, (to or run / "clusters") / "groups")


def dedupe(
    run: Path,
    data: Annotated[str | None, typer.Argument(metavar="[DATA]")] = None,
    distance: float | None = None,
    embeddings: bool = False,
    to: To = None,
    collection: Path | None = None,
    images: Images = None,
    device: str = "auto",
) -> None:
    """List near duplicates in DATA or the collection of RUN in duplicates.csv and duplicates.html.
    Nothing is deleted.

    Pixels are compared, not embeddings: copies, crops, re-encoded and resized pictures are found,
    of any class.

    Args:
        run: A run's folder.
        data: Where to look. Default: the collection.
        distance: Largest distance of duplicates. Default: calibrated.
        embeddings: Compare embeddings within --distance instead of pictures.
        to: Where to write. Default: RUN/duplicates.
        collection: Where the collection is. Default: RUN/collection.
        device: auto, cpu or cuda.

    Examples:
        vicinal dedupe runs/birds
    """
    from vicinal.retrieval.duplicates import duplicate_page
    from vicinal.training.console import Console

    snapshot = _snapshot(run, data, "duplicates/collection", collection, images, device)
    with Console().following(len(snapshot), 0, "reading") as follower:
        page = duplicate_page(snapshot, distance, embeddings=embeddings, progress=follower.advance)
    _write(snapshot, page, (to or run / "duplicates") / "duplicates")


def clean(
    run: Path,
    data: Annotated[str | None, typer.Argument(metavar="[DATA]")] = None,
    apply: Annotated[Path | None, typer.Option(metavar="DECISIONS")] = None,
    to: To = None,
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
        to: Where to write. Default: RUN/clean.
        collection: Where the collection is. Default: RUN/collection.
        device: auto, cpu or cuda.

    Examples:
        vicinal clean runs/birds
        vicinal clean runs/birds --apply decisions.csv
    """
    from vicinal.cli.tables import print_grid
    from vicinal.parallel import pick_device
    from vicinal.retrieval.cleaning import backbone_features, find_issues
    from vicinal.retrieval.decisions import apply_decisions
    from vicinal.run_directory import RunDirectory
    from vicinal.training.console import Console

    folder = to or run / "clean"
    snapshot = _snapshot(run, data, "clean/collection", collection, images, device)
    if apply is not None:
        originals = {apply.resolve(), *(Path(place.path).resolve() for place in snapshot.places)}
        for name in ("labels.csv", "labels.npz"):
            if (folder / name).resolve() in originals:
                raise ConfigError(
                    f"corrected labels are a new table, but {folder / name} is there. Name another "
                    "folder with --to."
                )
        corrected = apply_decisions(snapshot, apply)
        table = corrected.write(folder)
        added = f", new labels: {', '.join(corrected.added)}" if corrected.added else ""
        typer.echo(f"{corrected.changed:,} relabeled, {corrected.dropped:,} dropped{added}")
        command = f"; train on it: `vicinal train --data {shlex.quote(str(table))}`"
        typer.echo(f"table: {table}{command if corrected.trains else ''}")
        return
    features = backbone_features(RunDirectory.open(run), snapshot, pick_device(device))
    with Console().following(len(snapshot), 0, "comparing") as follower:
        found, page = find_issues(snapshot, features, follower.advance)
    shown = ((each, snapshot.items[each.row]) for each in found[:_PRINTED])
    rows = (
        (f"{each.score:.3f}", each.kind, item.label or "", each.suggested, item.path)
        for each, item in shown
    )
    heads = ("score", "kind", "label", "suggested", "path")
    print_grid("", heads, rows, unbroken=(), left=range(1, 5))
    _write(snapshot, page, folder / "findings")
    named = shlex.quote(str(run))
    typer.echo(
        f"then: review them with `vicinal serve {named}`, and `vicinal clean {named} --apply "
        "decisions.csv`"
    )


def suggest(
    run: Path,
    pool: str,
    k: int = 100,
    to: To = None,
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
    from vicinal.retrieval.suggestions import suggestions_page

    known = _snapshot(run, None, "", collection, images, device)
    asked = _snapshot(run, pool, "suggest/collection", None, images, device)
    page = suggestions_page(asked, known, k)
    _write(asked, page, (to or run / "suggest") / "suggestions")


def _snapshot(
    run: Path,
    data: str | None,
    own: str,
    collection: Path | None,
    images: list[str] | None,
    device: str,
) -> "Snapshot":
    """Return the named data, indexed in a folder of their own, or the run's collection, made if
    missing."""
    from vicinal.data.folder import expanded
    from vicinal.parallel import pick_device
    from vicinal.retrieval.collection import FOLDER, CollectionDirectory
    from vicinal.retrieval.indexing import index
    from vicinal.retrieval.listing import absolute_place
    from vicinal.run_directory import RunDirectory
    from vicinal.training.console import Console

    if data is not None and collection is not None:
        raise ConfigError(
            f"DATA and --collection both name what to look at; got {data} and {collection}. Give "
            "one."
        )
    opened = RunDirectory.open(run)
    named = list(images or ())
    place = run / (own if data is not None else FOLDER)
    held = CollectionDirectory(place)
    if data is not None or (collection is None and not held.latest_generation()):
        before = held.snapshot().places if held.latest_generation() else ()
        asked = "" if data is None else absolute_place(data)
        gone = [each.path for each in before if each.path != asked]  # what was looked at before
        index(
            opened,
            () if data is None else (data,),
            console=Console(),
            remove=gone,
            collection=place,
            device=pick_device(device),
        )
        collection = place
        named += [data] if data is not None and expanded(data).exists() else []
    return CollectionDirectory.of(opened, collection, images=named).snapshot()


def _write(snapshot: "Snapshot", page: "Page", stem: Path) -> None:
    """Write the table and the page; print the facts and where they are."""
    tell_unnamed(snapshot)
    table, written = page.write(snapshot, stem)
    for sentence in page.lead:
        typer.echo(sentence)
    typer.echo("; ".join(f"{name}: {value}" for name, value in page.facts))
    typer.echo(f"table: {table}\npage: {written}")


def mine(
    run: Path,
    data: str,
    out: Path = Path("triplets.parquet"),
    negatives: int = 1,
    margin: float = 0.05,
    device: str = "auto",
) -> None:
    """Write hard triplets of DATA as Parquet, by the model of RUN, to train sentence-transformers.

    Args:
        run: A run's folder.
        data: Labeled data: class folders, table of texts or images.
        out: The file to write.
        negatives: Triplets for each record, at most.
        margin: How much less alike a negative is than the nearest of the class, to be none of it.
        device: auto, cpu or cuda.

    Examples:
        vicinal mine runs/questions questions.csv --out triplets.parquet
    """
    from vicinal.data import records_at
    from vicinal.evaluation.encoder import Encoder
    from vicinal.parallel import pick_device
    from vicinal.retrieval import mining
    from vicinal.run_directory import RunDirectory
    from vicinal.training.console import Console

    opened = RunDirectory.open(run)
    records = records_at(data, opened)
    encoder = Encoder.load(opened, pick_device(device))
    console = Console()
    with console.following(len(records), 0, "embedding") as follower:
        embedded = encoder.embed(records, progress=follower.advance)
    with console.following(len(records), 0, "mining") as follower:
        count = mining.mine(
            embedded, out, negatives=negatives, margin=margin, progress=follower.advance
        )
    typer.echo(f"{count} triplets of {len(embedded.vectors)} records: {out}")
