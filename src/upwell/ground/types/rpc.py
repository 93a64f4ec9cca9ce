"""A proxied tool call, its reply, and the health of a component."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call of a tool.

    `server`, `tool`: the upstream and its own name for the tool. `params`: the raw JSON bytes to
    send, without upwell's own argument `_context_query`. `args`: the decoded arguments, for reading
    only. `query`: the agent's question, "" for none. `request`: the user's last request of the
    session, "" if unknown. `annotations`: the MCP hints of the tool. `declared`: a digest of the
    tool's declaration. `trace_id`: the trace of the call. `principal`: the name of the principal.
    `host`, `session`, `cwd`: the agent, its session and its folder, if they are known.
    """

    server: str
    tool: str
    params: bytes
    args: Mapping[str, Any] = field(default_factory=dict)
    query: str = ""
    request: str = ""
    annotations: Mapping[str, Any] = field(default_factory=dict)
    declared: str = ""
    trace_id: str = ""
    principal: str = ""
    host: str = ""
    session: str = ""
    cwd: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An upstream's answer: the raw JSON bytes of `result` or `error`.

    `repaired`: the number of bytes that were not valid UTF-8 and were replaced.
    """

    result: bytes = b""
    error: bytes = b""
    repaired: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    """The health of a component: whether it is `ok`, a line of `detail`, a `hint` for repair."""

    ok: bool
    detail: str = ""
    hint: str = ""
