"""What every request passes: answers as JSON, errors in words, pages of other sites kept out."""

import json
import logging
import re
from collections.abc import Collection
from io import BytesIO
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from PIL import Image, UnidentifiedImageError
from starlette.exceptions import HTTPException as StarletteException
from starlette.middleware.base import RequestResponseEndpoint
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from vicinal.data.images import decode
from vicinal.errors import DataError, RunError, VicinalError

_LOG = logging.getLogger("vicinal.retrieval.serve")
# Before the last part of a path in a text: folders of this machine are nobody else's business.
_FOLDERS = re.compile(
    r"(?<=')/(?:[^/']+/)*(?=[^/'])|(?<![^\s\"=,:(\[])/(?:[^/\s'\"]+/)*(?=[^/\s'\"])"
)
# Of uploads, by content; what else Pillow reads is not offered.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
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


def guard(application: FastAPI, hosts: Collection[str]) -> None:
    """Answer to these names alone, put ``HEADERS`` on every answer, and say what went wrong as
    ``{"detail": ...}``.

    A page anywhere on the web can make its visitor's browser send requests to 127.0.0.1. It cannot
    read the answers as long as no CORS header permits it; by pointing a name of its own at
    127.0.0.1 it could (DNS rebinding), but then the Host header holds that name.
    """

    @application.middleware("http")
    async def guarded(request: Request, call_next: RequestResponseEndpoint) -> Response:
        try:
            answer = await call_next(request)
        except ClientDisconnect:
            answer = Answer({"detail": "The request did not arrive."}, 400)
        except Exception:
            _LOG.exception("a request to %s failed", request.url.path)
            answer = Answer({"detail": "The server failed; see its terminal."}, 500)
        for name, value in HEADERS.items():
            answer.headers.setdefault(name, value)
        return answer

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
