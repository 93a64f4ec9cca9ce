"""Memories, queries and hits."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field

DEFAULT_TENANT = "default"
DEFAULT_NAMESPACE = "context"


class Scope(Struct, frozen=True, kw_only=True):
    """The memories that a query may see.

    `project`: the absolute path of a repository's root. The query then sees only the repository's
    memories and the global ones. With None, it sees all memories. `namespaces`: patterns of the
    namespaces to search (`ground/types/rpc.py: is_visible`), empty for all.
    """

    tenant: str = DEFAULT_TENANT
    project: str | None = None
    namespaces: tuple[str, ...] = ()


class QuerySource(StrEnum):
    """The source of a query. For a tool call, the first five are tried in this order
    (`surface/query.py: five_levels`)."""

    TEMPLATE = "template"
    AGENT = "context_query"
    PATH = "path"
    KEYS = "keys"
    TOOL_NAME = "tool_name"
    MESSAGE = "message"
    EXPLICIT = "explicit"


class Query(Struct, frozen=True, kw_only=True):
    """A query to memory.

    - `texts`: up to three search texts. `paths`, `symbols`: files and identifiers that are matched
      exactly.
    - `triggers`: the keys of the situation. A memory with one of these keys is found even if it
      shares no word with the query.
    - `limit`: the maximum number of hits.
    - `awaited`: whether a user or agent is waiting for the result. If so, a store first reads files
      that have changed; otherwise, it uses the index as it is. An awaited query is scored as an
      explicit question, which gives higher scores.
    - `command`: a tool call's command as written, including flags. It is used to search documents.
    - `file`: if set, only memories about exactly this file are useful. A store without such
      memories may return nothing without searching.
    - `session`, `prompts`: the session that asks, and how many prompts it has had. Its own past is
      no memory.
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
    session: str = ""
    prompts: int = 0


class Trust(StrEnum):
    """Who vouches for a memory (docs/decisions.md, 12)."""

    USER = "user"
    AGENT = "agent"
    IMPORTED = "imported"
    TOOL = "tool"


class Provenance(Struct, frozen=True, kw_only=True):
    """How a memory was created. Unknown fields are ""."""

    door: str = ""
    server: str = ""
    tool: str = ""
    session: str = ""


LESSON, STATE, IMPORT = "lesson", "state", "import"
"""The doors (`Provenance.door`) of what a model wrote down at the end of a session, of the state in
which a session left its work, and of what a file brought that the user did not export."""


class Memory(Struct, frozen=True, kw_only=True):
    """A piece of knowledge.

    `id`: if "", the store assigns one. `paths`, `symbols`: the files and identifiers that the
    memory is about. `triggers`: keys of situations (`error:1f0c…`). A memory with triggers surfaces
    unasked only in one of these situations. `occurrences`: the number of sessions that led to
    it. `project`: its repository, as the absolute path of the root or as the remote address; None
    makes the memory global. `source`: where the text comes from (`memory/2026-04-09.md`,
    `git:3f2a1c0`). `lines`: the range of lines in `source`, 1-based and inclusive. `pinned`:
    whether the memory is a standing rule. `supersedes`: the id of the memory that this one
    replaces. `expires_at`, `created_at`, `updated_at`, `viewed_at`: epoch seconds, or None.
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


class Hit(Struct, frozen=True, kw_only=True):
    """A memory found by a search.

    `score`: the calibrated probability that the memory is relevant, 0..1. `signals`: the raw
    figures from which the score is computed. `matched`: the query texts that found the memory.
    `trigger`: the key of the situation that found it, "" for a hit by relevance.
    """

    memory: Memory
    score: float
    signals: Mapping[str, float] = field(default_factory=dict)
    matched: tuple[str, ...] = ()
    trigger: str = ""


class Found(Struct, frozen=True):
    """The result of one search.

    `hits`: most relevant first. `missing`: the stores that could not be searched, each as
    `name: reason`. `asked`: the texts that were sent to other programs and servers instead of the
    query's own texts, each as `name: text`.
    """

    hits: tuple[Hit, ...] = ()
    missing: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
