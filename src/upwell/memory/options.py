"""The knobs of memory. Names and defaults are those of the seeds (001, 003)."""

from dataclasses import dataclass
from enum import StrEnum


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
