"""Signs in to a server through the user's browser, with the OAuth client of the official SDK.

The SDK finds the authorization server (RFC 9728, 8414), registers upwell there (RFC 7591), builds
the request (PKCE, resource, state, issuer) and exchanges the code. Only this module loads the SDK,
which the `upwell[login]` extra installs. The browser returns to a loopback port (RFC 8252, section
7.3).

The MCP server supplies the addresses that a login contacts, so they could point into the local
network, and are checked. What counts is the host that the system would connect to, however it is
written: `2852039166`, `0xa9fea9fe`, `[::ffff:169.254.169.254]` and `169-254-169-254.nip.io` are the
same host.
"""

import asyncio
import ipaddress
import logging
import re
import socket
import time
import webbrowser
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urlsplit

from upwell.ground.errors import UpstreamUnavailable, UsageError, extra_hint
from upwell.ground.listener import Listener, stream_listener
from upwell.wire.logins import Login

if TYPE_CHECKING:
    from mcp.client.auth import OAuthClientProvider

Ip = ipaddress.IPv4Address | ipaddress.IPv6Address

METADATA_NAMES = frozenset({"metadata", "metadata.google.internal", "instance-data"})
METADATA_ADDRESSES = frozenset(
    map(ipaddress.ip_address, ("100.100.100.200", "192.0.0.192", "fd00:ec2::254"))
)
"""Cloud metadata services outside the link-local range."""
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")
RESOLVE_SECONDS = 5.0
LOCAL_ENDS = (".local", ".lan", ".internal", ".intranet", ".corp", ".home", ".home.arpa")
"""Endings of names that only a local network resolves. Names without a dot are local as well."""
MIRRORS = (".nip.io", ".sslip.io", ".xip.io", ".traefik.me", ".local.gd")
"""Domains that resolve `10-0-0-1.DOMAIN` to 10.0.0.1."""
LOOPBACK_DOMAINS = (".localhost", ".localtest.me", ".lvh.me", ".vcap.me", ".lacolhost.com")
_QUAD = re.compile(r"(?<![0-9])(?:[0-9]{1,3}[.-]){3}[0-9]{1,3}(?![0-9])")
_HEX_QUAD = re.compile(r"(?<![0-9a-z])[0-9a-f]{8}(?![0-9a-z])")


def check(address: str, url: str) -> None:
    """Check an address that the server at `url` supplied.

    - It must use HTTPS. HTTP is allowed only if the address is at the server's own origin, or if
      both the address and the server are on this machine.
    - A public server may not point to a private address.
    - Only a server on this machine may point to this machine.
    - Nothing may point to a cloud's metadata service.

    Raises:
        PermissionError: the address is not allowed.
    """
    parts, own = urlsplit(address), urlsplit(url)
    host, own_host = _name(parts.hostname), _name(own.hostname)
    is_own = parts[:2] == own[:2]
    near = _is_loopback(host) and _is_loopback(own_host)
    may_be_plain = parts.scheme == "http" and (is_own or near)
    is_allowed = (parts.scheme == "https" or may_be_plain) and host and "@" not in parts.netloc
    if not is_allowed or _is_metadata(host) or not (is_own or _is_as_near(host, own_host)):
        raise PermissionError(
            f"the server points to {parts.scheme}://{host[:100]}, which is not safe to contact"
        )


async def check_resolved(address: str, url: str) -> None:
    """Check an address and, unless it is at the origin of `url`, all IP addresses that its host
    resolves to now.

    Raises:
        PermissionError: one of them is not allowed.
    """
    check(address, url)
    parts = urlsplit(address)
    host = _name(parts.hostname)
    if ip_of(host) or parts[:2] == urlsplit(url)[:2]:
        return
    try:
        async with asyncio.timeout(RESOLVE_SECONDS):
            addresses = await asyncio.get_running_loop().getaddrinfo(host, None)
    except (OSError, TimeoutError):
        # A host that cannot be resolved cannot be contacted either.
        return
    for ip in {str(entry[4][0]).partition("%")[0] for entry in addresses}:
        check(f"https://[{ip}]/" if ":" in ip else f"https://{ip}/", url)


def ip_of(host: str) -> Ip | None:
    """`host` as an IP address, however it is written; None for a host name. An IPv4 address inside
    an IPv6 address is returned as IPv4."""
    try:
        ip: Ip = ipaddress.ip_address(host)
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except (OSError, ValueError):
            return None
    if isinstance(ip, ipaddress.IPv6Address):
        if ip in _TRANSLATED:
            return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        return ip.ipv4_mapped or ip.sixtofour or ip
    return ip


def _meant(host: str) -> Ip | None:
    """The IP address in `host`, which may be part of a name (`10-0-0-1.nip.io`); None for other
    names."""
    if ip := ip_of(host):
        return ip
    spelt = _QUAD.search(host)
    if spelt:
        return ip_of(spelt.group().replace("-", "."))
    if host.endswith(MIRRORS):
        name = next(host.removesuffix(end) for end in MIRRORS if host.endswith(end))
        if spelt := _HEX_QUAD.search(name):
            return ipaddress.IPv4Address(int(spelt.group(), 16))
        return ip_of(name.rpartition(".")[2].replace("-", ":"))
    return None


def _is_local_name(host: str) -> bool:
    return ip_of(host) is None and ("." not in host or host.endswith(LOCAL_ENDS))


def _name(host: str | None) -> str:
    return (host or "").lower().rstrip(".").partition("%")[0]


def _is_loopback(host: str) -> bool:
    ip = _meant(host)
    return ip.is_loopback if ip else f".{host}".endswith(LOOPBACK_DOMAINS)


def _is_metadata(host: str) -> bool:
    ip = _meant(host)
    return ip.is_link_local or ip in METADATA_ADDRESSES if ip else host in METADATA_NAMES


def _is_as_near(host: str, own_host: str) -> bool:
    """True if a server at `own_host` may send a login to `host`. This machine is allowed only for a
    server on this machine, and a private host only for a server that is private or on this
    machine."""
    if _is_loopback(host):
        return _is_loopback(own_host)
    ip, own = _meant(host), _meant(own_host)
    is_own_near = _is_loopback(own_host) or bool(own and own.is_private)
    if ip is None:
        return is_own_near or _is_local_name(own_host) or not _is_local_name(host)
    return ip.is_global or (not ip.is_unspecified and is_own_near)


PATH = "/callback"
MAX_LINES = 100
MAX_CONNECTIONS = 16
READ_SECONDS = 10.0
_PAGE = (
    "<!doctype html><meta charset=utf-8><title>upwell</title>"
    "<p>Signed in to {server}. You can close this window."
)
_ANSWER = (
    b"HTTP/1.1 %b\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: %d\r\n"
    b"Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n%b"
)


class Callback:
    """Listens for the browser's request inside an `async with` block. `expect()` sets the OAuth
    `state` of the current login. A request with another `state` is rejected."""

    def __init__(self, port: int = 0) -> None:
        self._port = port
        self._state = ""
        self._server_name = ""
        self._listener: Listener | None = None
        self._response: asyncio.Future[Mapping[str, str]] | None = None

    async def __aenter__(self) -> "Callback":
        self._response = asyncio.get_running_loop().create_future()
        try:
            listening = socket.create_server(("127.0.0.1", self._port))
        except OSError as error:
            raise UsageError(
                f"cannot listen on 127.0.0.1:{self._port}: {error.strerror}",
                hint="choose another --port",
            ) from error
        self._port = listening.getsockname()[1]
        self._listener = stream_listener(
            listening, self._serve, max_open=MAX_CONNECTIONS, name="the login"
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listener
        self._listener.close()
        await self._listener.wait_closed()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._port}{PATH}"

    def expect(self, state: str, server: str) -> None:
        self._state, self._server_name = state, server

    async def answer(self) -> Mapping[str, str]:
        """Wait for the browser. Returns the query parameters of its request."""
        assert self._response
        return await self._response

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_SECONDS):
                method, _, rest = (await reader.readline()).decode("latin-1").partition(" ")
                for _ in range(MAX_LINES):
                    if not (await reader.readline()).strip():
                        break
                if method != "GET":
                    return
                target = rest.partition(" ")[0]
                status, body = self._take(target)
                writer.write(_ANSWER % (status, len(body), body))
                await writer.drain()
        except (OSError, TimeoutError, ValueError):
            return
        finally:
            writer.close()

    def _take(self, target: str) -> tuple[bytes, bytes]:
        parts = urlsplit(target)
        parameters = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path != PATH:
            return b"404 Not Found", b"not found"
        if not self._state or parameters.get("state") != self._state:
            return b"400 Bad Request", b"this login is not the one in progress"
        assert self._response
        if not self._response.done():
            self._response.set_result(parameters)
        name = "".join(char for char in self._server_name if char.isalnum() or char in "-_")
        return b"200 OK", _PAGE.format(server=name).encode()


PATIENCE_SECONDS = 300.0
REQUEST_SECONDS = 30.0
_HELLO = (
    '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    '"capabilities":{},"clientInfo":{"name":"upwell","version":"0"}}}'
)
_HEADERS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2025-11-25",
}
Show = Callable[[str], Awaitable[None]]
"""Receives the address that the user's browser should open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginRequest:
    """A request to log in to `server` at the address `url`.

    - `client_id` is the id of a client that was registered beforehand. Without it, upwell registers
      itself.
    - `port` is the port of the redirect address.
    - `scope` is requested in addition to the scopes that the server asks for.
    - With `client_secret`, upwell signs in without a user, and only at the authorization server
      `issuer`.
    """

    server: str
    url: str
    client_id: str = ""
    port: int = 0
    scope: str = ""
    client_secret: str = field(default="", repr=False)
    issuer: str = ""


async def in_browser(address: str) -> None:
    """Open the user's browser, if there is one."""
    await asyncio.to_thread(webbrowser.open, address)


async def log_in(request: LoginRequest, show: Show = in_browser) -> Login:
    """Sign in. The user has five minutes to do so in the browser.

    Raises:
        UpstreamUnavailable: the server cannot be reached, needs no login or rejected it, or the
            user did not finish in time.
        UsageError: the SDK is not installed, or the port is in use.
    """
    if find_spec("mcp") is None:
        raise UsageError(
            "signing in needs the official MCP SDK, which is not installed",
            hint=extra_hint("login"),
        )
    if request.client_secret:
        from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider

        provider = ClientCredentialsOAuthProvider(
            server_url=request.url,
            storage=_NoStorage(None),
            client_id=request.client_id,
            client_secret=request.client_secret,
            scope=request.scope or None,
            issuer=request.issuer,
        )
        return await _sign_in(request, provider)
    async with Callback(request.port) as callback:
        return await _sign_in(request, _provider(request, callback, show))


async def _sign_in(request: LoginRequest, provider: "OAuthClientProvider") -> Login:
    """Make the SDK log in by opening and closing a session."""
    import httpx2

    async def check_request(sent: httpx2.Request) -> None:
        await check_resolved(str(sent.url), request.url)

    logging.getLogger("mcp").addHandler(logging.NullHandler())
    logging.getLogger("mcp").propagate = False
    client = httpx2.AsyncClient(
        auth=provider,
        timeout=REQUEST_SECONDS,
        event_hooks={"request": [check_request]},
    )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS), client:
            response = await client.post(request.url, content=_HELLO, headers=_HEADERS)
            if response.status_code == 401:
                raise PermissionError("the server rejects the token that it issued")
            if session := response.headers.get("mcp-session-id"):
                headers = {**_HEADERS, "mcp-session-id": session}
                await client.delete(request.url, headers=headers)
    except TimeoutError as error:
        raise _failed(request, "the browser did not return in time") from error
    except Exception as error:
        raise _failed(request, _reason(error)) from error
    return _login_from(request, provider)


def _provider(request: LoginRequest, callback: Callback, show: Show) -> "OAuthClientProvider":
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import (
        AuthorizationCodeResult,
        OAuthClientInformationFull,
        OAuthClientMetadata,
    )

    async def redirect(address: str) -> None:
        await check_resolved(address, request.url)
        callback.expect(parse_qs(urlsplit(address).query)["state"][0], request.server)
        await show(with_scope(address, request.scope))

    async def on_return() -> AuthorizationCodeResult:
        parameters = await callback.answer()
        if "error" in parameters:
            reason = parameters.get("error_description") or parameters["error"]
            raise PermissionError(f"the server refused: {reason[:200]}")
        return AuthorizationCodeResult(
            code=parameters.get("code", ""),
            state=parameters.get("state"),
            iss=parameters.get("iss"),
        )

    known: Any = None
    if request.client_id:
        known = OAuthClientInformationFull.model_validate(
            {
                "client_id": request.client_id,
                "redirect_uris": [callback.uri],
                "token_endpoint_auth_method": "none",
            }
        )
    metadata = OAuthClientMetadata.model_validate(
        {
            "client_name": "upwell",
            "redirect_uris": [callback.uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
        }
    )
    return OAuthClientProvider(
        server_url=request.url,
        client_metadata=metadata,
        storage=_NoStorage(known),
        redirect_handler=redirect,
        callback_handler=on_return,
    )


def with_scope(address: str, scope: str) -> str:
    """Add scopes to an authorization request. By itself, the SDK requests only scopes that the
    server names."""
    if not scope:
        return address
    parts = urlsplit(address)
    query = parse_qs(parts.query, keep_blank_values=True)
    scopes = dict.fromkeys([*"".join(query.get("scope", [])).split(), *scope.split()])
    query["scope"] = [" ".join(scopes)]
    return parts._replace(query=urlencode(query, doseq=True)).geturl()


class _NoStorage:
    """The storage that the SDK requires. It stores nothing, because `_login_from()` takes the
    tokens from the SDK's context."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def get_tokens(self) -> None:
        return None

    async def set_tokens(self, tokens: Any) -> None:
        return None

    async def get_client_info(self) -> Any:
        return self._client

    async def set_client_info(self, client_info: Any) -> None:
        return None


def _login_from(request: LoginRequest, provider: "OAuthClientProvider") -> Login:
    context = provider.context
    tokens, client, metadata = context.current_tokens, context.client_info, context.oauth_metadata
    if tokens is None or client is None:
        raise _failed(request, "the server needs no login, or cannot be reached")
    parts = urlsplit(request.url)
    endpoint = str(metadata.token_endpoint) if metadata and metadata.token_endpoint else ""
    with_resource = context.should_include_resource_param(_HEADERS["mcp-protocol-version"])
    seconds = tokens.expires_in
    return Login(
        url=request.url,
        access_token=tokens.access_token,
        refresh_token=tokens.refresh_token or "",
        expires_at=None if seconds is None else time.time() + seconds,
        token_endpoint=endpoint or f"{parts.scheme}://{parts.netloc}/token",
        client_id=client.client_id,
        client_secret=client.client_secret or "",
        auth_method=client.token_endpoint_auth_method or "none",
        resource=context.get_resource_url() if with_resource else "",
        is_machine=bool(request.client_secret),
        scope=" ".join(dict.fromkeys(f"{tokens.scope or ''} {request.scope}".split())),
    )


def _reason(error: BaseException) -> str:
    """The error on one line. A malformed response is not quoted, because it may contain tokens."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split())
    if "validation error" in text:
        text = "the server's answer does not follow the specification"
    return text[:300] or type(error).__name__


def _failed(request: LoginRequest, reason: str) -> UpstreamUnavailable:
    return UpstreamUnavailable(
        f"signing in to {request.server!r} failed: {reason}",
        server=request.server,
        hint=f"check the url of [server.{request.server}], then try again",
    )
