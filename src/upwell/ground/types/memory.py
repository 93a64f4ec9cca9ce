"""Memories, the queries for them, and the hits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

DEFAULT_TENANT = "default"
DEFAULT_NAMESPACE = "context"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The memories that a query may see.

    `tenant`: the tenant of the memories. `project`: an absolute repository root, which sees its own
    and global memories; None sees all. `namespaces`: patterns for the namespaces to search
    (`ground/types/principal.py: is_visible`), empty for all.
    """

    tenant: str = DEFAULT_TENANT
    project: str | None = None
    namespaces: tuple[str, ...] = ()


class QuerySource(StrEnum):
    """The source of a query: one of the five levels of seed 000, or a door."""

    TEMPLATE = "template"
    AGENT = "context_query"
    PATH = "path"
    KEYS = "keys"
    TOOL_NAME = "tool_name"
    MESSAGE = "message"
    EXPLICIT = "explicit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query to memory.

    - `texts`: up to three search texts. `paths`, `symbols`: files and identifiers that are matched
      exactly.
    - `triggers`: the keys of the situation; a memory with one of them is found even if it shares no
      word with the query.
    - `scope`: the memories to search. `limit`: the number of hits. `source`: where the query came
      from.
    - `awaited`: whether a user or agent is waiting for the answer. For an awaited query, a store
      first reads files that have changed; for any other, it uses the index as is. An awaited query
      is scored as an explicit question, which gives higher scores.
    - `command`: the command of a tool call as written, including flags; documents are searched for
      it.
    - `file`: if set, only memories about exactly this file are useful, and a store that has none of
      them may return nothing without a search.
    """

    texts: tuple[str, ...]
    paths: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()
    scope: Scope = field(default_factory=Scope)
    limit: int = 10
    source: QuerySource = QuerySource.EXPLICIT
    awaited: bool = True
    command: str = ""
    file: str = ""


class Trust(StrEnum):
    """Who vouches for a memory (docs/decisions.md, 12)."""

    USER = "user"
    AGENT = "agent"
    IMPORTED = "imported"
    TOOL = "tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """How a memory was created: by which `door`, `server`, `tool` and `session`; "" if unknown."""

    door: str = ""
    server: str = ""
    tool: str = ""
    session: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A piece of knowledge.

    `text`: its content. `id`: its id; the store assigns one if it is "". `namespace`, `tags`: its
    classification. `paths`, `symbols`: the files and identifiers it is about. `triggers`: keys of
    situations (`error:1f0c…`). A memory with triggers surfaces unasked only in one of these
    situations. `occurrences`: the number of sessions that have found it. `project`: the repository
    that it belongs to, as the absolute path of its root or as its remote address; None makes the
    memory global. `tenant`: the tenant that owns it. `source`: where the text comes from
    (`memory/2026-04-09.md`, `git:3f2a1c0`). `lines`: the range of lines in `source`, 1-based and
    inclusive. `provenance`: how the memory was created. `trust`: who vouches for it. `pinned`:
    whether it is a standing rule. `supersedes`: the id of the memory it replaces. `content_hash`: a
    digest of the content. `expires_at`, `created_at`, `updated_at`, `viewed_at`: epoch seconds,
    None when not set.
    """

    text: str
    id: str = ""
    namespace: str = DEFAULT_NAMESPACE
    tags: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()
    occurrences: int = 1
    project: str | None = None
    tenant: str = DEFAULT_TENANT
    source: str = ""
    lines: tuple[int, int] | None = None
    provenance: Provenance = field(default_factory=Provenance)
    trust: Trust = Trust.USER
    pinned: bool = False
    supersedes: str | None = None
    expires_at: float | None = None
    content_hash: str = ""
    created_at: float | None = None
    updated_at: float | None = None
    viewed_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A `memory` found by a search.

    `score`: the calibrated probability that it is relevant, 0..1. `signals`: the raw figures from
    which the score is computed. `matched`: the query texts that found it. `trigger`: the key of the
    situation that found it, "" for a hit by relevance.
    """

    memory: Memory
    score: float
    signals: Mapping[str, float] = field(default_factory=dict)
    matched: tuple[str, ...] = ()
    trigger: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of one search: its hits, most probable first, and the stores that could not be
    searched, each as `name: reason`. `asked` are the texts that were sent to other programs and
    servers in place of the query's own texts, each as `name: text`.
    """

    hits: tuple[Hit, ...] = ()
    missing: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
