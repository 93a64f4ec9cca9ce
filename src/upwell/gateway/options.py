"""Options for the gateway and for an upstream server."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Transport(StrEnum):
    """The transport of a server with an address."""

    HTTP = "http"
    SSE = "sse"


class Auth(StrEnum):
    """How to authenticate to a server at an address, in addition to sending its configured
    headers."""

    NONE = "none"
    OAUTH = "oauth"
    """With the login from `upwell login NAME`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """The `gateway.*` settings. Times are in seconds, sizes in bytes. `hosts` are the additional
    host names that `serve --http` accepts, for use behind a proxy. A tool list of more than
    `lazy_tools_tokens` is served in short form; 0 means never. A replica that is told to shut down
    still accepts requests for `notice_seconds`, but reports that it is not ready. After that, open
    calls have `drain_seconds` to finish. `leave` names servers that `setup` and `init` leave in the
    agents' settings.
    """

    connect_timeout_seconds: float = 30.0
    call_timeout_seconds: float = 60.0
    list_wait_seconds: float = 5.0
    max_line_bytes: int = 64 * 1024 * 1024
    max_in_flight: int = 1024
    hosts: tuple[str, ...] = ()
    leave: tuple[str, ...] = ()
    lazy_tools_tokens: int = 0
    notice_seconds: float = 2.0
    drain_seconds: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOptions:
    """The `cache.*` settings. Answers may be cached if the tool's `server__tool` name matches a
    pattern in `tools`."""

    tools: tuple[str, ...] = ()
    ttl_seconds: float = 300.0
    max_bytes: int = 64_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """One upstream, `[server.NAME]`: a program with its arguments, or an address with headers for
    authentication. Without `prefix`, its tools and prompts keep their own names. If two servers
    claim the same name, the first one gets it.
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
