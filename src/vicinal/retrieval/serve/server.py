"""The server: routes, page, guard and workers put together, the port bound, and requests answered until Ctrl-C."""

import socket
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from importlib import resources
from importlib.metadata import version
from pathlib import PurePath

from fastapi import FastAPI
from starlette.responses import Response

from vicinal.errors import ConfigError
from vicinal.retrieval.serve.errors import answer_errors
from vicinal.retrieval.serve.guard import Guard
from vicinal.retrieval.serve.item_routes import item_routes
from vicinal.retrieval.serve.library import Library, Limits
from vicinal.retrieval.serve.search_routes import search_routes
from vicinal.retrieval.serve.view_routes import view_routes
from vicinal.retrieval.serve.workers import Workers

_TOGETHER = 16  # searches that may share one pass over the vectors; all but one of these threads only wait
_ANYWHERE = ("0.0.0.0", "::", "")  # every address of the machine; nobody calls it by these
_AT_ONCE = 128  # connections; more are answered 503 before anything of theirs is read
LOOPBACK = ("127.0.0.1", "localhost", "::1")
LOCAL = ("localhost", "127.0.0.1", "[::1]")
_SCRIPTS = ("page.js", "asking.js", "results.js", "map.js", "hardness.js", "docs.js")
_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
# Address, package and file of all that the page is made of; nothing else can be asked for.
SHIPPED = {"/": ("vicinal.retrieval.serve", "page.html"), "/docs": ("vicinal.retrieval.serve", "docs.html")}
SHIPPED |= {f"/static/{name}": ("vicinal.retrieval.serve", name) for name in (*_SCRIPTS, "page.css", "icon.svg")}
# The report's own look and charts: one family, one source.
SHIPPED |= {
    "/static/report.css": ("vicinal.reports", "page.css"),
    "/static/charts.js": ("vicinal.reports", "charts.js"),
}


def create_application(library: Library, *, hosts: Collection[str] = LOCAL, limits: Limits = Limits()) -> FastAPI:  # noqa: B008 (frozen)
    """The application that answers from ``library``.

    Args:
        hosts: names by which it may be called (``--allow-host`` adds to them).
        limits: of requests.
    """
    searching = Workers("search", threads=_TOGETHER, waiting=limits.waiting)
    embedding = Workers("embed", threads=1, waiting=min(8, limits.waiting))  # each that waits holds an upload
    listing = Workers("list", threads=2, waiting=limits.waiting)
    drawing = Workers("draw", threads=2, waiting=limits.waiting)
    reading = Workers("read", threads=1, waiting=min(8, limits.waiting))
    mapping = Workers("map", threads=1, waiting=2)  # a minute or two of work, once for each generation

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        for workers in (searching, embedding, listing, drawing, reading, mapping):
            workers.close()

    application = FastAPI(
        title="vicinal",
        version=version("vicinal"),
        description="Search in a collection that was embedded by a trained run. Each answer names the generation of "
        "the collection that it came from.",
        docs_url=None,  # FastAPI's own pages load their scripts from other machines
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    answer_errors(application)
    application.include_router(search_routes(library, limits, searching, embedding))
    application.include_router(item_routes(library, limits, listing, drawing))
    application.include_router(view_routes(library, limits, listing, reading, mapping))
    for address in SHIPPED:
        _serve_shipped(application, address)
    application.add_middleware(
        Guard, hosts=hosts, body=limits.json_bytes, bodies={"/api/search/image": limits.upload_bytes}
    )
    return application


def _serve_shipped(application: FastAPI, address: str) -> None:
    package, name = SHIPPED[address]
    kind = _KINDS[PurePath(name).suffix]
    content = resources.files(package).joinpath(name).read_bytes()

    async def shipped() -> Response:
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    application.get(address, include_in_schema=False)(shipped)


def bind(host: str, port: int) -> socket.socket:
    """Open a listening socket, or say what is in the way. Port 0 takes any that is free."""
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
            f"the server cannot listen at {host}:{port}: {error}. Name another with --port or --host; --port 0 takes "
            f"any that is free."
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
