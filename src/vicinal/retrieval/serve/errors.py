"""Errors of the server: a status, what was asked, what was received, what to do; never a traceback, never an echo."""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from vicinal.errors import RunError, VicinalError


class Problem(BaseModel):
    """Why a request was rejected. Nothing has changed."""

    asked: str = Field(description="What the request wanted, or what the server expects there.")
    got: str = Field(description="What was received instead, with its numbers.")
    advice: str = Field(description="What to do.")


class RequestError(Exception):
    """An answer of 4xx or 5xx that a person can act on."""

    def __init__(
        self, status: int, asked: str, got: str, advice: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(got)
        self.status, self.headers = status, dict(headers or {})
        self.problem = Problem(asked=asked, got=got, advice=advice)

    def response(self) -> JSONResponse:
        return JSONResponse(self.problem.model_dump(), self.status, self.headers)


class TooMuch(HTTPException):
    """A body over its limit. Starlette's kind of exception, which passes unchanged through whoever reads bodies."""

    def __init__(self, limit: int) -> None:
        super().__init__(413, f"more than {limit:,} bytes")
        self.limit = limit


#: The errors that every operation shares, for the API's description.
SHARED: dict[int | str, dict[str, Any]] = {
    421: {"model": Problem, "description": "The Host header names another machine."},
    422: {"model": Problem, "description": "A value that cannot be."},
    503: {"model": Problem, "description": "Too many requests wait already; Retry-After says when to ask again."},
}
NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"model": Problem, "description": "There is no such item."}}
BODY: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "A body that cannot be read."},
    413: {"model": Problem, "description": "A body, or a picture in it, larger than the limits."},
}


def overloaded(waiting: int) -> RequestError:
    asked, got = "the server works on a few requests at a time.", f"{waiting} of this kind wait already."
    return RequestError(503, asked, got, "Ask again in a second.", {"Retry-After": "1"})


def answer_errors(application: FastAPI) -> None:
    """Answer every error with a ``Problem``."""

    async def rejected(_: Request, error: Any) -> JSONResponse:
        response: JSONResponse = error.response()
        return response

    async def invalid(_: Request, error: Any) -> JSONResponse:
        return RequestError(422, *_sentences(error.errors())).response()

    async def of_vicinal(_: Request, error: Exception) -> JSONResponse:
        status, advice = (500, "Check the run's files.") if isinstance(error, RunError) else (422, "Ask differently.")
        asked = "what this run and its collection can answer."
        return RequestError(status, asked, text(str(error)), advice).response()

    async def plain(_: Request, error: Any) -> JSONResponse:
        if isinstance(error, TooMuch):
            return RequestError(
                413, f"a body of at most {error.limit:,} bytes.", "more bytes than that.", "Send a smaller one."
            ).response()
        asked, advice = _PLAIN.get(error.status_code, ("a request that the server knows.", "See /docs."))
        return RequestError(error.status_code, asked, f"{error.detail}.", advice, error.headers).response()

    application.add_exception_handler(RequestError, rejected)
    application.add_exception_handler(RequestValidationError, invalid)
    application.add_exception_handler(VicinalError, of_vicinal)
    application.add_exception_handler(HTTPException, plain)


_PLAIN = {
    400: ("a JSON body.", "Check that it is valid JSON, in UTF-8."),
    404: ("a path that the server knows.", "See /docs for all of them."),
    405: ("a method that this path has.", "See /docs for the methods of each path."),
}


def _sentences(errors: Sequence[Any]) -> tuple[str, str, str]:
    """What pydantic found, as three sentences. The value is named, but a long one is cut and no body echoed."""
    first = errors[0]
    if first["type"] == "json_invalid":
        fault = f"text that is none: {first['ctx']['error']} at character {first['loc'][-1]}."
        return "a JSON body.", fault, "Check that it is valid JSON."
    place, got = " ".join(str(part) for part in first["loc"]) or "the request", _shown(first.get("input"))
    more = f" ({len(errors) - 1} more like it)" if len(errors) > 1 else ""
    asked = str(first["msg"]).removeprefix("Value error, ").rstrip(".")
    return text(f"{place}: {asked[:1].lower()}{asked[1:]}."), text(f"{got}{more}."), "See /docs for what it may be."


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
