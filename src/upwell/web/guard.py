"""The guard in front of all routes checks the sender, the origin and the size of a request.

Any web page can send requests to 127.0.0.1, and a foreign host name can resolve to this address
(DNS rebinding). `Host` and, if present, `Origin` must therefore be one of our names. All paths
except `/healthz`, `/readyz` and the files of the dashboard need a token. The dashboard's files
contain no data, and a browser cannot send a token with its first request. The token identifies the
principal. Everybody but the owner may use only `/mcp` and `/team`.
"""

import re
from collections.abc import Callable, Collection, Iterable

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from upwell.ground.trace import DENIALS
from upwell.ground.types.rpc import IN_SCOPE, Principal
from upwell.web.oidc import InvalidToken, Verify
from upwell.web.team import TEAM_PATHS
from upwell.web.tokens import PrincipalOf

_DOTS = 2
"""The number of dots in a signed JSON web token."""


Denied = Callable[[str, str], None]
"""Records who was refused, by name or address, and why."""


class Denials(Struct, frozen=True):
    """The callbacks for refused requests. `principal` receives the name of a known principal.
    `stranger` receives the address of a sender without a valid token."""

    principal: Denied = lambda who, why: None
    stranger: Denied = lambda who, why: None


class Admission:
    """Finds principals. `principal_of()` looks up a token that upwell created, and `verify()`
    checks a token that an issuer signed. The guard reports most refused requests to `denied`."""

    def __init__(
        self,
        principal_of: PrincipalOf,
        verify: Verify | None = None,
        *,
        denied: Denials | None = None,
    ) -> None:
        self._principal_of = principal_of
        self._verify = verify
        self.denied = denied or Denials()

    async def find(self, token: str) -> Principal | InvalidToken | None:
        """Return the principal of a token, the reason for refusing it, or None if it is unknown."""
        found: Principal | InvalidToken | None = self._principal_of(token)
        if found is None and self._verify and token.count(".") == _DOTS:
            found = await self._verify(token)
        return found


MAX_BODY_BYTES = 4_194_304
_MAX_DIGITS = 16
_AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]{2,45})\]|([a-z0-9._-]{1,253}))(?::[0-9]{0,5})?", re.I)
"""Matches a host and a port (RFC 3986, section 3.2), but no user information, escapes or other
notations. In `127.0.0.1:@evil.example`, the part before the colon is not the host.
"""
_NO_TOKEN = (
    "this needs a valid token: the owner's is in UPWELL_HOME/token, others get one from the owner "
    "(`upwell token add`)"
)
OPEN_PATHS = frozenset({"/healthz", "/readyz"})
SHARED_PATHS = frozenset({"/mcp", *TEAM_PATHS})
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


class TooLarge(Exception):
    """The body exceeds the limit."""


class Guard:
    """`hosts` are our own names and addresses. `open_paths` can be read without a token."""

    def __init__(
        self,
        app: ASGIApp,
        admission: Admission,
        hosts: Iterable[str],
        open_paths: Collection[str] = (),
    ) -> None:
        self._app = app
        self._admission = admission
        self._hosts = frozenset(host.lower() for host in hosts if host)
        self._open_paths = OPEN_PATHS.union(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        refusal = await self._refusal(scope, headers)
        if refusal:
            DENIALS.add(str(refusal.status_code))
        await self._capped(refusal or self._app, scope, receive, send)

    async def _capped(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application. If it reads a body over the limit, `TooLarge` is raised inside it.
        Any response that it then sends, such as Starlette's 500, is replaced by 413.
        """
        started, remaining = False, MAX_BODY_BYTES

        async def counted() -> Message:
            nonlocal remaining
            message = await receive()
            remaining -= len(message.get("body", b""))
            if remaining < 0:
                raise TooLarge
            return message

        async def sealed(message: Message) -> None:
            nonlocal started
            if remaining < 0 and not started:
                return
            if message["type"] == "http.response.start":
                started = True
                message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
            await send(message)

        try:
            await app(scope, counted, sealed)
        except TooLarge:
            if not started:
                await _refused(413, "the body is too large")(scope, receive, send)

    async def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        if refusal := self._malformed(headers):
            return refusal
        path = scope["path"]
        if path in self._open_paths and scope["method"] in ("GET", "HEAD"):
            return None
        scheme, _, token = headers.get("authorization", "").partition(" ")
        is_bearer = scheme.lower() == "bearer"
        principal = await self._admission.find(token.strip()) if is_bearer else None
        if isinstance(principal, InvalidToken):
            self._admission.denied.stranger(_address_of(scope), principal.reason)
            return _refused(principal.status, principal.reason, ask=principal.status == 401)
        if principal is None:
            why = "unknown token" if "authorization" in headers else "no token"
            self._admission.denied.stranger(_address_of(scope), why)
            return _refused(401, _NO_TOKEN, ask=True)
        if principal.name and path not in SHARED_PATHS:
            why = "only the owner of the home may use this path"
            self._admission.denied.principal(principal.name, why)
            return _refused(403, why)
        scope[IN_SCOPE] = principal
        return None

    def _malformed(self, headers: Headers) -> Response | None:
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or _name_of(hosts[0]) not in self._hosts:
            return _refused(421, "unknown host name")
        if len(origins) > 1 or any(_origin_of(origin) not in self._hosts for origin in origins):
            return _refused(403, "origin not allowed")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit() and len(length) < _MAX_DIGITS):
            return _refused(400, "content-length is not a number")
        if int(length) > MAX_BODY_BYTES:
            return _refused(413, "the body is too large")
        return None


def _address_of(scope: Scope) -> str:
    """The address of the sender, or of the proxy in front of this server."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _refused(status: int, why: str, *, ask: bool = False) -> JSONResponse:
    headers = {"www-authenticate": "Bearer"} if ask else None
    return JSONResponse({"error": why}, status_code=status, headers=headers)


def _origin_of(origin: str) -> str:
    """Return the host in the origin of a web page, or "" for any other origin."""
    scheme, separator, authority = origin.partition("://")
    return _name_of(authority) if separator and scheme.lower() in ("http", "https") else ""


def _name_of(authority: str) -> str:
    """Return the host of `HOST` or `[IPV6]`, with or without a port, or "" for anything else."""
    match = _AUTHORITY.fullmatch(authority)
    return (match[1] or match[2]).lower() if match else ""
