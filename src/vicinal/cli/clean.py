"""``vicinal clean`` and ``vicinal suggest``: what is wrong in a labeled collection, and what to label next."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vicinal.cli.groups import write
from vicinal.cli.search import Trust, print_rows

if TYPE_CHECKING:
    from vicinal.retrieval.collection import Snapshot
    from vicinal.run_directory import RunDirectory
    from vicinal.training.console import Console

_PRINTED = 20  # findings; all stand in the table


def clean(
    run: Path,
    data: Annotated[str | None, typer.Argument(metavar="[DATA]")] = None,
    apply: Annotated[Path | None, typer.Option(metavar="DECISIONS")] = None,
    new_labels: Annotated[bool, typer.Option("--new-labels")] = False,
    to: Annotated[Path | None, typer.Option(metavar="FOLDER")] = None,
    collection: Path | None = None,
    trust: Trust = False,
    device: str = "auto",
) -> None:
    """List probable label errors, near duplicates across classes, outliers and classes that overlap.

    Writes findings.csv and findings.html; with --apply labels.csv, a new table. The data stay as they are.

    Args:
        run: A run's folder.
        data: Labeled data. Default: the collection; without one, the run's own.
        apply: A table of path,label: write the corrected labels. Empty label: drop.
        new_labels: Allow new classes in DECISIONS.
        to: Where to write. Default: RUN/clean.
        collection: Where the collection is. Default: RUN/collection.
        device: auto, cpu or cuda.
    """
    from vicinal.errors import ConfigError
    from vicinal.parallel import pick_device
    from vicinal.retrieval.cleaning import (
        apply_decisions,
        backbone_features,
        find_issues,
        findings_contents,
        findings_table,
    )
    from vicinal.retrieval.contact_sheets import write_shown
    from vicinal.run_directory import RunDirectory
    from vicinal.training.console import Console

    opened, console = RunDirectory.open(run), Console()
    folder = opened.path / "clean" if to is None else to
    snapshot = _snapshot(opened, console, data, "clean/collection", collection, trust, device)
    if apply is not None:
        table = folder / "labels.csv"
        originals = {apply.resolve(), *(Path(place.path).resolve() for place in snapshot.places)}
        if table.resolve() in originals or (to is not None and table.exists()):
            raise ConfigError(f"corrected labels are a new table, but {table} is there. Name another folder with --to.")
        text, changed, dropped = apply_decisions(snapshot, apply, new_labels=new_labels)
        write_shown(table, text)
        typer.echo(f"{changed:,} relabeled, {dropped:,} dropped, the data as they were\ntable: {table}")
        return
    features = backbone_features(opened, snapshot, pick_device(device))
    with console.following(len(snapshot), 0, "comparing") as follower:
        findings = find_issues(snapshot, features, follower.advance)
    items = snapshot.items()
    shown = ((each, items[each.row]) for each in findings.found[:_PRINTED])
    print_rows(
        ("score", "kind", "label", "suggested", "path"),
        ((f"{each.score:.3f}", each.kind, item.label or "", each.suggested, item.path) for each, item in shown),
    )
    contents = findings_contents(snapshot, findings)
    write(console, snapshot, contents, folder / "findings", findings_table(snapshot, findings))


def suggest(
    run: Path,
    pool: str,
    k: int = 100,
    to: Annotated[Path | None, typer.Option(metavar="FOLDER")] = None,
    collection: Path | None = None,
    trust: Trust = False,
    device: str = "auto",
) -> None:
    """Choose what to label next: items that represent most of the unlabeled part of POOL.

    Writes suggestions.csv, with a column `label` to fill in, and suggestions.html. Labels of POOL are ignored.

    Args:
        run: A run's folder.
        pool: What may be labeled: a folder, table or array file.
        k: Number of items to choose.
        to: Where to write. Default: RUN/suggest.
        collection: Collection of what is labeled. Default: RUN/collection.
        device: auto, cpu or cuda.
    """
    from vicinal.retrieval.cleaning import choose, suggestions_contents, suggestions_table
    from vicinal.run_directory import RunDirectory
    from vicinal.training.console import Console

    opened, console = RunDirectory.open(run), Console()
    known = _snapshot(opened, console, None, "", collection, trust, device)
    asked = _snapshot(opened, console, pool, "suggest/collection", None, trust, device)
    chosen = choose(asked, known, k)
    contents = suggestions_contents(asked, chosen)
    folder = opened.path / "suggest" if to is None else to
    write(console, asked, contents, folder / "suggestions", suggestions_table(asked, chosen))


def _snapshot(
    run: "RunDirectory",
    console: "Console",
    data: str | None,
    own: str,
    collection: Path | None,
    trust: bool,
    device: str,
) -> "Snapshot":
    """Return the named data, indexed in a folder of their own, or the run's collection, made if missing."""
    from vicinal.errors import ConfigError
    from vicinal.parallel import pick_device
    from vicinal.retrieval.collection import FOLDER, POINTER, CollectionDirectory, snapshot_of
    from vicinal.retrieval.indexing import Request, absolute_place, index

    if data is not None and collection is not None:
        raise ConfigError(f"DATA and --collection both name what to look at; got {data} and {collection}. Give one.")
    if data is None and (collection is not None or (run.path / FOLDER / POINTER).is_file()):
        return snapshot_of(run, collection, trust=trust)
    place, held = run.path / (FOLDER if data is None else own), list[str]()
    if data is not None and (place / POINTER).is_file():  # what was looked at before
        held = [each.path for each in CollectionDirectory(place).snapshot().places if each.path != absolute_place(data)]
    request = Request(paths=() if data is None else (data,), remove=held, trust=trust)
    index(run, request, console, collection=place, device=pick_device(device))
    return CollectionDirectory.open(place, trust=trust).snapshot()
