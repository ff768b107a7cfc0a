"""The web application: routes, page, guard and workers put together. Nothing runs yet; see ``server``."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from importlib import resources
from importlib.metadata import version

from fastapi import FastAPI
from starlette.responses import Response

from vicinal.serve.guard import Guard
from vicinal.serve.item_routes import item_routes
from vicinal.serve.library import Library
from vicinal.serve.limits import Limits
from vicinal.serve.refusals import answer_refusals
from vicinal.serve.search_routes import search_routes
from vicinal.serve.view_routes import view_routes
from vicinal.serve.workers import Workers

_TOGETHER = 16  # searches that may share one pass over the vectors; all but one of these threads only wait
LOCAL = ("localhost", "127.0.0.1", "[::1]")
# Address, package, file and media type of all that the page is made of; nothing else can be asked for.
SHIPPED = {
    "/": ("vicinal.serve", "page.html", "text/html"),
    "/docs": ("vicinal.serve", "docs.html", "text/html"),
    "/static/page.css": ("vicinal.serve", "page.css", "text/css"),
    "/static/page.js": ("vicinal.serve", "page.js", "text/javascript"),
    "/static/asking.js": ("vicinal.serve", "asking.js", "text/javascript"),
    "/static/results.js": ("vicinal.serve", "results.js", "text/javascript"),
    "/static/map.js": ("vicinal.serve", "map.js", "text/javascript"),
    "/static/hardness.js": ("vicinal.serve", "hardness.js", "text/javascript"),
    "/static/docs.js": ("vicinal.serve", "docs.js", "text/javascript"),
    "/static/icon.svg": ("vicinal.serve", "icon.svg", "image/svg+xml"),
    # The report's own look and charts: one family, one source.
    "/static/report.css": ("vicinal.reports", "page.css", "text/css"),
    "/static/charts.js": ("vicinal.reports", "charts.js", "text/javascript"),
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
    answer_refusals(application)
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
    package, name, kind = SHIPPED[address]
    content = resources.files(package).joinpath(name).read_bytes()

    async def shipped() -> Response:
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    application.get(address, include_in_schema=False)(shipped)
