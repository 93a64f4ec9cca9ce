"""The things that flow through the house. Plain, frozen, and known to everybody.

    Cue ─► Query ─► [Hit] ─► Surfacing | Skip            Passage + Budget ─► Compressed
    ToolCall ─► Reply

Times are seconds since the epoch (UTC) as floats; `None` means not known.
Scores and confidences lie in 0..1. Sizes are characters unless the name says tokens or bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from upwell.ground.principal import OWNER, Principal

DEFAULT_TENANT = "default"
DEFAULT_NAMESPACE = "context"


class Door(StrEnum):
    """Where a cue came in."""

    ASK = "ask"
    """Somebody asked: `memory_context`, `upwell context`. Always answered."""
    PROMPT = "prompt"
    """The user submitted a prompt."""
    TOOL = "tool"
    """The agent called a tool."""
    SESSION = "session"
    """A session began or was compacted."""


AUTOMATIC_DOORS = frozenset({Door.PROMPT, Door.TOOL, Door.SESSION})
"""Doors at which nobody asked: repeats, rate and cooldown apply to them only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cue:
    """What the agent is doing right now: the one input of surfacing, whichever door it came by.

    `text` for messages, `tool` + `args` for calls; at the session door `text` is why it begins, in
    the hosts' words (`startup`, `resume`, `clear`, `compact`; ours: `subagent`). `annotations` are
    the tool's MCP hints as its server gave them, `reply_chars` the size of the response where it is
    known already. `window` is the agent's context window in tokens, where it says so: how much is
    said to this cue goes by it.
    `cwd` is absolute and decides the project; without it a cue sees every project. Without a
    `session` nobody in particular is told: the ledger is read and not written.
    """

    door: Door | str
    text: str = ""
    tool: str | None = None
    args: Mapping[str, Any] = field(default_factory=dict)
    session: str = ""
    cwd: str | None = None
    window: int | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)
    reply_chars: int | None = None
    progressive: bool = False
    trace_id: str = ""
    at: float | None = None
    principal: Principal = OWNER


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Whose memories a query may see. `project` None sees all; a project sees itself and the
    global ones. Empty `namespaces` means every namespace."""

    tenant: str = DEFAULT_TENANT
    project: str | None = None
    namespaces: tuple[str, ...] = ()


class QuerySource(StrEnum):
    """Which of the five levels (seed 000), or which door, a query came from."""

    TEMPLATE = "template"
    AGENT = "context_query"
    PATH = "path"
    KEYS = "keys"
    TOOL_NAME = "tool_name"
    MESSAGE = "message"
    EXPLICIT = "explicit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What to look for: up to three texts (seed 003), and files and names to join exactly.

    `awaited`: somebody asked and waits, so a place that has to catch up with its files first does;
    automatic doors take what is ready.
    """

    texts: tuple[str, ...]
    paths: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    scope: Scope = field(default_factory=Scope)
    limit: int = 10
    source: QuerySource = QuerySource.EXPLICIT
    awaited: bool = True


class Trust(StrEnum):
    """Who stands behind a memory (DESIGN 4.12)."""

    USER = "user"
    AGENT = "agent"
    IMPORTED = "imported"
    TOOL = "tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """How a memory came to be."""

    door: str = ""
    server: str = ""
    tool: str = ""
    session: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Something known. An empty `id` means: give it one.

    `source` says where the text stands (`memory/2026-04-09.md`, `git:3f2a1c0`), `lines` the
    1-based inclusive span there. `paths` and `symbols` are the files and names it is about.
    `project` is the absolute repository root it belongs to; None belongs everywhere.
    """

    text: str
    id: str = ""
    namespace: str = DEFAULT_NAMESPACE
    tags: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
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
    """A memory that was found. `score` is the calibrated probability that it is relevant, from
    `signals`: the raw figures before any fusion. `matched` are the query texts that found it."""

    memory: Memory
    score: float
    signals: Mapping[str, float] = field(default_factory=dict)
    matched: tuple[str, ...] = ()


class IntentKind(StrEnum):
    """The six types of seed 004, and none."""

    HOWTO = "howto"
    TROUBLESHOOT = "troubleshoot"
    LOCATION = "location"
    EXPLANATION = "explanation"
    COMPARISON = "comparison"
    GENERAL = "general"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What a prompt is after. `source` says who found out: keyword, llm or hybrid."""

    kind: IntentKind = IntentKind.NONE
    confidence: float = 0.0
    topics: tuple[str, ...] = ()
    source: str = "keyword"


NO_INTENT = Intent()


class SkipReason(StrEnum):
    """Why nothing was said. In the order in which the gates stand."""

    DISABLED = "disabled"
    PAUSED = "paused"
    NOT_APPLICABLE = "not_applicable"
    NO_QUERY = "no_query"
    UNSUITABLE_QUERY = "unsuitable_query"
    WRITE_TOOL = "write_tool"
    EXCLUDED_TOOL = "excluded_tool"
    RESPONSE_TOO_SHORT = "response_too_short"
    PROGRESSIVE = "progressive"
    COOLDOWN = "cooldown"
    RATE = "rate"
    BREAKER_OPEN = "breaker_open"
    LOW_INTENT = "low_intent"
    DEADLINE = "deadline"
    FAULT = "fault"
    NO_CANDIDATES = "no_candidates"
    BELOW_MIN_SCORE = "below_min_score"
    REPEATED = "repeated"
    DEMOTED = "demoted"
    OVER_BUDGET = "over_budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Not now, and why. A value: counted, shown, never raised. `missing` as in `Surfacing`."""

    reason: SkipReason
    detail: str = ""
    confidence: float = 0.0
    signals: Mapping[str, float] = field(default_factory=dict)
    intent: Intent = NO_INTENT
    queries: tuple[str, ...] = ()
    held_back: tuple[Hit, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Surfacing:
    """Memories worth saying now, best first, and the text that says them.

    `text` is the fenced block of automatic doors or the digest of `ask`; `id` is the handle for
    feedback; `confidence` and `signals` are those of the best hit; `missing` the places that the
    search did without, each with its reason.
    """

    id: str
    hits: tuple[Hit, ...]
    text: str
    confidence: float
    signals: Mapping[str, float] = field(default_factory=dict)
    intent: Intent = NO_INTENT
    queries: tuple[str, ...] = ()
    held_back: tuple[Hit, ...] = ()
    missing: tuple[str, ...] = ()
    took_ms: float = 0.0

    @property
    def memories(self) -> tuple[Memory, ...]:
        return tuple(hit.memory for hit in self.hits)


class Rating(StrEnum):
    """What an agent or a user thought of a surfacing (seed 000)."""

    HELPFUL = "helpful"
    PARTIALLY_HELPFUL = "partially_helpful"
    NOT_RELEVANT = "not_relevant"
    ALREADY_KNOWN = "already_known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """One rating of one surfacing, or of one memory in it."""

    surfacing_id: str
    rating: Rating
    memory_id: str | None = None
    at: float | None = None


class Kind(StrEnum):
    """What a text is. Decides how it is split, shortened and put together again."""

    JSON_ARRAY = "json_array"
    JSON_OBJECT = "json_object"
    JSON_SCALAR = "json_scalar"
    JSON_LINES = "json_lines"
    OPENAPI = "openapi"
    API_DOCS = "api_docs"
    MARKDOWN = "markdown"
    HTML = "html"
    CSV = "csv"
    LOG = "log"
    TEST_OUTPUT = "test_output"
    DIFF = "diff"
    GIT_LOG = "git_log"
    GREP = "grep"
    CODE = "code"
    STACK_TRACE = "stack_trace"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much may be said. Whatever is set applies; the smaller limit wins.

    `max_*` is the soft budget, which the retention floor may raise; `hard_*` never gives way.
    `floor` is the share of the characters that must be delivered where nothing can be fetched
    later (seed 002's `min_result_retention`); 0 switches it off.
    """

    max_chars: int | None = None
    max_tokens: int | None = None
    hard_chars: int | None = None
    hard_tokens: int | None = None
    floor: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A text to be fitted: what it says, what it is, and what the agent asks of it.

    `name` is a hint about what it is (a path, a URL), `key` the handle under which the whole
    original can be read on, "" where it cannot.
    """

    text: str
    kind: Kind = Kind.TEXT
    query: str = ""
    name: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Omission:
    """Something left out: `count` of `total` `what` (items, lines, sections …) at `where`."""

    what: str
    count: int
    total: int
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A rung of the ladder: which strategy was tried, and why it was left or kept."""

    strategy: str
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compressed:
    """A fitted text. `before` and `after` are characters, `tokens` those of `text`.

    `lossless`: everything the original says is still in `text`. `omitted` says what is not.
    """

    text: str
    strategy: str
    before: int
    after: int
    tokens: int
    lossless: bool
    omitted: tuple[Omission, ...] = ()
    key: str = ""
    tried: tuple[Attempt, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call of `tool` (the upstream's own name) on `server`.

    `params` are the raw JSON bytes to send, already without what is ours (`_context_query`);
    `args` the same arguments decoded, for reading only; `declared` a digest of its declaration;
    `principal` the name of who asks.
    """

    server: str
    tool: str
    params: bytes
    args: Mapping[str, Any] = field(default_factory=dict)
    query: str = ""
    annotations: Mapping[str, Any] = field(default_factory=dict)
    declared: str = ""
    trace_id: str = ""
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What an upstream answered: the raw JSON bytes of `result`, or of `error`.

    `repaired` counts bytes that were not UTF-8 and were replaced on the way in.
    """

    result: bytes = b""
    error: bytes = b""
    repaired: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    """The health of a part: `ok`, and a line that says more."""

    ok: bool
    detail: str = ""
    hint: str = ""
