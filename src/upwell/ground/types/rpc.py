"""A proxied tool call, its reply, the principal that makes it, and the health of a component."""

import hashlib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

EVERY = "*"
"""The pattern that matches all namespaces except private ones."""
PRIVATE = "me/"
"""The prefix of private namespaces. The namespace `me/ideas` of the principal `ada` is stored as
`me/KEY/ideas`, where KEY is a hash of `ada`."""


class Role(StrEnum):
    """What a principal may change. A reader may change nothing. A writer may rate memories, and add
    and delete notes. An admin may also do this in read-only namespaces."""

    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"


class Principal(Struct, frozen=True):
    """The home's owner, or a client with a token from the owner or an issuer.

    `name`: the token's name; "" for the owner, who is also the principal on stdio. `namespaces`:
    patterns of the namespaces that the client may see (`is_visible()`); empty for all of them.
    """

    name: str = ""
    namespaces: tuple[str, ...] = ()
    role: Role = Role.WRITER

    def sees(self, namespace: str) -> bool:
        """Return whether this principal may see a namespace."""
        return is_visible(namespace, self.namespaces)

    @property
    def may_write(self) -> bool:
        return self.role is not Role.READER

    def may_write_to(self, namespace: str, read_only: Sequence[str] = ()) -> bool:
        """Return whether this principal may add to a namespace and delete from it. `read_only`
        contains the patterns of read-only namespaces."""
        if not self.may_write or not self.sees(namespace):
            return False
        return self.role is Role.ADMIN or not read_only or not is_visible(namespace, read_only)

    def stored(self, namespace: str) -> str:
        """Return the name under which a namespace is stored. The stored name of a client's private
        namespace contains the client's key; the owner's name is not changed."""
        own = private_of(self.name)
        if not self.name or not namespace.startswith(PRIVATE) or namespace.startswith(own):
            return namespace
        return own + namespace.removeprefix(PRIVATE)


OWNER = Principal(role=Role.ADMIN)
IN_SCOPE = "upwell.principal"
"""The key under which the principal of an HTTP request is stored in the ASGI scope."""


def granted(name: str, namespaces: Sequence[str] = (), role: Role = Role.WRITER) -> Principal:
    """Return a principal that sees `namespaces` (by default, all shared ones) and its own private
    namespaces. Another principal's private namespaces cannot be granted."""
    shared = [pattern for pattern in namespaces if not f"{pattern}/".startswith(PRIVATE)]
    patterns = shared if namespaces else [EVERY]
    own = f"{private_of(name)}*"
    return Principal(name, (*dict.fromkeys(patterns), own), role)


def private_of(name: str) -> str:
    """Return the prefix of a principal's private namespaces."""
    return f"{PRIVATE}{hashlib.sha256(name.encode()).hexdigest()[:12]}/"


def is_visible(namespace: str, patterns: Sequence[str]) -> bool:
    """Return whether a namespace matches one of the patterns. A pattern is an exact name, `team/*`
    for everything below `team/`, or `*` for everything that is not private. Without patterns, every
    namespace matches."""
    if not patterns or namespace in patterns:
        return True
    if any(pattern.endswith("/*") and namespace.startswith(pattern[:-1]) for pattern in patterns):
        return True
    return EVERY in patterns and not namespace.startswith(PRIVATE)


def shared_only(patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the patterns that are not for private namespaces. If there are none, return all
    patterns, because an empty result would mean every namespace."""
    shared = tuple(pattern for pattern in patterns if not pattern.startswith(PRIVATE))
    return shared or tuple(patterns)


class ToolCall(Struct, frozen=True, kw_only=True):
    """A call to a tool.

    `tool`: the server's own name for the tool. `params`: the raw JSON bytes to send, without
    upwell's own `_context_query` argument. `args`: the decoded arguments, read-only. `query`: the
    agent's question, "" for none. `request`: the user's last request in the session, "" if unknown.
    `annotations`: the tool's MCP hints. `declared`: a digest of the tool's declaration.
    `principal`: the name of the principal. `host`, `session`, `cwd`: the agent, its session and its
    folder, if known. `read_command`: a shell command that reads an original or a memory, for an
    agent that may lack upwell's tools.
    """

    server: str
    tool: str
    params: bytes
    args: Mapping[str, Any] = field(default_factory=dict)
    query: str = ""
    request: str = ""
    annotations: Mapping[str, Any] = field(default_factory=dict)
    declared: str = ""
    trace_id: str = ""
    principal: str = ""
    host: str = ""
    session: str = ""
    cwd: str | None = None
    read_command: str = ""


class Reply(Struct, frozen=True, kw_only=True):
    """The response to a request: the raw JSON bytes of `result` or `error`.

    `repaired`: the number of bytes replaced because they were not valid UTF-8.
    """

    result: bytes = b""
    error: bytes = b""
    repaired: int = 0


class Ping(Struct, frozen=True, kw_only=True):
    """The health of a component, with one line of `detail` and a `hint` for repair."""

    ok: bool
    detail: str = ""
    hint: str = ""
