"""Options for the gateway and for an upstream server."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Transport(StrEnum):
    HTTP = "http"
    SSE = "sse"


class Auth(StrEnum):
    """How to authenticate to a server at an address, in addition to its configured headers."""

    NONE = "none"
    OAUTH = "oauth"
    """Use the login created by `upwell login NAME`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """The `gateway.*` settings.

    `hosts` are additional host names that `serve --http` accepts, for use behind a proxy. `leave`
    names servers that setup leaves as they are. The call timeout is a little shorter than the 60
    seconds after which most clients give up, so that they still receive the reason.
    """

    connect_timeout_seconds: float = 30.0
    call_timeout_seconds: float = 55.0
    hosts: tuple[str, ...] = ()
    leave: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOptions:
    """The `cache.*` settings. The results of a read-only tool may be cached if its name,
    `server__tool`, matches a pattern in `tools`."""

    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """One upstream server, `[server.NAME]`: a program with its arguments, or an address with its
    headers. If `prefix` is false, its tools and prompts keep their own names. If two such servers
    use the same name for a tool or prompt, the name belongs to the first of them.
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
    max_in_flight: int = 1024
    prefix: bool = True
