"""The principal: the user or client that makes a request, and what it may see and change."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

EVERY = "*"
"""The pattern of every namespace that is not private."""
PRIVATE = "me/"
"""The prefix of private namespaces. `me/ideas` of the principal ada is stored as `me/KEY/ideas`;
KEY is a hash of the name."""


class Role(StrEnum):
    """What a principal may change. A reader may change nothing; a writer may rate memories, and add
    and delete notes; an admin may also do so in read-only namespaces."""

    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Principal:
    """The owner of the home, or a client with a token from the owner or an issuer.

    `name`: the name of the token, "" for the owner (including on stdio). `namespaces`: patterns for
    the namespaces that the client may see, empty for all (`is_visible`). `tenant`: "" for the
    tenant of the home. `role`: what the client may change.
    """

    name: str = ""
    namespaces: tuple[str, ...] = ()
    tenant: str = ""
    role: Role = Role.WRITER

    def sees(self, namespace: str) -> bool:
        """Return whether this principal may see a namespace."""
        return is_visible(namespace, self.namespaces)

    @property
    def may_write(self) -> bool:
        return self.role is not Role.READER

    def may_write_to(self, namespace: str, read_only: Sequence[str] = ()) -> bool:
        """True if this principal may add to a namespace and delete from it. `read_only` are the
        patterns of the read-only namespaces."""
        if not self.may_write or not self.sees(namespace):
            return False
        return self.role is Role.ADMIN or not read_only or not is_visible(namespace, read_only)

    def stored(self, namespace: str) -> str:
        """The name under which a namespace is stored. In a private one, it contains the principal's
        key."""
        own = private_of(self.name)
        if not self.name or not namespace.startswith(PRIVATE) or namespace.startswith(own):
            return namespace
        return own + namespace.removeprefix(PRIVATE)


OWNER = Principal(role=Role.ADMIN)
IN_SCOPE = "upwell.principal"
"""The key under which the principal of an HTTP request is stored in the ASGI scope."""


def granted(
    name: str, namespaces: Sequence[str] = (), tenant: str = "", role: Role = Role.WRITER
) -> Principal:
    """Return a principal that sees these namespaces (by default all shared ones) and its own
    private ones. Private namespaces of others cannot be granted."""
    shared = [pattern for pattern in namespaces if not f"{pattern}/".startswith(PRIVATE)]
    patterns = shared if namespaces else [EVERY]
    own = f"{private_of(name)}*"
    return Principal(name, (*dict.fromkeys(patterns), own), tenant, role)


def private_of(name: str) -> str:
    """The prefix of a principal's private namespaces."""
    return f"{PRIVATE}{hashlib.sha256(name.encode()).hexdigest()[:12]}/"


def is_visible(namespace: str, patterns: Sequence[str]) -> bool:
    """Return whether a namespace matches one of the patterns: an exact name; `team/*` for
    everything below `team/`; `*` for everything that is not private. Without patterns, every
    namespace matches."""
    if not patterns or namespace in patterns:
        return True
    if any(pattern.endswith("/*") and namespace.startswith(pattern[:-1]) for pattern in patterns):
        return True
    return EVERY in patterns and not namespace.startswith(PRIVATE)


def shared_only(patterns: Sequence[str]) -> tuple[str, ...]:
    """The patterns without those for private namespaces. If there are no others, all are returned,
    because an empty result would mean every namespace."""
    shared = tuple(pattern for pattern in patterns if not pattern.startswith(PRIVATE))
    return shared or tuple(patterns)
