"""The knobs of memory. Names and defaults are those of the seeds (001, 003)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Backend(StrEnum):
    """What searches the user's documents."""

    BUILTIN = "builtin"
    QMD = "qmd"


class QmdMode(StrEnum):
    """How qmd searches: by words, by meaning, or both with reranking."""

    SEARCH = "search"
    VSEARCH = "vsearch"
    QUERY = "query"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOptions:
    """`memory.*` (seed 003): the backend, and how the program `qmd` is run."""

    backend: Backend = Backend.BUILTIN
    qmd_command: tuple[str, ...] = ("qmd",)
    qmd_mode: QmdMode = QmdMode.SEARCH


@dataclass(frozen=True, slots=True, kw_only=True)
class NotesOptions:
    """`stm.*` (seed 001): notes not viewed for `retention_days` are put aside; a search gives at
    most `max_results`."""

    retention_days: int = 35
    max_results: int = 3

    @property
    def most(self) -> int:
        """How many notes a search gives at most."""
        return max(1, self.max_results)


class LtmTransport(StrEnum):
    """How another memory server is reached."""

    STDIO = "stdio"
    SSE = "sse"
    STREAMABLE_HTTP = "streamable_http"


class LtmProfile(StrEnum):
    """How another memory server is spoken to; `auto` looks at its tools."""

    AUTO = "auto"
    MEMTOMEM = "memtomem"
    MEMORY_SERVICE = "memory_service"
    BASIC_MEMORY = "basic_memory"
    OFFICIAL = "official"
    UPWELL = "upwell"
    GENERIC = "generic"


@dataclass(frozen=True, slots=True, kw_only=True)
class LtmOptions:
    """`ltm.*` (seed 000): a memory server to recall from over MCP. `tool`, `arguments` (texts with
    `{query}` in them) and `result` (the dotted path to the hits) are for the generic profile."""

    transport: LtmTransport | None = None
    command: str = "memtomem-server"
    args: tuple[str, ...] = ()
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    profile: LtmProfile = LtmProfile.AUTO
    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=lambda: {"query": "{query}"})
    result: str = ""
