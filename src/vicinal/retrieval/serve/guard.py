"""The guard before the application: whom it is addressed to, how much may come, and what a browser may do with it."""

import logging
from collections.abc import Collection, Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vicinal.retrieval.serve.errors import RequestError, TooMuch

_LOG = logging.getLogger("vicinal.retrieval.serve")

# Scripts and styles from files of ours alone. Style attributes are free because the report's charts set colours so.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; img-src 'self' blob: "
    "data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """ASGI middleware, the outermost: rejects strangers, counts bytes, and puts ``HEADERS`` on every answer.

    A page anywhere on the web can make its visitor's browser send requests to 127.0.0.1. It cannot read the answers
    as long as no CORS header permits it; by pointing a name of its own at 127.0.0.1 it could (DNS rebinding), but then
    the Host header holds that name.

    Args:
        application: what is guarded.
        hosts: names by which this server may be called, without ports.
        body: the most bytes of a body.
        bodies: likewise for single paths.
    """

    def __init__(
        self, application: ASGIApp, *, hosts: Collection[str], body: int, bodies: Mapping[str, int] | None = None
    ) -> None:
        self.application, self.hosts = application, frozenset(host.lower() for host in hosts)
        self.body, self.bodies = body, dict(bodies or {})

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
            await self.application(scope, self._counted(scope, receive), guarded)
        except RequestError as error:
            await error.response()(scope, receive, guarded)
        except Exception:
            _LOG.exception("a request to %s failed", scope["path"])
            if started:
                raise
            failure = RequestError(500, "an answer.", "the server failed over this request.", "See its terminal.")
            await failure.response()(scope, receive, guarded)

    def _admit(self, headers: Headers) -> None:
        host = headers.get("host", "")
        if name_of(host) not in self.hosts:
            asked = f"a request for {', '.join(sorted(self.hosts))}."
            got = f"the Host header is {host[:60]!r}." if host else "there is no Host header."
            raise RequestError(421, asked, got, "Use that address, or start the server with --allow-host NAME.")
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            asked = "a request from this server's own page, or from a program."
            raise RequestError(403, asked, "a page of another site sent it.", "Open this server's page itself.")

    def _counted(self, scope: Scope, receive: Receive) -> Receive:
        limit, seen = self.bodies.get(scope["path"], self.body), 0
        announced = Headers(scope=scope).get("content-length", "")
        too_much_announced = announced.isdigit() and int(announced[:20]) > limit

        async def counted() -> Message:
            nonlocal seen
            if too_much_announced:
                raise TooMuch(limit)
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                raise TooMuch(limit)
            return message

        return counted


def name_of(host: str) -> str:
    """The name in a Host header, without its port.

    >>> name_of("LocalHost:8000"), name_of("[::1]:8000"), name_of("127.0.0.1")
    ('localhost', '[::1]', '127.0.0.1')
    """
    name, _, port = host.lower().rpartition(":")
    return name if name and port.isdigit() else host.lower()
