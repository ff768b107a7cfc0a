"""The guard before the application: who may ask, how much may arrive, and errors that a person can
act on."""

import asyncio
import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, TypeVar, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from PIL import Image, UnidentifiedImageError
from pydantic import BaseModel, Field
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vicinal.data.images import check_size, eight_bit, upright
from vicinal.errors import DataError, RunError, VicinalError
from vicinal.files import open_image

T = TypeVar("T")
_LOG = logging.getLogger("vicinal.retrieval.serve")
MEBIBYTE = 2**20
_FOLDERS = re.compile(  # of a path in text
    r"(?<=')/(?:[^/']+/)*(?=[^/'])|(?<![^\s\"=,:(\[])/(?:[^/\s'\"]+/)*(?=[^/\s'\"])"
)
UPLOAD = "/api/search/image"
# Of uploads, by content; what else Pillow reads is not offered.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")

# Scripts and styles from files of ours alone. Style attributes are free because the report's charts
# set colors so.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; "
        "img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


MOST = 200  # items in one answer


@dataclass(frozen=True)
class Limits:
    """Bounds of a request, all inclusive.

    Attributes:
        upload_bytes: of a picture, counted while it arrives.
        upload_pixels: of a picture, read from its header before anything is decoded. 40 million
            cover a phone's camera and decode to 120 MB.
        json_bytes: of any other body; a vector of 8,192 numbers in 20 digits fits six times.
        body_seconds: for a body to arrive.
    """

    upload_bytes: int = 16 * MEBIBYTE
    upload_pixels: int = 40_000_000
    json_bytes: int = 1 * MEBIBYTE
    body_seconds: float = 60


class Problem(BaseModel):
    """Why a request was rejected. Nothing has changed."""

    asked: str = Field(description="What the request wanted, or what the server expects there.")
    got: str = Field(description="What was received instead, with its numbers.")
    advice: str = Field(description="What to do.")


class RequestError(HTTPException):
    """An answer of 4xx or 5xx with a ``Problem``. Frameworks that read bodies pass an
    ``HTTPException`` unchanged."""

    def __init__(
        self,
        status: int,
        asked: str,
        got: str,
        advice: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, got, headers)
        self.problem = Problem(asked=asked, got=got, advice=advice)

    def response(self) -> JSONResponse:
        return JSONResponse(self.problem.model_dump(), self.status_code, self.headers)


# For the API's description.
ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Problem, "description": "What was asked for cannot be; nothing has changed."},
    "5XX": {"model": Problem, "description": "The run or the disk failed."},
}


class Guard:
    """ASGI middleware, the outermost: rejects strangers, reads each body whole, within its limits,
    and puts ``HEADERS`` on every answer.

    A page anywhere on the web can make its visitor's browser send requests to 127.0.0.1. It cannot
    read the answers as long as no CORS header permits it; by pointing a name of its own at
    127.0.0.1 it could (DNS rebinding), but then the Host header holds that name.

    Args:
        application: what is guarded.
        hosts: names by which this server may be called, without ports.
        limits: of bodies.
    """

    def __init__(self, application: ASGIApp, *, hosts: Collection[str], limits: Limits) -> None:
        self.application = application
        self.hosts = frozenset(host.lower() for host in hosts)
        self.limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return

        started = False

        async def guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self._admit(Headers(scope=scope))
            body = await self._read(scope, receive)
            whole = iter([{"type": "http.request", "body": body}])

            async def read() -> Message:  # who reads on waits for the client to leave
                return next(whole, None) or await receive()

            await self.application(scope, read, guarded)
        except ClientDisconnect:
            pass  # nobody is there to be answered
        except RequestError as error:
            await error.response()(scope, receive, guarded)
        except Exception:
            _LOG.exception("a request to %s failed", scope["path"])
            if started:
                raise
            failure = RequestError(500, "an answer.", "the server failed.", "See its terminal.")
            await failure.response()(scope, receive, guarded)

    def _admit(self, headers: Headers) -> None:
        host = headers.get("host", "")
        if name_of(host) not in self.hosts:
            asked = f"a request for {', '.join(sorted(self.hosts))}."
            got = f"the Host header is {host[:60]!r}." if host else "there is no Host header."
            raise RequestError(
                421, asked, got, "Use that address, or start the server with --allow-host NAME."
            )
        if (
            headers.get("sec-fetch-site") == "cross-site"
            and headers.get("sec-fetch-mode") != "navigate"
        ):
            asked = "a request from this server's own page, or from a program."
            raise RequestError(
                403, asked, "a page of another site sent it.", "Open this server's page itself."
            )

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        """Read the body, in its time and within its bound."""
        limits = self.limits
        most = limits.upload_bytes if scope["path"] == UPLOAD else limits.json_bytes
        body = bytearray()
        try:
            async with asyncio.timeout(limits.body_seconds):
                async for part in Request(scope, receive).stream():
                    body += part
                    if len(body) > most:
                        asked = f"a body of at most {most:,} bytes."
                        raise RequestError(413, asked, "more than that.", "Send a smaller one.")
        except TimeoutError:
            asked = f"a body within {limits.body_seconds:g} seconds."
            raise RequestError(408, asked, "only a part of one.", "Send it again.") from None
        return bytes(body)


def require_own_page(request: Request) -> None:
    """Raise a 403 for a change that neither this server's own page nor a program asks for.

    A page of another port of this machine is of the same site, so the origin counts. A sandboxed
    page's is ``null``. JSON alone is read: a form of another page, which needs no permission of
    ours to be sent, cannot be that.
    """
    headers = request.headers
    origin = request.headers.get("origin")
    own = origin is None or origin.lower().split("://")[-1] == headers["host"].lower()
    if not own or headers.get("sec-fetch-site") not in (None, "same-origin"):
        asked = "a change from this server's own page, or from a program."
        raise RequestError(403, asked, "another page sent it.", "Open this server's page itself.")
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RequestError(
            415, "a JSON body.", "another type of content.", "Send it as application/json."
        )


def name_of(host: str) -> str:
    """Return the name in a Host header, without its port.

    >>> name_of("LocalHost:8000"), name_of("[::1]:8000"), name_of("127.0.0.1")
    ('localhost', '[::1]', '127.0.0.1')
    """
    name, _, port = host.lower().rpartition(":")
    return name if name and port.isdigit() else host.lower()


def answer_errors(application: FastAPI) -> None:
    """Answer every error with a ``Problem``: never a traceback, never an echo."""

    async def answered(_: Request, error: Any) -> JSONResponse:
        able = "what this run and its collection can answer."
        match error:
            case RequestError():
                found = error
            case RequestValidationError():
                found = _invalid(error.errors()[0])
            case RunError() | OSError():
                advice = "Check the run's files and the disk, then ask again."
                found = RequestError(500, able, told(error), advice)
            case VicinalError():
                found = RequestError(422, able, told(error), "Ask otherwise.")
            case _:
                asked = "a path, a method and, where it belongs, a JSON body that the server knows."
                got = f"{error.detail}."
                found = RequestError(error.status_code, asked, got, "See /docs.", error.headers)
        return found.response()

    for kind in (RequestValidationError, VicinalError, OSError, HTTPException):
        application.add_exception_handler(kind, answered)


def _invalid(fault: Mapping[str, Any]) -> RequestError:
    """Turn the first thing that pydantic found into a 422. The value is named, but a long one is
    cut; no body is echoed."""
    place = " ".join(map(str, fault["loc"])) or "the request"
    value = fault.get("input")
    plain = isinstance(value, (str, int, float, bool))
    got = f"{value!r:.60}." if plain else f"a {type(value).__name__}."
    return RequestError(422, text(f"{place}: {fault['msg']}."), text(got), "See /docs.")


def text(value: str) -> str:
    """Text that UTF-8 can hold: a file name that is no text reaches us as lone surrogates."""
    return value.encode(errors="replace").decode()


def told(error: BaseException) -> str:
    """Return what an error says, without the folders of this machine."""
    return _FOLDERS.sub("", text(str(error)))


def without_folders(value: T) -> T:
    """Return a JSON value with the last part of each absolute path in place of the whole.

    >>> without_folders({"command": "vicinal train --data '/a/my photos' data.roles=/a/b.csv"})
    {'command': "vicinal train --data 'my photos' data.roles=b.csv"}
    """
    found: Any = value
    if isinstance(value, dict):
        found = {without_folders(key): without_folders(item) for key, item in value.items()}
    elif isinstance(value, list):
        found = [without_folders(item) for item in value]
    elif isinstance(value, str):
        path = value.startswith("/")
        found = value.rstrip("/").rpartition("/")[2] if path else _FOLDERS.sub("", value)
    return cast(T, found)


def decoded(data: bytes, limits: Limits) -> Image.Image:
    """Decode the uploaded picture, upright. Its type is detected from its content, its size from
    its header."""
    try:
        with open_image(BytesIO(data), FORMATS) as image:
            check_size(image.size, limits.upload_pixels)
            image.load()
            return eight_bit(upright(image))
    except UnidentifiedImageError as error:
        known = f"a picture: {', '.join(FORMATS)}."
        got = f"{len(data):,} bytes that are none of these."
        advice = "Send an image file, or convert it to one of these."
        raise RequestError(415, known, got, advice) from error
    except (DataError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        asked = f"a picture of at most {limits.upload_pixels:,} pixels."
        got = str(error).rstrip(".") + "."
        raise RequestError(413, asked, got, "Crop it, or send a smaller version.") from error
    except Exception as error:  # decoders raise whatever their parsing of a damaged file runs into
        said = f"{type(error).__name__}: {text(str(error)).rstrip('.'):.120}"
        got = f"one that cannot be decoded ({said})."
        advice = "It may be cut off or damaged; send it again."
        raise RequestError(422, "a whole picture.", got, advice) from error
