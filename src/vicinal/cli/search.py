"""``vicinal search``: the items of a collection that are nearest to a query."""

import json
import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from vicinal.retrieval.collection import Snapshot


Images = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FOLDER", help="Show pictures below this folder, too. Default: the run's own data."
    ),
]


def tell_unnamed(snapshot: "Snapshot") -> None:
    """Say which pictures are not read, since neither the run's own data nor the user names them."""
    for folder in snapshot.pictures.unnamed:
        typer.secho(
            f"pictures in {folder} are not shown; name it: --images {shlex.quote(folder)}",
            fg="yellow",
            err=True,
        )


class Format(StrEnum):
    table = "table"
    json = "json"


def search(
    run: Path,
    queries: Annotated[list[Path] | None, typer.Argument(metavar="[QUERY]...")] = None,
    label: list[str] | None = None,
    id: list[int] | None = None,
    k: int = 10,
    where: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE")] = None,
    text: list[str] | None = None,
    max_false_match: Annotated[float | None, typer.Option(metavar="RATE")] = None,
    format: Format = Format.table,
    collection: Path | None = None,
    store: str | None = None,
    device: str = "auto",
) -> None:
    """Search the collection of RUN by image, by text, by item or by label.

    Args:
        run: A run's folder.
        queries: Images (.npy or .npz for a run on features); several are averaged.
        label: Search from the mean of the items with this label.
        id: Search from this item of the collection.
        k: Number of results.
        where: Only items with this label, path or metadata.
        text: Search by this description.
        max_false_match: Report `no match` beyond the distance with this false-match rate.
        format: table or json.
        collection: Where the collection is. Default: RUN/collection.
        store: The Milvus file or URL to search in. Default: the collection's own vectors.
        device: auto, cpu or cuda.

    Examples:
        vicinal search runs/birds wren.jpg
        vicinal search runs/birds --id 12 --k 5 --where label=wren
    """
    from vicinal.cli.tables import print_grid
    from vicinal.parallel import pick_device
    from vicinal.retrieval.calibration import calibration
    from vicinal.retrieval.collection import CollectionDirectory
    from vicinal.retrieval.model import load_asking
    from vicinal.retrieval.query import conditions, query_vector
    from vicinal.run_directory import RunDirectory

    opened = RunDirectory.open(run)
    snapshot = CollectionDirectory.of(opened, collection, engine=store).snapshot()
    files = queries or []
    texts = text or []
    ids = id or []
    labels = label or []
    model, reader = load_asking(run, device=device) if files or texts else (None, None)
    vector = query_vector(
        snapshot, model, reader=reader, files=files, texts=texts, ids=ids, labels=labels
    )
    near = snapshot.search(vector[None], k, where=conditions(where or ()), exclude=ids)[0]
    matches = near
    threshold = None
    if max_false_match is not None:
        counts = calibration(opened, device=pick_device(device), snapshot=snapshot)
        threshold = counts.threshold(max_false_match)
        matches = [match for match in near if match.distance <= threshold.distance]
        typer.secho(f"no match beyond {threshold.distance:.4f}. {threshold.words}", err=True)
    named = [*map(str, files), *texts, *(f"item {id}" for id in ids), *labels]
    asked = ("mean of " if len(named) > 1 else "") + ", ".join(named)
    if format is Format.json:
        answer = {
            "query": asked,
            "generation": snapshot.generation,
            "metric": snapshot.metric,
            "threshold": threshold and threshold.distance,
            "matches": [{**match.item.document, "distance": match.distance} for match in matches],
        }
        typer.echo(json.dumps(answer, indent=2, ensure_ascii=False))
    elif matches:
        rows = (
            (f"{each.distance:.4f}", str(each.item.id), each.item.label or "", each.item.path)
            for each in matches
        )
        heads = ("distance", "id", "label", "path")
        print_grid(f"nearest to {asked}", heads, rows, unbroken=(), left=(2, 3))
    else:
        far = (f": the nearest, {each.item.path}, lies at {each.distance:.4f}" for each in near)
        typer.echo(f"no match{next(far, '')}.")
