"""What every request passes: answers as JSON, errors in words, pages of other sites kept out."""

import json
import logging
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from hmac import compare_digest
from io import BytesIO
from time import perf_counter
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from PIL import Image, UnidentifiedImageError
from starlette.exceptions import HTTPException as StarletteException
from starlette.middleware.base import RequestResponseEndpoint
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from vicinal.errors import ConfigError, DataError, RunError, VicinalError
from vicinal.files import decode
from vicinal.retrieval.collection import Snapshot

_LOG = logging.getLogger("vicinal.retrieval.serve")
# Before the last part of a path in a text: folders of this machine are nobody else's business.
_FOLDERS = re.compile(
    r"\b[A-Za-z]:[\\/]+(?:[^\\/:'\"]+[\\/]+)*|"  # of Windows
    r"(?<=')/(?:[^/']+/)*(?=[^/'])|(?<![^\s\"=,:(\[])/(?:[^/\s'\"]+/)*(?=[^/\s'\"])"
)
# Of uploads, by content; what else Pillow reads is not offered.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
UPLOAD_BYTES = 16 * 2**20
MOST = 200  # items in one answer

# Scripts and styles from files of ours alone. Style attributes are free because the report's charts
# set colors so.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; "
        "img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Answer(JSONResponse):
    """JSON in ASCII: a file name that is no text, so lone surrogates, has no other form."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False).encode()


def answer(snapshot: Snapshot, status: int = 200, /, **values: Any) -> Answer:
    """Answer with these values, and with the generation that they are from."""
    return Answer({"generation": snapshot.generation, **values}, status)


def guard(
    application: FastAPI,
    hosts: Collection[str],
    token: str | None = None,
    user_header: str | None = None,
) -> None:
    """Answer to these names, and to this token or header alone where there is one; put ``HEADERS``
    on every answer, say what went wrong as ``{"detail": ...}``, and count answers for ``/metrics``.

    A page anywhere on the web can make its visitor's browser send requests to 127.0.0.1. It cannot
    read the answers as long as no CORS header permits it; by pointing a name of its own at
    127.0.0.1 it could (DNS rebinding), but then the Host header holds that name.
    """

    if token == "":  # such as of a variable that is not set: anyone would bring it
        raise ConfigError("the token is empty. Name one, or leave --token out.")
    state = application.state
    state.answers = Counter[int]()  # by status
    state.seconds = 0.0

    @application.middleware("http")
    async def guarded(request: Request, call_next: RequestResponseEndpoint) -> Response:
        began = perf_counter()
        try:
            if request.url.path == "/health" or _knows(request, token, user_header):
                made = await call_next(request)
            else:
                asks = {} if token is None else {"WWW-Authenticate": 'Basic realm="vicinal"'}
                made = Answer({"detail": "This server does not know who asks."}, 401, asks)
        except ClientDisconnect:
            made = Answer({"detail": "The request did not arrive."}, 400)
        except Exception:
            _LOG.exception("a request to %s failed", request.url.path)
            made = Answer({"detail": "The server failed; see its terminal."}, 500)
        for name, value in HEADERS.items():
            made.headers.setdefault(name, value)
        state.answers[made.status_code] += 1
        state.seconds += perf_counter() - began
        return made

    async def told(_: Request, error: Any) -> Answer:
        match error:
            case StarletteException():
                detail = _FOLDERS.sub("", str(error.detail))
                return Answer({"detail": detail}, error.status_code, error.headers)
            case RequestValidationError():
                fault = error.errors()[0]
                detail = f"{' '.join(map(str, fault['loc']))}: {fault['msg']}."
                return Answer({"detail": detail}, 422)
        failed = isinstance(error, RunError | OSError)
        return Answer({"detail": _FOLDERS.sub("", str(error))}, 500 if failed else 422)

    for kind in (RequestValidationError, VicinalError, OSError, StarletteException):
        application.add_exception_handler(kind, told)
    names = [f"[{host}]" if ":" in host else host for host in hosts]
    application.add_middleware(TrustedHostMiddleware, allowed_hosts=names, www_redirect=False)


def _knows(request: Request, token: str | None, user_header: str | None) -> bool:
    """Whether nothing is asked for, a reverse proxy on this machine names who asks, or the request
    brings the token: a program as a bearer, a browser as a password of any name."""
    # From afar anybody may write a header.
    near = request.client is not None and request.client.host in LOOPBACK
    if user_header is not None and near and request.headers.get(user_header):
        return True
    if token is None:
        return user_header is None
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        with suppress(ValueError):
            given = b64decode(given).decode().partition(":")[2]
    return compare_digest(given.encode(), token.encode())


def require_own_page(request: Request) -> None:
    """Raise a 403 for a change that neither this server's own page nor a program asks for.

    A page of another port of this machine is of the same site, so the origin counts. A form of
    another page, which needs no permission of ours to be sent, cannot be JSON.
    """
    origin = request.headers.get("origin")
    own = origin is None or origin.split("://")[-1] == request.headers["host"]
    if not own or not request.headers.get("content-type", "").startswith("application/json"):
        raise HTTPException(403, "Another page sent this change. Send JSON from the own page.")


async def upload(request: Request) -> bytes:
    """Read a body that is a picture's file, but not without end."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > UPLOAD_BYTES:
            raise HTTPException(413, f"A picture may have {UPLOAD_BYTES:,} bytes at most.")
    return bytes(body)


def decoded(data: bytes) -> Image.Image:
    """Decode the uploaded picture, upright. Its type is detected from its content, its size from
    its header."""
    try:
        return decode(BytesIO(data), FORMATS)
    except UnidentifiedImageError as error:
        raise HTTPException(415, f"A picture is one of {', '.join(FORMATS)}.") from error
    except (DataError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise HTTPException(413, str(error)) from error
    except Exception as error:  # decoders raise what their parsing of a damaged file runs into
        raise HTTPException(422, f"The picture cannot be decoded: {error}") from error
