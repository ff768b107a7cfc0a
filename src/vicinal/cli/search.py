"""``vicinal search``: the items of a collection that are nearest to a query."""

import json
import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vicinal.errors import ConfigError

if TYPE_CHECKING:
    from vicinal.retrieval.collection import Snapshot
    from vicinal.retrieval.query import Answer


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
    sheet = "sheet"


def search(
    run: Path,
    queries: Annotated[list[Path] | None, typer.Argument(metavar="[QUERY]...")] = None,
    label: list[str] | None = None,
    id: list[int] | None = None,
    k: int = 10,
    where: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE")] = None,
    text: list[str] | None = None,
    max_false_match: Annotated[float | None, typer.Option(metavar="RATE")] = None,
    max_distance: float | None = None,
    format: Format = Format.table,
    out: Path = Path("search.png"),
    collection: Path | None = None,
    images: Images = None,
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
        max_distance: Report `no match` beyond this distance.
        format: table, json, or sheet: a picture.
        out: The picture to write with --format sheet.
        collection: Where the collection is. Default: RUN/collection.
        store: The Milvus file or URL to search in. Default: the collection's own vectors.
        device: auto, cpu or cuda.

    Examples:
        vicinal search runs/birds wren.jpg
        vicinal search runs/birds --id 12 --k 5 --format sheet --out near.png
    """
    from vicinal.parallel import pick_device
    from vicinal.retrieval.collection import snapshot_of
    from vicinal.retrieval.model import load_asking
    from vicinal.retrieval.query import ask, conditions, query_of
    from vicinal.run_directory import RunDirectory

    opened = RunDirectory.open(run)
    threshold = None
    snapshot = snapshot_of(opened, collection, images=images or (), engine=store)
    model, reader = load_asking(run, device=device) if queries or text else (None, None)
    query = query_of(
        snapshot,
        model,
        reader=reader,
        files=queries or (),
        texts=text or (),
        ids=id or (),
        labels=label or (),
    )
    if max_false_match is not None or max_distance is not None:
        from vicinal.retrieval.calibration import distance_threshold

        found = distance_threshold(
            opened,
            distance=max_distance,
            rate=max_false_match,
            device=pick_device(device),
            snapshot=snapshot,
        )
        threshold = found.distance
        if max_distance is None:
            typer.secho(f"no match beyond {found.distance:.4f}. {found.words}", err=True)
    answer = ask(snapshot, query, k, where=conditions(where or ()), threshold=threshold)
    if format is Format.json:
        typer.echo(json.dumps(answer.document(), indent=2, ensure_ascii=False))
    elif format is Format.sheet:
        tell_unnamed(snapshot)
        _write_sheet(snapshot, answer, queries or [], out)
    else:
        _print(answer)


def _print(answer: "Answer") -> None:
    if not answer.matches:
        far = answer.beyond
        where = "" if far is None else f": the nearest, {far.item.path}, lies at {far.distance:.4f}"
        typer.echo(f"no match{where}.")
        return
    from vicinal.cli.tables import print_grid

    near = answer.matches
    rows = (
        (f"{each.distance:.4f}", str(each.item.id), each.item.label or "", each.item.path)
        for each in near
    )
    title = f"nearest to {answer.query.title}"
    heads = ("distance", "id", "label", "path")
    print_grid(title, heads, rows, unbroken=(), left=(2, 3))


def _write_sheet(snapshot: "Snapshot", answer: "Answer", files: list[Path], out: Path) -> None:
    from vicinal.data.images import read_image
    from vicinal.files import write_atomically
    from vicinal.retrieval.contact_sheets import Tile, contact_sheet, item_tile

    if out.suffix.lower() != ".png":
        raise ConfigError(f"a contact sheet is a PNG; got --out {out}. Let the name end in .png.")
    pictures = [file for file in files if file.suffix.lower() not in (".npy", ".npz")]
    tiles = [Tile(read_image(file), "query", file.name) for file in pictures]
    tiles += [item_tile(snapshot, id, "query") for id in answer.query.exclude]
    tiles += [
        item_tile(snapshot, match.item.id, f"{match.distance:.4f}") for match in answer.matches
    ]
    if not tiles:
        typer.echo("no match, so there is nothing to show.")
        return
    write_atomically(out, lambda file: contact_sheet(tiles).save(file, "PNG"))
    typer.echo(f"{len(answer.matches)} matches: {out}")
