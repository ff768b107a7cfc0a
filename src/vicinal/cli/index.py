"""``vicinal index`` and ``vicinal serve``: make a run's collection, and show it as a page in the
browser."""

from pathlib import Path
from typing import Annotated

import typer

from vicinal.cli.search import Images, tell_unnamed
from vicinal.errors import ConfigError


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
        store: Keep a copy in Milvus: a file (milvus.db) or URL.
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
    )
    opened = RunDirectory.open(run)
    console = Console()
    try:
        done = bring_up_to_date(
            opened, request, console, collection=collection, device=pick_device(device)
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
        "replaced, "
        f"{done.removed} removed, {done.embedded} embedded{left_out}."
    )
    if done.recall is not None:
        typer.echo(
            f"the index finds {done.recall:.1%} of the ten nearest that exact search finds "
            "(sample of the collection)."
        )


def serve(
    run: Path,
    collection: Annotated[Path | None, typer.Option(metavar="PATH")] = None,
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    allow_host: Annotated[list[str] | None, typer.Option(metavar="NAME")] = None,
    images: Images = None,
    store: str | None = None,
    device: str = "auto",
    max_false_match: Annotated[float | None, typer.Option(metavar="RATE")] = None,
) -> None:
    """Serve RUN as a web page: search its collection by picture, explore its map, see hard classes.
    Ctrl-C stops it.

    Args:
        run: A run's folder.
        collection: The collection to serve. Default: RUN/collection.
        host: Address to listen at; 127.0.0.1 is this machine alone.
        port: Port to listen at; 0 takes any that is free.
        allow_host: Another host name that browsers may use.
        store: The Milvus file or URL to search in. Default: the collection's own vectors.
        device: Where uploads are embedded: auto, cpu or cuda.
        max_false_match: False-match rate of the "no match" threshold; default: 0.001 if calibrated.

    Examples:
        vicinal serve runs/birds
    """

    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        fault = f"serving needs FastAPI and uvicorn, which cannot be imported: {error}"
        raise ConfigError(f"{fault}. Run `pip install 'vicinal[serve]'`.") from error
    from vicinal.retrieval.serve.library import open_library
    from vicinal.retrieval.serve.server import LOOPBACK
    from vicinal.retrieval.serve.server import serve as run_server

    library = open_library(
        run,
        collection=collection,
        device=device,
        rate=max_false_match,
        images=images or (),
        engine=store,
    )
    snapshot = library.collection.snapshot()
    tell_unnamed(snapshot)
    typer.echo(
        f"{len(snapshot):,} items of generation {snapshot.generation}, {snapshot.dim} dimensions"
    )
    if library.threshold is not None:
        typer.echo(f"no match beyond {library.threshold.distance:.4f}. {library.threshold.words}")
    if host not in LOOPBACK:
        typer.secho(
            f"listening at {host}: anyone who reaches this machine can see the collection",
            fg="yellow",
            err=True,
        )

    def ready(address: str) -> None:
        typer.echo(f"serving at {address} (Ctrl-C ends)")

    run_server(library, host=host, port=port, hosts=allow_host or (), ready=ready)
