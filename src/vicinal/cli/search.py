"""``vicinal index``, ``search`` and ``serve``: make a run's collection, ask it, and show it in the browser."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vicinal.errors import ConfigError

if TYPE_CHECKING:
    from vicinal.retrieval.collection import Snapshot
    from vicinal.retrieval.query import Answer


Trust = Annotated[
    bool,
    typer.Option("--trust", help="Use folders and engines named by a collection of another user or of version 0.1."),
]


class Format(StrEnum):
    table = "table"
    json = "json"
    sheet = "sheet"


def index(
    run: Path,
    paths: Annotated[list[str] | None, typer.Argument(metavar="[PATH]...")] = None,
    collection: Path | None = None,
    split: str = "all",
    images: str | None = None,
    remove: Annotated[list[str] | None, typer.Option(metavar="PATH")] = None,
    store: str | None = None,
    store_index: str | None = None,
    skip_corrupt: bool = False,
    trust: Trust = False,
    device: str = "auto",
    batch_size: int = 256,
    workers: int = 0,
    ray: Annotated[int | None, typer.Option(metavar="WORKERS")] = None,
) -> None:
    """Embed everything in PATH with the model of RUN, so that it can be searched.

    Indexing again adds new files, replaces changed ones and removes missing ones. It resumes after an interruption.

    Args:
        run: A run's folder.
        paths: Folders, tables, archives or data sets of images, or feature vectors for a run on features. Default:
            update the collection; if there is none, index the run's own data.
        collection: Where the collection is. Default: RUN/collection.
        split: For data with splits: train, validation, test, or all.
        images: Folder that a table's paths are relative to, or the images of feature vectors.
        remove: Remove this source from the collection.
        store: Engine: flat, or a Milvus file (milvus.db) or URL. Default: unchanged; at first flat.
        store_index: How Milvus searches: FLAT, HNSW or IVF.
        skip_corrupt: Leave unreadable images out instead of stopping.
        device: auto, cpu or cuda.
        batch_size: Rows at a time.
        workers: Processes that read images.
        ray: Embed with this many workers of the Ray cluster at RAY_ADDRESS, or here.

    Examples:
        vicinal index runs/birds pictures/
        vicinal index runs/birds --split test
    """
    from vicinal.parallel import pick_device
    from vicinal.retrieval.indexing import Request
    from vicinal.retrieval.indexing import index as bring_up_to_date
    from vicinal.run_directory import RunDirectory
    from vicinal.training.console import Console

    request = Request(
        paths=paths or (),
        remove=remove or (),
        split=split,
        images=images,
        batch_size=batch_size,
        workers=workers,
        ray=ray,
        skip_corrupt=skip_corrupt,
        store=store,
        store_index=store_index,
        trust=trust,
    )
    console = Console()
    try:
        done = bring_up_to_date(
            RunDirectory.open(run), request, console, collection=collection, device=pick_device(device)
        )
    except KeyboardInterrupt:
        console.line("interrupted. What was embedded is kept; the same command goes on from there.", warning=True)
        raise
    left_out = f", {len(done.unreadable)} unreadable left out" if done.unreadable else ""
    typer.echo(
        f"{done.items} items in generation {done.generation}: {done.added} added, {done.replaced} replaced, "
        f"{done.removed} removed, {done.embedded} embedded{left_out}."
    )
    if done.recall is not None:
        typer.echo(
            f"the index finds {done.recall:.1%} of the ten nearest that exact search finds (sample of the collection)."
        )


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
    trust: Trust = False,
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

    opened, threshold = RunDirectory.open(run), None
    snapshot = snapshot_of(opened, collection, trust=trust)
    model, reader = load_asking(run, device=device) if queries or text else (None, None)
    query = query_of(
        snapshot, model, reader=reader, files=queries or (), texts=text or (), ids=id or (), labels=label or ()
    )
    if max_false_match is not None or max_distance is not None:
        from vicinal.retrieval.calibration import distance_threshold

        found = distance_threshold(opened, distance=max_distance, rate=max_false_match, device=pick_device(device))
        threshold = found.distance
        if max_distance is None:
            typer.secho(f"no match beyond {found.distance:.4f}. {found.words}", err=True)
    answer = ask(snapshot, query, k, where=conditions(where or ()), threshold=threshold)
    if format is Format.json:
        typer.echo(json.dumps(answer.document(), indent=2, ensure_ascii=False))
    elif format is Format.sheet:
        _write_sheet(snapshot, answer, queries or [], out)
    else:
        _print(answer)


def _print(answer: "Answer") -> None:
    if not answer.matches:
        far = answer.beyond
        typer.echo(
            "no match" + ("." if far is None else f": the nearest, {far.item.path}, lies at {far.distance:.4f}.")
        )
        return
    from vicinal.cli.tables import print_grid

    near = answer.matches
    rows = ((f"{each.distance:.4f}", str(each.item.id), each.item.label or "", each.item.path) for each in near)
    title, heads = f"nearest to {answer.query.title}", ("distance", "id", "label", "path")
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
    tiles += [item_tile(snapshot, match.item.id, f"{match.distance:.4f}") for match in answer.matches]
    if not tiles:
        typer.echo("no match, so there is nothing to show.")
        return
    write_atomically(out, lambda file: contact_sheet(tiles).save(file, "PNG"))
    typer.echo(f"{len(answer.matches)} matches: {out}")


def serve(
    run: Path,
    collection: Annotated[Path | None, typer.Option(metavar="PATH")] = None,
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    allow_host: Annotated[list[str] | None, typer.Option(metavar="NAME")] = None,
    trust: Trust = False,
    device: str = "auto",
    max_false_match: Annotated[float | None, typer.Option(metavar="RATE")] = None,
    max_upload: Annotated[int, typer.Option(min=1, max=1024, metavar="MIB")] = 16,
) -> None:
    """Serve RUN as a web page: search its collection by picture, explore its map, see hard classes. Ctrl-C stops it.

    Args:
        run: A run's folder.
        collection: The collection to serve. Default: RUN/collection.
        host: Address to listen at; 127.0.0.1 is this machine alone.
        port: Port to listen at; 0 takes any that is free.
        allow_host: Another host name that browsers may use.
        device: Where uploads are embedded: auto, cpu or cuda.
        max_false_match: False-match rate of the "no match" threshold; default: 0.001 if calibrated.
        max_upload: Largest upload.

    Examples:
        vicinal serve runs/birds
    """

    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"serving needs FastAPI and uvicorn, which cannot be imported: {error}. Run `pip install 'vicinal[serve]'`."
        ) from error
    from vicinal.retrieval.serve.guard import MEBIBYTE, Limits
    from vicinal.retrieval.serve.library import open_library
    from vicinal.retrieval.serve.server import LOOPBACK
    from vicinal.retrieval.serve.server import serve as run_server

    library = open_library(run, collection=collection, device=device, rate=max_false_match, trust=trust)
    snapshot = library.collection.snapshot()
    typer.echo(f"{len(snapshot):,} items of generation {snapshot.generation}, {snapshot.dim} dimensions")
    if library.threshold is not None:
        typer.echo(f"no match beyond {library.threshold.distance:.4f}. {library.threshold.words}")
    if host not in LOOPBACK:
        typer.secho(f"listening at {host}: whoever reaches this machine can see the collection", fg="yellow", err=True)
    run_server(
        library,
        host=host,
        port=port,
        allow_hosts=tuple(allow_host or ()),
        limits=Limits(upload_bytes=max_upload * MEBIBYTE),
        ready=lambda address: typer.echo(f"serving at {address} (Ctrl-C ends)"),
    )
