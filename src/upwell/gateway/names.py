"""What things are called in front: `{server}__{tool}`, in a form that every host takes, and whose
each name is."""

import hashlib
import re
from collections.abc import Sequence

from upwell.gateway.upstream import State, Upstream
from upwell.ground.names import OWN_SERVER

SEPARATOR = "__"
HOST_NAME_CHARS = 64
MAX_NAME_CHARS = HOST_NAME_CHARS - len(f"mcp__{OWN_SERVER}__")
"""Hosts take 64 characters, and some put `mcp__upwell__` before each name."""

_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_MARK_CHARS = 8
_ALIAS = re.compile(rf"_[0-9a-f]{{{_MARK_CHARS}}}$")


def front_name(server: str, tool: str) -> str:
    """`{server}__{tool}`, or the tool's own name where the server has no prefix (""); an alias
    where hosts would not take that as a name. The alias depends on the name alone, so it is the
    same at every start, whatever else there is."""
    name = f"{server}{SEPARATOR}{tool}" if server else tool
    if len(name) <= MAX_NAME_CHARS and not _UNFIT.search(name):
        return name
    mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_MARK_CHARS]
    return f"{_UNFIT.sub('_', name)[: MAX_NAME_CHARS - _MARK_CHARS - 1]}_{mark}"


def server_of(name: str) -> str:
    """The prefix that a name in front begins with, "" where it has none."""
    server, separator, _ = name.partition(SEPARATOR)
    return server if separator else ""


def may_be_alias(name: str) -> bool:
    """Does a name look like one that was made here, so that nothing can be read out of it?"""
    return _ALIAS.search(name) is not None


class Names:
    """Whose each name is.

    What begins with a server's prefix is that server's, also while it is down, and `upwell__` is
    ours. A name without a prefix is the first server's that has it, in the order of the
    configuration, whoever answers first; as long as that server is configured nobody else gets it.
    """

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        self._taken: frozenset[str] = frozenset({OWN_SERVER})
        self._undecided: set[str] = set()

    def look(self, upstreams: Sequence[Upstream]) -> None:
        """Begin a list of what these servers have."""
        self._taken = frozenset({OWN_SERVER, *(one.prefix for one in upstreams if one.prefix)})
        bare = [one for one in upstreams if not one.prefix]
        there = {one.name for one in bare}
        self._owners = {name: who for name, who in self._owners.items() if who in there}
        silent = [place for place, one in enumerate(bare) if _silent(one)]
        self._undecided = {one.name for one in bare[min(silent) + 1 :]} if silent else set()

    def claim(self, upstream: Upstream, own: str) -> str:
        """What something of this server's is called in front; "" where the name is another's, or
        may still turn out to be."""
        name = front_name(upstream.prefix, own)
        if not own or upstream.prefix:
            return name if own else ""
        if server_of(name) in self._taken or server_of(name).lower() == OWN_SERVER:
            return ""
        if name not in self._owners and upstream.name in self._undecided:
            return ""
        return name if self._owners.setdefault(name, upstream.name) == upstream.name else ""


def _silent(upstream: Upstream) -> bool:
    """Is it being started, and has never said what it has?"""
    return upstream.state is State.STARTING and not upstream.about.version
