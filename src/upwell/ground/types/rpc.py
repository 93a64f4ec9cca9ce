"""A proxied tool call, its reply, and the health of a component."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field


class ToolCall(Struct, frozen=True, kw_only=True):
    """A call to a tool.

    `tool`: the server's own name for the tool. `params`: the raw JSON bytes to send, without
    upwell's own `_context_query` argument. `args`: the decoded arguments, read-only. `query`: the
    agent's question, "" for none. `request`: the user's last request in the session, "" if unknown.
    `annotations`: the tool's MCP hints. `declared`: a digest of the tool's declaration.
    `principal`: the name of the principal. `host`, `session`, `cwd`: the agent, its session and its
    folder, if known. `read_command`: a shell command that reads an original or a memory, for an
    agent that may lack upwell's tools.
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
    read_command: str = ""


class Reply(Struct, frozen=True, kw_only=True):
    """The response to a request: the raw JSON bytes of `result` or `error`.

    `repaired`: the number of bytes replaced because they were not valid UTF-8.
    """

    result: bytes = b""
    error: bytes = b""
    repaired: int = 0


class Ping(Struct, frozen=True, kw_only=True):
    """The health of a component, with one line of `detail` and a `hint` for repair."""

    ok: bool
    detail: str = ""
    hint: str = ""
