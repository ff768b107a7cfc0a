"""The server: routes and page put together, the port bound, and requests answered until Ctrl-C."""

import socket
from collections.abc import Callable, Collection
from importlib import resources
from importlib.metadata import version
from mimetypes import guess_type
from pathlib import Path
from time import monotonic
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.responses import Response
from starlette.routing import Route

from vicinal.errors import ConfigError
from vicinal.retrieval.library import Library
from vicinal.retrieval.serve.guard import LOOPBACK, guard
from vicinal.retrieval.serve.routes import item_routes, search_routes
from vicinal.retrieval.serve.views import view_routes
from vicinal.retrieval.serve.workbench import workbench_routes

_AT_ONCE = 64  # connections; more are answered 503
SHORTEST = 16  # characters of a token
ARRIVAL_SECONDS = 30.0  # in which a request must be here, with its body
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
    hosts: Collection[str] = LOOPBACK,
    writable: bool = False,
    token: str | None = None,
    user_header: str | None = None,
) -> FastAPI:
    """Create the application that answers from ``library``.

    Args:
        hosts: names by which it may be called (``--allow-host`` adds to them).
        writable: whether labels and drops may be changed.
        token: without which nothing but ``/health`` is answered.
        user_header: in which a reverse proxy on this machine may name who asks, in the place of the
            token.
    """
    application = FastAPI(
        title="vicinal",
        version=version("vicinal"),
        description="Search in a collection that was embedded by a trained run. Each answer names "
        "the generation of the collection that it is from.",
        docs_url=None,  # FastAPI's own pages load their scripts from other machines
        redoc_url=None,
        redirect_slashes=False,
        responses={"default": {"description": "What is wrong, as `detail`."}},
    )
    application.include_router(search_routes(library))
    application.include_router(item_routes(library))
    application.include_router(view_routes(library))
    application.include_router(workbench_routes(library, writable=writable))
    for address, (package, name) in SHIPPED.items():
        content = resources.files(package).joinpath(name).read_bytes()
        # A response is an application.
        shipped = Response(
            content, media_type=guess_type(name)[0], headers={"Cache-Control": "no-cache"}
        )
        application.router.routes.append(Route(address, shipped, methods=["GET"]))
    guard(application, hosts, token, user_header)
    return application


def bind(host: str, port: int) -> socket.socket:
    """Open a listening socket, or say what is in the way. Port 0 takes any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        # It listens at once, so that whoever is told the address can connect.
        return socket.create_server((host, port), family=family, backlog=_AT_ONCE)
    except OSError as error:
        raise ConfigError(
            f"the server cannot listen at {host}:{port}: {error}. Name another with --port or "
            "--host; --port 0 takes any that is free."
        ) from error


def serve(
    library: Library,
    *,
    host: str,
    port: int,
    hosts: Collection[str],
    ready: Callable[[str], None],
    token: str | None = None,
    user_header: str | None = None,
    read_only: bool = False,
    ssl_certfile: Path | None = None,
    ssl_keyfile: Path | None = None,
) -> None:
    """Answer requests until interrupted.

    Args:
        hosts: further names by which it may be called.
        ready: told the page's address once the port is bound.
        token, user_header: as for `create_application`.
        read_only: take no changes.
        ssl_certfile: certificate by which to answer over TLS, as PEM.
        ssl_keyfile: its key, where that is a file of its own.
    """
    if token is not None and len(token) < SHORTEST:
        raise ConfigError(f"a token has at least {SHORTEST} characters, got {len(token)}.")
    # Whoever else reaches this machine may look, not change, unless it is known who it is.
    asked = token is not None or user_header is not None
    application = create_application(
        library,
        hosts=(*LOOPBACK, host, *hosts),
        writable=not read_only and (host in LOOPBACK or asked),
        token=token,
        user_header=user_header,
    )
    with bind(host, port) as bound:
        config = uvicorn.Config(
            application,
            ssl_certfile=ssl_certfile,
            ssl_keyfile=ssl_keyfile,
            http="h11",
            ws="none",
            server_header=False,
            proxy_headers=False,  # which would hide who is connected
            limit_concurrency=_AT_ONCE,
            log_level="warning",
            access_log=False,
        )
        try:
            config.load()
        except (OSError, AssertionError) as error:  # uvicorn asserts that a key has a certificate
            raise ConfigError(f"TLS needs a certificate and its key as PEM: {error}.") from error
        name = f"[{host}]" if ":" in host else host
        ready(f"http{'s' * config.is_ssl}://{name}:{bound.getsockname()[1]}/")
        Server(config).run(sockets=[bound])


class Server(uvicorn.Server):
    """Closes connections whose request does not arrive: `_AT_ONCE` of them would shut out all
    others."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._waiting: dict[Any, float] = {}  # connections without a whole request, since when

    async def on_tick(self, counter: int) -> bool:
        now = monotonic()
        connections: set[Any] = self.server_state.connections
        self._waiting = {
            one: self._waiting.get(one, now)
            for one in connections
            if one.cycle is None or one.cycle.more_body or one.cycle.response_complete
        }
        for one, since in self._waiting.items():
            if now - since > ARRIVAL_SECONDS:
                one.transport.abort()
        return await super().on_tick(counter)
