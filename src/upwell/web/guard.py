"""One guard before every route: who asks, from where, and how much they send.

A web page may send requests to 127.0.0.1, and a name of its own may lead there (DNS rebinding): so
the `Host` must be one of ours, an `Origin` too where there is one, and nothing is answered without
a token but `/healthz`. The token says who asks; whom the owner gave one comes in at `/mcp` only.
Browsers cannot send a token at first: some refusals are a page that asks for it.
"""

from collections.abc import Callable, Iterable, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from upwell.ground.principal import IN_SCOPE
from upwell.web.tokens import PrincipalOf

MAX_BODY_BYTES = 4_194_304
_MAX_DIGITS = 16
OPEN_PATHS = frozenset({"/healthz"})
SHARED_PATHS = frozenset({"/mcp"})
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


class TooLarge(Exception):
    """The body is over the limit."""


class Guard:
    """ASGI middleware. `hosts` are the names and addresses under which we are reached;
    `principal_of` knows the tokens; `doors` make the pages that ask for one, by path and with a
    status."""

    def __init__(
        self,
        app: ASGIApp,
        principal_of: PrincipalOf,
        hosts: Iterable[str],
        max_body_bytes: int = MAX_BODY_BYTES,
        doors: Mapping[str, Callable[[int], Response]] | None = None,
    ) -> None:
        self._app = app
        self._principal_of = principal_of
        self._hosts = frozenset(host.lower() for host in hosts)
        self._max_body_bytes = max_body_bytes
        self._doors = doors or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        await self._capped(refusal or self._app, scope, receive, send)

    async def _capped(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application; a body that grows over the limit is answered with 413, whatever the
        application makes of the interruption."""
        begun, left = False, self._max_body_bytes

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise TooLarge
            return message

        async def sealed(message: Message) -> None:
            nonlocal begun
            if left < 0 and not begun:
                return
            if message["type"] == "http.response.start":
                begun = True
                message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
            await send(message)

        try:
            await app(scope, counted, sealed)
        except TooLarge:
            if not begun:
                await _refused(413, "the body is too large")(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """Why not, or None."""
        if _name_of(headers.get("host", "")) not in self._hosts:
            return _refused(421, "this is not the host of that name")
        origin = headers.get("origin")
        if origin is not None and _origin_of(origin) not in self._hosts:
            return _refused(403, "not from that origin")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit() and len(length) < _MAX_DIGITS):
            return _refused(400, "content-length is no number")
        if int(length) > self._max_body_bytes:
            return _refused(413, "the body is too large")
        if scope["path"] in OPEN_PATHS:
            return None
        scheme, _, token = headers.get("authorization", "").partition(" ")
        principal = self._principal_of(token.strip()) if scheme.lower() == "bearer" else None
        if principal is None and (door := self._doors.get(scope["path"])):
            return door(401)
        if principal is None:
            return _refused(401, "the token in UPWELL_HOME/token is needed", ask=True)
        if principal.name and scope["path"] not in SHARED_PATHS:
            return _refused(403, "this is for the owner of the home")
        scope[IN_SCOPE] = principal
        return None


def _refused(status: int, why: str, *, ask: bool = False) -> JSONResponse:
    headers = {"www-authenticate": "Bearer"} if ask else None
    return JSONResponse({"error": why}, status_code=status, headers=headers)


def _origin_of(origin: str) -> str:
    """The host of an origin, "" where that is no address."""
    try:
        return _name_of(urlsplit(origin).netloc)
    except ValueError:
        return ""


def _name_of(netloc: str) -> str:
    """The host without its port: `[::1]:80` and `localhost:80`."""
    if netloc.startswith("["):
        return netloc.partition("]")[0].lstrip("[").lower()
    return netloc.partition(":")[0].lower()
