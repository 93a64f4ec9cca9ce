"""The principal: the user or client that makes a request, and what it may see and change."""

import hashlib
from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

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
