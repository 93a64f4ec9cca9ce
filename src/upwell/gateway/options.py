"""The options of the gateway, and of an upstream server."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Transport(StrEnum):
    """The transport of a server with an address."""

    HTTP = "http"
    SSE = "sse"


class Auth(StrEnum):
    """How to authenticate at a server with an address, in addition to its headers."""

    NONE = "none"
    OAUTH = "oauth"
    """With the user's login: `upwell login NAME`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """`gateway.*`. Times in seconds, sizes in bytes. `hosts` are host names under which a proxy
    forwards to `serve --http`. A list of tools with more than `lazy_tools_tokens` is served in
    short form; 0 means never. A replica that was told to end reports for `notice_seconds` that it
    is not ready, and still accepts requests; then open calls have `drain_seconds` to end.
    """

    connect_timeout_seconds: float = 30.0
    call_timeout_seconds: float = 60.0
    list_wait_seconds: float = 5.0
    max_line_bytes: int = 64 * 1024 * 1024
    max_in_flight: int = 1024
    hosts: tuple[str, ...] = ()
    lazy_tools_tokens: int = 0
    notice_seconds: float = 2.0
    drain_seconds: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOptions:
    """`cache.*`: answers of tools whose `server__tool` matches a pattern in `tools` may be
    cached."""

    tools: tuple[str, ...] = ()
    ttl_seconds: float = 300.0
    max_bytes: int = 64_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """One upstream, `[server.NAME]`: a program with its arguments, or an address with headers for
    authentication. Without `prefix` its tools and prompts keep their own names; a name that two
    servers claim belongs to the first of them.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    transport: Transport = Transport.HTTP
    auth: Auth = Auth.NONE
    enabled: bool = True
    call_timeout_seconds: float | None = None
    max_in_flight: int | None = None
    prefix: bool = True
