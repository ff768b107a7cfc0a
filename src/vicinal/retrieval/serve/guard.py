"""The guard before the application: who may ask, how much may arrive, and errors that a person can
act on."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from PIL import Image, UnidentifiedImageError
from pydantic import BaseModel, Field
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vicinal.data.images import check_size, decode
from vicinal.errors import DataError, RunError, VicinalError
from vicinal.files import open_image

_LOG = logging.getLogger("vicinal.retrieval.serve")
MEBIBYTE = 2**20
UPLOAD = "/api/search/image"
FORMATS = (
    "JPEG",
    "PNG",
    "WEBP",
    "GIF",
    "BMP",
)  # of uploads, by content; what else Pillow reads is not offered

# Scripts and styles from files of ours alone. Style attributes are free because the report's charts
# set colors so.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "style-src-attr "
    "'unsafe-inline'; img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Limits:
    """Bounds of a request, all inclusive; the page and the API's description read the same numbers.

    Attributes:
        k: neighbors in one answer.
        listed: items in one page of a listing.
        upload_bytes: of a picture, counted while it arrives.
        upload_pixels: of a picture, read from its header before anything is decoded. 40 million
            cover a phone's camera and decode to 120 MB.
        json_bytes: of any other body; a vector of 8,192 numbers in 20 digits fits six times.
        held_bytes: of all bodies together that have arrived and are not yet answered; the next one
            is answered 503.
        body_seconds: for a body to arrive.
        picture_side: longer side of a picture that is shown large.
        waiting: requests of one kind that may wait for a worker; the next one is answered 503.
    """

    k: int = 200
    listed: int = 200
    upload_bytes: int = 16 * MEBIBYTE
    upload_pixels: int = 40_000_000
    json_bytes: int = 1 * MEBIBYTE
    held_bytes: int = 128 * MEBIBYTE
    body_seconds: float = 60
    picture_side: int = 1280
    waiting: int = 64


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


Described = dict[int | str, dict[str, Any]]


def described(answers: Mapping[int, str]) -> Described:
    """Describe errors by their status for the API's description."""
    return {status: {"model": Problem, "description": words} for status, words in answers.items()}


# The errors of all operations, and those of operations with a body.
SHARED = described({421: "The Host header names another machine.", 422: "A value that cannot be."})
SHARED |= described({503: "Too many requests wait already; Retry-After says when to ask again."})
BODY = described({400: "A body that cannot be read.", 408: "A body that does not arrive in time."})
BODY |= described({413: "A body, or a picture in it, larger than the limits."})


class Guard:
    """ASGI middleware, the outermost: rejects strangers, counts bytes, and puts ``HEADERS`` on
    every answer.

    A page anywhere on the web can make its visitor's browser send requests to 127.0.0.1. It cannot
    read the answers as long as no CORS header permits it; by pointing a name of its own at
    127.0.0.1 it could (DNS rebinding), but then the Host header holds that name.

    Args:
        application: what is guarded.
        hosts: names by which this server may be called, without ports.
        limits: of bodies.
    """

    def __init__(self, application: ASGIApp, *, hosts: Collection[str], limits: Limits) -> None:
        self.application, self.hosts, self.limits = (
            application,
            frozenset(host.lower() for host in hosts),
            limits,
        )
        self.held = 0  # bytes of bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        started, body = False, _Body(self, scope, receive)

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
            await self.application(scope, body.receive, guarded)
        except ClientDisconnect:
            pass  # nobody is there to be answered
        except RequestError as error:
            await error.response()(scope, receive, guarded)
        except Exception:
            _LOG.exception("a request to %s failed", scope["path"])
            if started:
                raise
            failure = RequestError(
                500, "an answer.", "the server failed over this request.", "See its terminal."
            )
            await failure.response()(scope, receive, guarded)
        finally:
            self.held -= body.seen

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


def require_own_page(request: Request) -> None:
    """Raise a 403 for a change that neither this server's own page nor a program asks for.

    A page of another port of this machine is of the same site, so the origin counts. A sandboxed
    page's is ``null``.
    JSON alone is read: a form of another page, which needs no permission of ours to be sent, cannot
        be that.
    """
    headers, origin = request.headers, request.headers.get("origin")
    own = origin is None or origin.lower().split("://")[-1] == headers["host"].lower()
    if not own or headers.get("sec-fetch-site") not in (None, "same-origin"):
        asked = "a change from this server's own page, or from a program."
        raise RequestError(403, asked, "another page sent it.", "Open this server's page itself.")
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RequestError(
            415, "a JSON body.", "another type of content.", "Send it as application/json."
        )


class _Body:
    """The body of one request: counted as it arrives, alone and together with all others, and given
    some time."""

    def __init__(self, guard: Guard, scope: Scope, receive: Receive) -> None:
        limits = guard.limits
        self.guard, self.limits, self.seen, self._receive = guard, limits, 0, receive
        self.most = limits.upload_bytes if scope["path"] == UPLOAD else limits.json_bytes
        announced = Headers(scope=scope).get("content-length", "")
        self.announced = int(announced[:20]) if announced.isdigit() else 0
        self.deadline: float | None = asyncio.get_running_loop().time() + limits.body_seconds

    async def receive(self) -> Message:
        message: Message = {}
        if self.announced <= self.most:
            try:
                async with asyncio.timeout_at(self.deadline):
                    message = await self._receive()
            except TimeoutError:
                asked = f"a body within {self.limits.body_seconds:g} seconds."
                raise RequestError(408, asked, "only a part of one.", "Send it again.") from None
        if not message.get("more_body"):
            self.deadline = None  # who reads on waits for the client to leave
        count = len(message.get("body", b""))
        self.seen += count
        self.guard.held += count
        if max(self.seen, self.announced) > self.most:
            asked = f"a body of at most {self.most:,} bytes."
            raise RequestError(413, asked, "more bytes than that.", "Send a smaller one.")
        if self.guard.held > self.limits.held_bytes:
            asked, got = (
                "the server holds a few bodies at a time.",
                "others are arriving or waiting.",
            )
            raise RequestError(503, asked, got, "Ask again in a second.", {"Retry-After": "1"})
        return message


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
        if isinstance(error, RequestError):
            found = error
        elif isinstance(error, RequestValidationError):
            found = RequestError(422, *_sentences(error.errors()))
        elif isinstance(error, VicinalError):
            status, advice = (
                (500, "Check the run's files.")
                if isinstance(error, RunError)
                else (422, "Ask otherwise.")
            )
            found = RequestError(
                status, "what this run and its collection can answer.", text(str(error)), advice
            )
        else:
            asked = "a path, a method and, where there is one, a JSON body that the server knows."
            found = RequestError(
                error.status_code, asked, f"{error.detail}.", "See /docs.", error.headers
            )
        return found.response()

    for kind in (RequestValidationError, VicinalError, HTTPException):
        application.add_exception_handler(kind, answered)


def _sentences(errors: Sequence[Any]) -> tuple[str, str, str]:
    """Turn what pydantic found into three sentences. The value is named, but a long one is cut; no
    body is echoed."""
    first = errors[0]
    if first["type"] == "json_invalid":
        fault = f"text that is none: {first['ctx']['error']} at character {first['loc'][-1]}."
        return "a JSON body.", fault, "Check that it is valid JSON."
    place, got = (
        " ".join(str(part) for part in first["loc"]) or "the request",
        _shown(first.get("input")),
    )
    more = f" ({len(errors) - 1} more like it)" if len(errors) > 1 else ""
    asked = str(first["msg"]).removeprefix("Value error, ").rstrip(".")
    return (
        text(f"{place}: {asked[:1].lower()}{asked[1:]}."),
        text(f"{got}{more}."),
        "See /docs for what it may be.",
    )


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, (str, int, float, bool)):
        shown = repr(value[:60] if isinstance(value, str) else value)
        return shown if len(shown) <= 80 else shown[:77] + "..."
    return f"a {type(value).__name__}"


def text(value: str) -> str:
    """Text that UTF-8 can hold: a file name that is no text reaches us as lone surrogates."""
    return value.encode(errors="replace").decode()


def decoded(data: bytes, limits: Limits) -> Image.Image:
    """Decode the uploaded picture, upright. Its type is detected from its content, its size from
    its header."""
    if not data:
        raise RequestError(
            422, "a picture as the body.", "an empty body.", "Send the bytes of an image file."
        )
    try:
        with open_image(BytesIO(data), FORMATS) as image:
            check_size(image.size, limits.upload_pixels)
    except UnidentifiedImageError as error:
        known, got = (
            f"a picture: {', '.join(FORMATS)}.",
            f"{len(data):,} bytes that are none of these.",
        )
        raise RequestError(
            415, known, got, "Send an image file, or convert it to one of these."
        ) from error
    except (DataError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        asked = f"a picture of at most {limits.upload_pixels:,} pixels."
        raise RequestError(
            413, asked, str(error).rstrip(".") + ".", "Crop it, or send a smaller version."
        ) from error
    except (
        Exception
    ) as error:  # decoders raise whatever their parsing of a damaged header runs into
        raise _damaged(error) from error
    try:
        return decode(BytesIO(data), FORMATS)
    except Exception as error:  # likewise
        raise _damaged(error) from error


def _damaged(error: Exception) -> RequestError:
    got = (
        f"one that cannot be decoded ({type(error).__name__}: {text(str(error)).rstrip('.'):.120})."
    )
    return RequestError(
        422, "a whole picture.", got, "It may be cut off or damaged; send it again."
    )
