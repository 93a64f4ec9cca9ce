"""The configuration options for memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from upwell.ground.types.memory import DEFAULT_TENANT


class Backend(StrEnum):
    """The search engine for the user's documents. qmd searches by words, by meaning (`vsearch`), or
    by both, with the hits reranked (`query`)."""

    BUILTIN = "builtin"
    QMD = "qmd"
    QMD_VSEARCH = "qmd vsearch"
    QMD_QUERY = "qmd query"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOptions:
    """`memory.*`: the backend."""

    backend: Backend = Backend.BUILTIN


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """`store.*`: where memories are stored.

    `url` is the address of a team's database or of a gateway. A gateway also needs `token`. Without
    a `url`, the home has its own databases. `tenant` is the name under which this home's rows
    stand in the database. Only the owner and admins may change memories in the `read_only`
    namespaces.

    With `local`, and always with a gateway, this home stores its own memories and a snapshot of the
    team's memories. Only memories that belong to the team are sent to the team's store.
    """

    url: str = ""
    token: str = ""
    local: bool = False
    tenant: str = DEFAULT_TENANT
    read_only: tuple[str, ...] = ()

    @property
    def database(self) -> str:
        """The address of the database; "" for a gateway."""
        return "" if self.is_gateway else self.url

    @property
    def is_gateway(self) -> bool:
        """Whether this home reaches the team's memories through a gateway."""
        return self.url.startswith(("https:", "http:"))

    @property
    def is_team(self) -> bool:
        """Whether all of this home's memories are in the team's database."""
        return bool(self.database) and not self.local

    @property
    def has_copy(self) -> bool:
        """Whether this home has its own memories and a snapshot of the team's."""
        return bool(self.url) and not self.is_team


@dataclass(frozen=True, slots=True, kw_only=True)
class NotesOptions:
    """`stm.*`: notes that have not been viewed for `retention_days` are cleared. A search returns
    at most `max_results` notes."""

    retention_days: int = 35
    max_results: int = 3

    @property
    def most(self) -> int:
        """`max_results`, but at least 1."""
        return max(1, self.max_results)


class LtmTransport(StrEnum):
    """How to connect to another memory server."""

    STDIO = "stdio"
    SSE = "sse"
    STREAMABLE_HTTP = "streamable_http"


@dataclass(frozen=True, slots=True, kw_only=True)
class LtmOptions:
    """`ltm.*`: another memory server to recall from over MCP. `command` is a program, or a program
    and its arguments."""

    transport: LtmTransport | None = None
    command: str | Annotated[tuple[str, ...], Meta(min_length=1)] = "memtomem-server"
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
