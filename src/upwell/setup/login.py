"""Signs in to a server through the user's browser, with the OAuth client of the official SDK.

The SDK finds the authorization server (RFC 9728, 8414), registers upwell there (RFC 7591), builds
the request (PKCE, resource, state, issuer) and exchanges the code. Only this module loads the SDK,
which the `upwell[login]` extra installs.
"""

import asyncio
import logging
import time
import webbrowser
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urlsplit

from upwell.ground.errors import UpstreamUnavailable, UsageError, extra_hint
from upwell.setup.addresses import check_resolved
from upwell.setup.callback import Callback
from upwell.wire.logins import Login

if TYPE_CHECKING:
    import httpx2
    from mcp.client.auth import OAuthClientProvider

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
    _check_installed()
    if request.client_secret:
        return await _sign_in(request, _machine(request))
    async with Callback(request.port) as callback:
        return await _sign_in(request, _provider(request, callback, show))


def _check_installed() -> None:
    if find_spec("mcp") is None:
        raise UsageError(
            "signing in needs the official MCP SDK, which is not installed",
            hint=extra_hint("login"),
        )


async def _sign_in(request: LoginRequest, provider: "OAuthClientProvider") -> Login:
    """Make the SDK log in by sending the server a request."""
    import httpx2

    logging.getLogger("mcp").addHandler(logging.NullHandler())
    logging.getLogger("mcp").propagate = False
    client = httpx2.AsyncClient(
        auth=provider,
        timeout=REQUEST_SECONDS,
        event_hooks={"request": [_only_safe(request.url)]},
    )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS), client:
            await _try(client, request.url)
    except TimeoutError as error:
        raise _failed(request, "the browser did not return in time") from error
    except Exception as error:
        raise _failed(request, _reason(error)) from error
    return _login(request, provider)


def _machine(request: LoginRequest) -> "OAuthClientProvider":
    from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider

    return ClientCredentialsOAuthProvider(
        server_url=request.url,
        storage=_NoStorage(None),
        client_id=request.client_id,
        client_secret=request.client_secret,
        scope=request.scope or None,
        issuer=request.issuer,
    )


async def _try(client: "httpx2.AsyncClient", url: str) -> None:
    """Open and close a session, which makes the SDK log in."""
    response = await client.post(url, content=_HELLO, headers=_HEADERS)
    if response.status_code == 401:
        raise PermissionError("the server rejects the token that it issued")
    if session := response.headers.get("mcp-session-id"):
        await client.delete(url, headers={**_HEADERS, "mcp-session-id": session})


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
    """The storage that the SDK requires. It stores nothing, because `_login()` takes the tokens
    from the SDK's context."""

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


def _login(request: LoginRequest, provider: "OAuthClientProvider") -> Login:
    context = provider.context
    tokens, client, metadata = context.current_tokens, context.client_info, context.oauth_metadata
    if tokens is None or client is None:
        raise _failed(request, "the server needs no login, or cannot be reached")
    endpoint = str(metadata.token_endpoint) if metadata and metadata.token_endpoint else ""
    with_resource = context.should_include_resource_param(_HEADERS["mcp-protocol-version"])
    seconds = tokens.expires_in
    return Login(
        url=request.url,
        access_token=tokens.access_token,
        refresh_token=tokens.refresh_token or "",
        expires_at=None if seconds is None else time.time() + seconds,
        token_endpoint=endpoint or _beside(request.url, "/token"),
        client_id=client.client_id,
        client_secret=client.client_secret or "",
        auth_method=client.token_endpoint_auth_method or "none",
        resource=context.get_resource_url() if with_resource else "",
        is_machine=bool(request.client_secret),
        scope=" ".join(dict.fromkeys(f"{tokens.scope or ''} {request.scope}".split())),
    )


def _only_safe(url: str) -> Callable[["httpx2.Request"], Awaitable[None]]:
    async def check(request: "httpx2.Request") -> None:
        await check_resolved(str(request.url), url)

    return check


def _beside(url: str, path: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{path}"


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
