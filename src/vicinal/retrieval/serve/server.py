"""The server: routes, page, guard and workers put together, the port bound, and requests answered
until Ctrl-C."""

import socket
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from importlib import resources
from importlib.metadata import version
from pathlib import PurePath
from typing import Any

import uvicorn
from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from vicinal.errors import ConfigError
from vicinal.retrieval.serve.guard import ERRORS, Guard, Limits, answer_errors
from vicinal.retrieval.serve.library import Library
from vicinal.retrieval.serve.routes import item_routes, search_routes
from vicinal.retrieval.serve.views import view_routes
from vicinal.retrieval.serve.workbench import workbench_routes

_THREADS = 8  # that answer; further requests wait for one
_ANYWHERE = ("0.0.0.0", "::", "")  # every address of the machine; nobody calls it by these
_AT_ONCE = 64  # connections; more are answered 503 before anything of theirs is read
_IDLE_SECONDS = 10  # between the end of an answer, or the start, and the next request's headers
_LIMITS = Limits()
LOOPBACK = ("127.0.0.1", "localhost", "::1")
LOCAL = ("localhost", "127.0.0.1", "[::1]")
_KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_HERE = "vicinal.retrieval.serve"
# Address, package and file of all that the page is made of; nothing else can be asked for.
SHIPPED = {"/": (_HERE, "page.html"), "/docs": (_HERE, "docs.html")}
_FILES = sorted(file.name for file in resources.files(_HERE).iterdir())
SHIPPED |= {
    f"/static/{name}": (_HERE, name) for name in _FILES if name.endswith((".js", ".css", ".svg"))
}
# The report's own look and charts: one family, one source.
SHIPPED["/static/report.css"] = "vicinal.reports", "page.css"
SHIPPED["/static/charts.js"] = "vicinal.reports", "charts.js"


def create_application(
    library: Library,
    *,
    hosts: Collection[str] = LOCAL,
    limits: Limits = _LIMITS,
    writable: bool = False,
) -> FastAPI:
    """Create the application that answers from ``library``.

    Args:
        hosts: names by which it may be called (``--allow-host`` adds to them).
        limits: of requests.
        writable: whether tags, labels and drops may be changed.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        current_default_thread_limiter().total_tokens = _THREADS
        yield

    application = FastAPI(
        title="vicinal",
        version=version("vicinal"),
        description="Search in a collection that was embedded by a trained run. Each answer names "
        "the generation of "
        "the collection that it is from.",
        docs_url=None,  # FastAPI's own pages load their scripts from other machines
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        responses=ERRORS,
    )
    answer_errors(application)
    application.include_router(search_routes(library, limits))
    application.include_router(item_routes(library))
    application.include_router(view_routes(library, limits))
    application.include_router(workbench_routes(library, writable=writable))
    for address, (package, name) in SHIPPED.items():
        content = resources.files(package).joinpath(name).read_bytes()
        kind = _KINDS[PurePath(name).suffix]
        # A response is an application.
        shipped = Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})
        application.router.routes.append(Route(address, shipped, methods=["GET"]))
    application.add_middleware(Guard, hosts=hosts, limits=limits)
    return application


class Protocol(H11Protocol):
    """uvicorn's HTTP/1.1, whose ``timeout_keep_alive`` runs until the headers of a request are
    whole.

    uvicorn ends its waiting with the first byte that comes, and begins it only after an answer. So
    who sends no headers, half of them, or the rest of a body that nobody reads would hold its
    connection for good.
    """

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def data_received(self, data: bytes) -> None:
        self.conn.receive_data(data)
        self.handle_events()


def bind(host: str, port: int) -> socket.socket:
    """Open a listening socket, or say what is in the way. Port 0 takes any that is free."""
    try:
        family = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0][0]
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        # It listens at once, so that whoever is told the address can connect.
        return socket.create_server(
            (host, port), family=family, backlog=_AT_ONCE, dualstack_ipv6=both
        )
    except (OSError, OverflowError) as error:
        advice = "Name another with --port or --host; --port 0 takes any that is free."
        raise ConfigError(
            f"the server cannot listen at {host}:{port}: {error}. {advice}"
        ) from error


def allowed_hosts(host: str, more: Collection[str]) -> list[str]:
    """Return the names by which the server may be called: this machine's own, the one it is bound
    to, those allowed."""
    bound = [] if host in _ANYWHERE else [f"[{host}]" if ":" in host else host]
    return list(dict.fromkeys([*LOCAL, *bound, *more]))


def serve(
    library: Library,
    *,
    host: str,
    port: int,
    hosts: Collection[str],
    limits: Limits,
    ready: Callable[[str], None],
) -> None:
    """Answer requests until interrupted.

    Args:
        hosts: further names by which it may be called.
        ready: told the page's address once the port is bound.
    """
    names = allowed_hosts(host, hosts)
    # Whoever else reaches this machine may look, not change.
    application = create_application(library, hosts=names, limits=limits, writable=host in LOOPBACK)
    with bind(host, port) as bound:
        name = host if host not in _ANYWHERE else "localhost"
        ready(f"http://{f'[{name}]' if ':' in name else name}:{bound.getsockname()[1]}/")
        config = uvicorn.Config(
            application,
            http=Protocol,
            ws="none",
            proxy_headers=False,  # a header must not decide who is asking
            server_header=False,
            limit_concurrency=_AT_ONCE,
            timeout_keep_alive=_IDLE_SECONDS,
            log_level="warning",
            access_log=False,
        )
        uvicorn.Server(config).run(sockets=[bound])
