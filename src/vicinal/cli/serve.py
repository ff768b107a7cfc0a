"""``vicinal serve``: a run and its collection as a page in the browser."""

from pathlib import Path
from typing import Annotated

import typer

from vicinal.cli.search import Trust


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
    from vicinal.errors import ConfigError

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
