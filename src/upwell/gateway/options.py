"""The knobs of the gateway, and what an upstream server is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Transport(StrEnum):
    """How a server with an address is spoken to."""

    HTTP = "http"
    SSE = "sse"


class Auth(StrEnum):
    """What lets us in at a server with an address, beside its headers."""

    NONE = "none"
    OAUTH = "oauth"
    """The user's login: `upwell login NAME`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """`gateway.*`. Times in seconds, sizes in bytes; `hosts` are names under which a proxy leads to
    `serve --http`. Of a list of more than `lazy_tools_tokens` each tool is served in short; 0:
    never."""

    connect_timeout_seconds: float = 30.0
    call_timeout_seconds: float = 60.0
    list_wait_seconds: float = 5.0
    max_line_bytes: int = 64 * 1024 * 1024
    max_in_flight: int = 1024
    hosts: tuple[str, ...] = ()
    lazy_tools_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOptions:
    """`cache.*`: `tools` are patterns of `server__tool` whose answers may be kept."""

    tools: tuple[str, ...] = ()
    ttl_seconds: float = 300.0
    max_bytes: int = 64_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """One upstream, `[server.NAME]`: a program to run, as a list of arguments, or an address and
    the headers that let us in. `prefix` false: its tools and prompts keep their own names in front;
    of two that claim one, the first has it."""

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
