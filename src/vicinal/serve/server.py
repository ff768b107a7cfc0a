"""Starting the server: the library opened, the port bound, and requests answered until Ctrl-C."""

import socket
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
from PIL import Image

from vicinal.errors import ConfigError
from vicinal.run_directory import RunDirectory
from vicinal.search import calibration
from vicinal.search.collection import CollectionDirectory
from vicinal.search.loaded import load
from vicinal.search.map import collection_map
from vicinal.serve.application import LOCAL, create_application
from vicinal.serve.library import Library
from vicinal.serve.limits import Limits

USUAL_RATE = 0.001  # of pairs of different classes; among 1,000 others a query meets about one false match
_ANYWHERE = ("0.0.0.0", "::", "")  # every address of the machine; nobody calls it by these
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_AT_ONCE = 128  # connections; more are answered 503 before anything of theirs is read


def open_library(
    run: Path, *, collection: Path | None = None, device: str = "auto", max_false_match: float | None = None
) -> Library:
    """A run with its collection and model; nothing from the run is executed.

    Args:
        max_false_match: the rate at which to calibrate the threshold for "no match"; by default a run that was
            calibrated before shows that of ``USUAL_RATE``, and another none.
    """
    directory = RunDirectory.open(run)
    model = load(run, device=device, role="query")

    def embed(image: Image.Image) -> np.ndarray:
        row: np.ndarray = model.embed(image)[0]
        return row

    found = CollectionDirectory.of(run, collection)
    if found.snapshot().dim != model.dim:
        raise ConfigError(
            f"{run} embeds into {model.dim} dimensions, but the collection {found.path} holds vectors of "
            f"{found.snapshot().dim}. Index with this run, or serve the run that it was indexed with."
        )
    threshold = None
    if max_false_match is not None or directory.arrays(calibration.NAME) is not None:
        counts = calibration.calibration(directory, device=model.device)
        usual = max(USUAL_RATE, 1 / counts.different.sum())  # of few pairs, no smaller share can be told
        threshold = counts.threshold(usual if max_false_match is None else max_false_match)
    return Library(directory, found, model.kind, embed if model.kind == "images" else None, collection_map, threshold)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket, or a refusal that says what is in the way. Port 0 takes any that is free."""
    try:
        family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((host, port))
            bound.listen(_AT_ONCE)  # so that whoever is told the address can connect at once
        except BaseException:
            bound.close()
            raise
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"the server was to listen at {host}:{port}, but cannot: {error}. Name another with --port or --host; "
            f"--port 0 takes any that is free."
        ) from error
    return bound


def allowed_hosts(host: str, more: Collection[str]) -> list[str]:
    """The names by which the server may be called: this machine's own, the one it is bound to, and those allowed."""
    bound = [] if host in _ANYWHERE else [f"[{host}]" if ":" in host else host]
    return list(dict.fromkeys([*LOCAL, *bound, *more]))


def serve(
    library: Library,
    *,
    host: str,
    port: int,
    allow_hosts: Collection[str] = (),
    limits: Limits = Limits(),  # noqa: B008 (frozen)
    ready: Callable[[str], None],
) -> None:
    """Answer requests until interrupted.

    Args:
        ready: told the page's address once the port is bound.
    """
    import uvicorn

    application = create_application(library, hosts=allowed_hosts(host, allow_hosts), limits=limits)
    with bind(host, port) as bound:
        name = host if host not in _ANYWHERE else "localhost"
        ready(f"http://{f'[{name}]' if ':' in name else name}:{bound.getsockname()[1]}/")
        config = uvicorn.Config(
            application,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,  # a header must not decide who is asking
            limit_concurrency=_AT_ONCE,
            ws="none",
        )
        uvicorn.Server(config).run(sockets=[bound])
