"""The cue (what an agent is doing right now), its outcome (memories to deliver, or the reason for
delivering none), intents and feedback.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from upwell.ground.types.memory import Hit, Memory
from upwell.ground.types.rpc import OWNER, Principal


class Moment(StrEnum):
    """The situation of a cue."""

    QUESTION = "question"
    """The user asks, or corrects the agent."""
    FIRST_REQUEST = "first_request"
    """The first prompt of a session, if it is not a question."""
    ASKING_CALL = "asking_call"
    """A tool call that asks something in words."""
    NOTHING_FOUND = "nothing_found"
    """A search without results, or a file that does not exist."""
    FAILED = "failed"
    """A command that failed."""
    FILE = "file"
    """A call about one file, for which there may be a note."""
    NAME = "name"
    """A search for a name in the code, for which there may be a note."""
    TRIGGER = "trigger"
    """Any other event with a trigger that an earlier session may have met."""
    LESSON = "lesson"
    """Any other event on which a lesson of an earlier session bears."""
    ROUTINE = "routine"
    """Everything else."""


class IntentKind(StrEnum):
    """The six intents of seed 004, and `NONE`."""

    HOWTO = "howto"
    TROUBLESHOOT = "troubleshoot"
    LOCATION = "location"
    EXPLANATION = "explanation"
    COMPARISON = "comparison"
    GENERAL = "general"
    NONE = "none"


class Intent(Struct, frozen=True, kw_only=True):
    """The intent of a prompt.

    `confidence`: 0..1. `topics`: the subjects mentioned in the prompt. `source`: how the prompt was
    classified (keyword, llm or hybrid).
    """

    kind: IntentKind = IntentKind.NONE
    confidence: float = 0.0
    topics: tuple[str, ...] = ()
    source: str = "keyword"


NO_INTENT = Intent()


class SkipReason(StrEnum):
    """The reasons for surfacing nothing, roughly in the order of the checks."""

    PAUSED = "paused"
    DISABLED = "disabled"
    EXCLUDED_PROJECT = "excluded_project"
    NOT_APPLICABLE = "not_applicable"
    PROGRESSIVE = "progressive"
    RESPONSE_TOO_SHORT = "response_too_short"
    WRITE_TOOL = "write_tool"
    ROUTINE = "routine"
    NO_QUERY = "no_query"
    UNSUITABLE_QUERY = "unsuitable_query"
    LOW_INTENT = "low_intent"
    COOLDOWN = "cooldown"
    RATE = "rate"
    BREAKER_OPEN = "breaker_open"
    DEADLINE = "deadline"
    FAULT = "fault"
    NO_CANDIDATES = "no_candidates"
    BELOW_MIN_SCORE = "below_min_score"
    UNSUITED = "unsuited"
    STALE = "stale"
    UNWORTHY = "unworthy"
    ALREADY_KNOWN = "already_known"
    REPEATED = "repeated"
    DEMOTED = "demoted"
    JUDGED = "judged"
    JUDGING = "judging"
    OVER_BUDGET = "over_budget"
    NOT_DELIVERED = "not_delivered"
    REFUSED = "refused"
    UNREADABLE = "unreadable"


class Skip(Struct, frozen=True, kw_only=True):
    """The decision to surface nothing. It is counted and shown, never raised.

    `reason`: the check that decided. `confidence`, `signals`: those of the best hit, if there was a
    search. `queries`: the search texts. `held_back`: hits that were found but withheld. `missing`:
    the stores that could not be searched, each as `name: reason`. `moment`: the kind of situation,
    such as a failed call; "" for an explicit request or the start of a session, or with
    `surface.moments = "all"`.
    """

    reason: SkipReason
    detail: str = ""
    confidence: float = 0.0
    signals: Mapping[str, float] = field(default_factory=dict)
    intent: Intent = NO_INTENT
    queries: tuple[str, ...] = ()
    held_back: tuple[Hit, ...] = ()
    missing: tuple[str, ...] = ()
    moment: str = ""


class Surfacing(Struct, frozen=True, kw_only=True):
    """Memories to deliver now.

    `id`: the handle for feedback. `hits`: best first. `text`: the text to deliver, which is a
    digest for an explicit request and otherwise a fenced block. `situation`: if a memory was found
    by its trigger, the situation in words. `took_ms`: how long the decision took. The other fields
    are as in `Skip`.
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
    situation: str = ""
    moment: str = ""
    took_ms: float = 0.0

    @property
    def memories(self) -> tuple[Memory, ...]:
        """The memories of the hits, in their order."""
        return tuple(hit.memory for hit in self.hits)


class Rating(StrEnum):
    """An agent's or user's opinion of memories that surfaced (seed 000, tests/NAMES.md)."""

    HELPFUL = "helpful"
    PARTIALLY_HELPFUL = "partially_helpful"
    NOT_RELEVANT = "not_relevant"
    ALREADY_KNOWN = "already_known"


class Feedback(Struct, frozen=True, kw_only=True):
    """A rating of one memory in a `Surfacing`, or of all its memories if `memory_id` is None.

    `at`: epoch seconds; None means now.
    """

    surfacing_id: str
    rating: Rating
    memory_id: str | None = None
    at: float | None = None


PROBE_SESSIONS = "upwell-setup-"
"""The prefix of the session ids with which `upwell setup` tries hooks."""


class Door(StrEnum):
    """Where a cue enters upwell."""

    ASK = "ask"
    """An explicit request (`memory_context`, `upwell context`). A pause does not apply to it."""
    PROMPT = "prompt"
    """The user submitted a prompt."""
    TOOL = "tool"
    """The agent called a tool."""
    SESSION = "session"
    """A session began or was compacted."""


AUTOMATIC_DOORS = frozenset({Door.PROMPT, Door.TOOL, Door.SESSION})
"""The doors without an explicit request. Repeat limits, rate limits and the cooldown apply only to
them."""


class ToolAnswer(Struct, frozen=True, kw_only=True):
    """The result of the tool call in a cue.

    upwell reads `text` to recognise the situation and to see what the agent now has in its context,
    and sends excerpts to the judge if there is one. It never stores `text`. `failed` is None if the
    host does not report it.
    """

    text: str = ""
    failed: bool | None = None


class Cue(Struct, frozen=True, kw_only=True):
    """The agent's current step, in the same form at every door.

    `text`: the message. When a session starts: the host's word for the reason (`startup`,
    `resume`, `clear`, `compact`), or `subagent`. `joined`: the tool's name at a host that does
    not separate the server's name (see `names_tool()`). `args`: the decoded arguments of the call.
    `session`: the session for which deliveries are recorded; "" records none. `cwd`: the absolute
    working directory, which determines the project; None sees every project. `window`: the agent's
    context window in tokens, which scales the budget. `annotations`: the tool's MCP hints as
    declared by its server. `progressive`: whether the tool's results are delivered in chunks.
    `answer`: the tool's result, if the cue comes after the call. `at`: epoch seconds; None means
    now. `host`: the agent's name in `HOSTS`; "" if unknown. `transcript`: the file in which the
    host records the session, if the host reports it when the session starts. `read_command`: a
    shell command that reads a memory, in case the agent lacks upwell's tools.
    """

    door: Door | str
    text: str = ""
    tool: str | None = None
    joined: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)
    session: str = ""
    cwd: str | None = None
    window: int | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)
    reply_chars: int | None = None
    answer: ToolAnswer | None = None
    progressive: bool = False
    trace_id: str = ""
    at: float | None = None
    principal: Principal = OWNER
    host: str = ""
    transcript: str = ""
    read_command: str = ""
