"""Logging in at a server, in the user's browser, with the official SDK's OAuth client.

The SDK finds the authorization server (RFC 9728, 8414), registers us there (RFC 7591), makes the
request (PKCE, resource, state, issuer) and exchanges the code. It is loaded here and nowhere else.
"""

import asyncio
import ipaddress
import logging
import time
import webbrowser
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urlsplit

from upwell.ground.errors import UpstreamUnavailable
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
"""Gets the address that the user's browser has to go to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A login to be made: the server's name and address, and who we are there if that was agreed on
    beforehand (`client_id`), with the port of the redirect; else we register ourselves. `scope` is
    asked for beside what the server asks for by itself. With a `client_secret` it is a machine that
    logs in, at the authorization server `issuer` and no other."""

    server: str
    url: str
    client_id: str = ""
    port: int = 0
    scope: str = ""
    client_secret: str = field(default="", repr=False)
    issuer: str = ""


async def in_browser(address: str) -> None:
    """Open the user's browser, where there is one."""
    await asyncio.to_thread(webbrowser.open, address)


async def log_in(wish: Wish, show: Show = in_browser) -> Login:
    """Log in, and wait for the user as long as it takes, at most five minutes.

    Raises:
        UpstreamUnavailable: the server wants no login, it was refused, or nobody came back.
        UsageError: the port is taken.
    """
    if wish.client_secret:
        return await _made(wish, _machine(wish))
    async with Callback(wish.port) as callback:
        return await _made(wish, _provider(wish, callback, show))


async def _made(wish: Wish, provider: "OAuthClientProvider") -> Login:
    """The login that the SDK makes when the server asks for one."""
    import httpx2

    logging.getLogger("mcp").addHandler(logging.NullHandler())
    logging.getLogger("mcp").propagate = False
    client = httpx2.AsyncClient(
        auth=provider,
        timeout=REQUEST_SECONDS,
        event_hooks={"request": [_only_safe(wish.url)]},
    )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS), client:
            await _try(client, wish.url)
    except TimeoutError as error:
        raise _failed(wish, "nobody came back in time") from error
    except Exception as error:
        raise _failed(wish, _said(error)) from error
    return _login(wish, provider)


def _machine(wish: Wish) -> "OAuthClientProvider":
    from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider

    return ClientCredentialsOAuthProvider(
        server_url=wish.url,
        storage=_Nowhere(None),
        client_id=wish.client_id,
        client_secret=wish.client_secret,
        scope=wish.scope or None,
        issuer=wish.issuer,
    )


async def _try(client: "httpx2.AsyncClient", url: str) -> None:
    """Greet the server, which begins the login; and say goodbye.

    Raises:
        PermissionError: it does not take what it gave.
    """
    response = await client.post(url, content=_HELLO, headers=_HEADERS)
    if response.status_code == 401:
        raise PermissionError("it does not take the login that it gave")
    if session := response.headers.get("mcp-session-id"):
        await client.delete(url, headers={**_HEADERS, "mcp-session-id": session})


def _provider(wish: Wish, callback: Callback, show: Show) -> "OAuthClientProvider":
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import (
        AuthorizationCodeResult,
        OAuthClientInformationFull,
        OAuthClientMetadata,
    )

    async def redirect(address: str) -> None:
        _check(address, wish.url)
        callback.expect(parse_qs(urlsplit(address).query)["state"][0], wish.server)
        await show(with_scope(address, wish.scope))

    async def came_back() -> AuthorizationCodeResult:
        given = await callback.answer()
        if "error" in given:
            why = given.get("error_description") or given["error"]
            raise PermissionError(f"it was refused: {why[:200]}")
        return AuthorizationCodeResult(
            code=given.get("code", ""), state=given.get("state"), iss=given.get("iss")
        )

    known: Any = None
    if wish.client_id:
        known = OAuthClientInformationFull.model_validate(
            {
                "client_id": wish.client_id,
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
        server_url=wish.url,
        client_metadata=metadata,
        storage=_Nowhere(known),
        redirect_handler=redirect,
        callback_handler=came_back,
    )


def with_scope(address: str, scope: str) -> str:
    """The address of an authorization request that asks for these scopes, too. The SDK asks for
    what the server's metadata names, and for more only within a session of its own."""
    if not scope:
        return address
    parts = urlsplit(address)
    query = parse_qs(parts.query, keep_blank_values=True)
    asked = dict.fromkeys([*"".join(query.get("scope", [])).split(), *scope.split()])
    query["scope"] = [" ".join(asked)]
    return parts._replace(query=urlencode(query, doseq=True)).geturl()


class _Nowhere:
    """The SDK's storage: nothing is there, and what it has is taken from it at the end."""

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


def _login(wish: Wish, provider: "OAuthClientProvider") -> Login:
    context = provider.context
    tokens, client, metadata = context.current_tokens, context.client_info, context.oauth_metadata
    if tokens is None or client is None:
        raise _failed(wish, "it wants no login, or is not there")
    endpoint = str(metadata.token_endpoint) if metadata and metadata.token_endpoint else ""
    with_resource = context.should_include_resource_param(_HEADERS["mcp-protocol-version"])
    seconds = tokens.expires_in
    return Login(
        url=wish.url,
        access_token=tokens.access_token,
        refresh_token=tokens.refresh_token or "",
        expires_at=None if seconds is None else time.time() + seconds,
        token_endpoint=endpoint or _beside(wish.url, "/token"),
        client_id=client.client_id,
        client_secret=client.client_secret or "",
        auth_method=client.token_endpoint_auth_method or "none",
        resource=context.get_resource_url() if with_resource else "",
        is_machine=bool(wish.client_secret),
        scope=" ".join(dict.fromkeys(f"{tokens.scope or ''} {wish.scope}".split())),
    )


def _only_safe(url: str) -> Callable[["httpx2.Request"], Awaitable[None]]:
    async def check(request: "httpx2.Request") -> None:
        _check(str(request.url), url)

    return check


def _check(address: str, url: str) -> None:
    """What a server tells us to ask must be encrypted, or on this machine where the server is; and
    never the network's own services (metadata of clouds).

    Raises:
        PermissionError: it is not.
    """
    parts, own = urlsplit(address), urlsplit(url)
    host = parts.hostname or ""
    encrypted = parts.scheme == "https"
    same = parts.scheme == "http" and parts[:2] == own[:2]
    here = parts.scheme == "http" and _is_loopback(host) and _is_loopback(own.hostname or "")
    if not (encrypted or same or here) or _is_link_local(host):
        raise PermissionError(f"it names {parts.scheme}://{host[:100]}, which is not safe to ask")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_link_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_link_local
    except ValueError:
        return host == "metadata.google.internal"


def _beside(url: str, path: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{path}"


def _said(error: BaseException) -> str:
    """One line. What was wrong in an answer is not quoted: tokens stand there."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split())
    if "validation error" in text:
        text = "its answer is not as the specification has it"
    return text[:300] or type(error).__name__


def _failed(wish: Wish, why: str) -> UpstreamUnavailable:
    return UpstreamUnavailable(
        f"the login at {wish.server!r} failed: {why}",
        server=wish.server,
        hint=f"check the url of [server.{wish.server}], then try again",
    )
