"""The cue: what an agent is doing right now."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from upwell.ground.types.principal import OWNER, Principal

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
