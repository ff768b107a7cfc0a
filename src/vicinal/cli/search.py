"""``vicinal index``, ``search`` and ``serve``: a run's collection, its nearest items, and both as a
page in the browser."""

import json
import shlex
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.errors import ConfigError, package

if TYPE_CHECKING:
    from vicinal.retrieval.collection import Snapshot


Images = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FOLDER", help="Show pictures below this folder, too. Default: the run's own data."
    ),
]


Rate = Annotated[float | None, typer.Option(metavar="RATE")]
Csv = Annotated[Path | None, typer.Option(metavar="CSV")]


def tell_unnamed(snapshot: "Snapshot") -> None:
    """Say which pictures are not read, since neither the run's own data nor the user names them."""
    for folder in snapshot.unnamed:
        typer.secho(
            f"pictures in {folder} are not shown; name it: --images {shlex.quote(folder)}",
            fg="yellow",
            err=True,
        )


def index(
    run: Path,
    paths: Annotated[list[str] | None, typer.Argument(metavar="[PATH]...")] = None,
    collection: Path | None = None,
    split: str = "all",
    images: str | None = None,
    remove: Annotated[list[str] | None, typer.Option(metavar="PATH")] = None,
    store: str | None = None,
    skip_corrupt: bool = False,
    device: str = "auto",
    batch_size: int = 256,
    workers: int = 0,
    ray: Annotated[int | None, typer.Option(metavar="WORKERS")] = None,
) -> None:
    """Embed everything in PATH with the model of RUN, so that it can be searched.

    Indexing again adds new files, replaces changed ones and removes missing ones. It resumes after
    an interruption.

    Args:
        run: A run's folder.
        paths: Folders, tables or data sets of images, or feature vectors for a run on features.
            Default: the run's own data.
        collection: Where the collection is. Default: RUN/collection.
        split: For data with splits: train, validation, test, or all.
        images: Folder that a table's paths are relative to, or the images of feature vectors.
        remove: Remove this source from the collection.
        store: Keep a copy in Milvus (milvus.db or a URL) or LanceDB (birds.lance or s3://...).
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
    from vicinal.retrieval.indexing import index as bring_up_to_date
    from vicinal.run_directory import RunDirectory
    from vicinal.training.console import Console

    console = Console()
    try:
        done = bring_up_to_date(
            RunDirectory.open(run),
            paths or (),
            console=console,
            remove=remove or (),
            split=split,
            images=images,
            batch_size=batch_size,
            workers=workers,
            ray=ray,
            skip_corrupt=skip_corrupt,
            store=store,
            collection=collection,
            device=pick_device(device),
        )
    except KeyboardInterrupt:
        console.line(
            "interrupted. What was embedded is kept; the same command goes on from there.",
            warning=True,
        )
        raise
    left_out = f", {len(done.unreadable)} unreadable left out" if done.unreadable else ""
    typer.echo(
        f"{done.items} items in generation {done.generation}: {done.added} added, {done.replaced} "
        f"replaced, {done.removed} removed, {done.embedded} embedded{left_out}."
    )
    if done.recall is not None:
        typer.echo(
            f"the index finds {done.recall:.1%} of the ten nearest that exact search finds "
            "(sample of the collection)."
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
    max_false_match: Rate = None,
    thresholds: Csv = None,
    format: Format = Format.table,
    collection: Path | None = None,
    store: str | None = None,
    graph: str | None = None,
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
        thresholds: Report `no match` beyond the distances that `vicinal calibrate` wrote.
        format: table or json.
        collection: Where the collection is. Default: RUN/collection.
        store: The store to search in. Default: the collection's own vectors.
        graph: Embed by this graph of RUN/export: onnx, float16, int8 or openvino. Default: onnx if
            it is there, else torch.
        device: auto, cpu or cuda.

    Examples:
        vicinal search runs/birds wren.jpg
        vicinal search runs/birds --id 12 --k 5 --where label=wren
    """
    from vicinal.cli.tables import print_grid
    from vicinal.retrieval.asking import ExportedModel, conditions, query_vector
    from vicinal.retrieval.collection import CollectionDirectory
    from vicinal.run_directory import RunDirectory

    opened = RunDirectory.open(run)
    snapshot = CollectionDirectory.of(opened, collection, engine=store).snapshot()
    files = queries or []
    texts = text or []
    ids = id or []
    labels = label or []
    model: Any = None
    reader = None
    if graph is not None:
        model = ExportedModel.of(opened, graph)
    elif files and not texts and device in ("auto", "cpu"):
        with suppress(ConfigError):
            model = ExportedModel.of(opened)
    if model is None and (files or texts):
        from vicinal.retrieval.library import load_asking

        model, reader = load_asking(run, device=device)
    vector = query_vector(
        snapshot, model, reader=reader, files=files, texts=texts, ids=ids, labels=labels
    )
    near = snapshot.search(vector[None], k, where=conditions(where or ()), exclude=ids)[0]
    matches = near
    limit = None
    threshold: Any = None
    if thresholds is not None:
        from vicinal.retrieval.calibration import Threshold

        threshold = Threshold.read(thresholds)
    elif max_false_match is not None:
        from vicinal.parallel import pick_device
        from vicinal.retrieval.calibration import calibration

        across = bool(texts) and model.kind != "text"
        counts = calibration(opened, device=pick_device(device), texts=across)
        threshold = counts.threshold(max_false_match)
    if threshold is not None:
        limit = threshold.distance
        matches = [match for match in near if threshold.accepts(match)]
        typer.secho(f"no match beyond {limit:.4f}. {threshold.words}", err=True)
    pictures = [*map(str, files)]
    if model is not None and model.introspective and model.kind == "images":
        lengths = model.uncertainty(files)
        pictures = [
            f"{file} (uncertainty {length:.2f})"
            for file, length in zip(files, lengths, strict=True)
        ]
    named = [*pictures, *texts, *(f"item {id}" for id in ids), *labels]
    asked = ("mean of " if len(named) > 1 else "") + ", ".join(named)
    if format is Format.json:
        answer = {
            "query": asked,
            "generation": snapshot.generation,
            "metric": snapshot.metric,
            "threshold": limit,
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


def calibrate(
    run: Path,
    queries: Annotated[str | None, typer.Argument(metavar="[QUERIES]")] = None,
    max_false_match: Annotated[float, typer.Option(metavar="RATE")] = 0.001,
    to: Csv = None,
    collection: Path | None = None,
    device: str = "auto",
) -> None:
    """Set a distance threshold for each class in the collection of RUN, for `search` and `serve`.

    Args:
        run: A run's folder.
        queries: Labeled pictures, vectors or texts that will be asked. Default: the collection's
            own items.
        max_false_match: Share of the queries of other classes that may match an item of the class.
        to: The table to write. Default: RUN/thresholds.csv.
        collection: Where the collection is. Default: RUN/collection.
        device: auto, cpu or cuda.

    Examples:
        vicinal calibrate runs/birds asked/ --max-false-match 0.01
    """
    from vicinal.parallel import pick_device
    from vicinal.retrieval.calibration import thresholds
    from vicinal.retrieval.collection import CollectionDirectory
    from vicinal.run_directory import RunDirectory

    opened = RunDirectory.open(run)
    snapshot = CollectionDirectory.of(opened, collection).snapshot()
    path = to or run / "thresholds.csv"
    device_there = pick_device(device)
    made = thresholds(
        opened, snapshot, path, rate=max_false_match, queries=queries, device=device_there
    )
    least, *_, most = sorted(made.of_class.values())
    typer.echo(
        f"{len(made.of_class)} classes: no match beyond {least:.4f} to {most:.4f}; all together "
        f"{made.distance:.4f}\ntable: {path}"
    )


def serve(
    run: Path,
    collection: Annotated[Path | None, typer.Option(metavar="PATH")] = None,
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    allow_host: Annotated[list[str] | None, typer.Option(metavar="NAME")] = None,
    images: Images = None,
    store: str | None = None,
    graph: str | None = None,
    device: str = "auto",
    max_false_match: Rate = None,
    thresholds: Csv = None,
    token: Annotated[str | None, typer.Option(envvar="VICINAL_TOKEN")] = None,
    user_header: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    read_only: bool = False,
    ssl_certfile: Path | None = None,
    ssl_keyfile: Path | None = None,
) -> None:
    """Serve RUN as a web page: search its collection by picture, explore its map, see hard classes.
    Ctrl-C stops it.

    Args:
        run: A run's folder.
        collection: The collection to serve. Default: RUN/collection.
        host: Address to listen at; 127.0.0.1 is this machine alone.
        port: Port to listen at; 0 takes any that is free.
        allow_host: Another host name that browsers may use.
        store: The store to search in. Default: the collection's own vectors.
        graph: Embed uploads by this graph of RUN/export: onnx, float16, int8 or openvino. Default:
            by torch.
        device: Where torch embeds: auto, cpu or cuda.
        max_false_match: False-match rate of the "no match" threshold; default: 0.001 if calibrated.
        thresholds: The "no match" thresholds that `vicinal calibrate` wrote.
        token: Answer only requests with this bearer token, or as a browser's password.
        user_header: Answer whom a reverse proxy on this machine names in this header, too.
        read_only: Take no labels and drops.
        ssl_certfile: Certificate for HTTPS, as PEM.
        ssl_keyfile: Its key, as PEM, where that is a file of its own.

    Examples:
        vicinal serve runs/birds
        vicinal serve runs/birds --host 0.0.0.0 --allow-host birds.lan --ssl-certfile birds.pem
    """
    for name in ("fastapi", "uvicorn"):
        package(name, "serve")
    from vicinal.retrieval.library import open_library
    from vicinal.retrieval.serve.guard import LOOPBACK
    from vicinal.retrieval.serve.server import serve as run_server

    library = open_library(
        run,
        collection=collection,
        device=device,
        rate=max_false_match,
        images=images or (),
        engine=store,
        graph=graph,
        thresholds=thresholds,
    )
    snapshot = library.collection.snapshot()
    tell_unnamed(snapshot)
    typer.echo(
        f"{len(snapshot):,} items of generation {snapshot.generation}, {snapshot.dim} dimensions"
    )
    if library.threshold is not None:
        typer.echo(f"no match beyond {library.threshold.distance:.4f}. {library.threshold.words}")
    danger = ""
    if token is not None and ssl_certfile is None:
        danger = "the token travels unencrypted: name a --ssl-certfile"
    elif token is None and user_header is None:
        danger = "anyone who reaches this machine can see the collection: name a --token"
    if danger and host not in LOOPBACK:
        typer.secho(f"listening at {host}: {danger}", fg="yellow", err=True)
    run_server(
        library,
        host=host,
        port=port,
        hosts=allow_host or (),
        ready=lambda address: typer.echo(f"serving at {address} (Ctrl-C ends)"),
        token=token,
        user_header=user_header,
        read_only=read_only,
        ssl_certfile=ssl_certfile,
        ssl_keyfile=ssl_keyfile,
    )
