"""The content of every model API in a common form: parts of a conversation, and tool calls."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

DONE = "That is all."


@dataclass(frozen=True)
class Said:
    """A part of the conversation. `kind`: system, user, model, call or result."""

    kind: str
    text: str


@dataclass(frozen=True)
class Call:
    """A tool call of the model; `args` may depend on the conversation so far. Those of a tool that
    takes free text are a string."""

    tool: str
    args: Mapping[str, Any] | str | Callable[[Sequence[Said]], Mapping[str, Any]]

    def after(self, said: Sequence[Said]) -> "Call":
        """The call with its arguments filled in."""
        return Call(self.tool, self.args(said)) if callable(self.args) else self


class Dialect(Protocol):
    """One API."""

    def speaks(self, path: str) -> bool: ...

    def said(self, body: Mapping[str, Any]) -> Sequence[Said]:
        """The conversation in a request."""
        ...

    def reply(self, path: str, body: Mapping[str, Any], next: Call | str) -> tuple[str, bytes]:
        """Media type and body of a reply that is a call or a text."""
        ...


def text_in(value: Any) -> str:
    """The text of a message's content, which may be a string, a block or a list of blocks."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(filter(None, map(text_in, value)))
    if isinstance(value, Mapping):
        return text_in(value.get("text") or value.get("content") or value.get("output") or "")
    return ""


def as_json(value: Any) -> tuple[str, bytes]:
    return "application/json", json.dumps(value).encode()


def as_events(events: Sequence[Any], *, named: bool = False, end: str = "") -> tuple[str, bytes]:
    """A reply of server-sent events. `named` adds a line with the `type` of each; `end` is the data
    of one more event."""
    lines = [
        (f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event)}\n\n"
        for event in events
    ]
    if end:
        lines.append(f"data: {end}\n\n")
    return "text/event-stream", "".join(lines).encode()
