"""Neutral events: the record of a session in one format for all agent hosts.

A file of neutral events has one JSON object per line: `{"session", "i", "t", "kind", "text"?,
"tool"?, "args"?, "out"?, "failed"?, "cwd"?, "host"?}`. Paths in the repository are absolute, or
begin with `$ROOT/`.
"""

import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

import orjson
from msgspec import Struct, field

from upwell.ground.errors import UsageError

ROOT = "$ROOT"
"""Stands for the repository's folder in the paths of neutral events."""
WRITERS = frozenset({"Edit", "Write", "MultiEdit", "NotebookEdit"})
"""The tools that change files, by their Claude Code names."""
DOCUMENTS = (".md", ".mdx", ".rst", ".txt", ".adoc")
"""Endings of documents, which quote definitions but contain none."""
ACCEPTED_PLAN = "Implement the following plan: "
"""The beginning of a prompt that stands for a plan of the agent which the user accepted. Its
heading follows."""


class Kind(StrEnum):
    """The kinds of events."""

    START = "start"
    PROMPT = "prompt"
    TOOL = "tool"
    SAY = "say"
    COMPACT = "compact"
    END = "end"


class SessionEvent(Struct, frozen=True, kw_only=True):
    """One event of a session. `i` is its index in the session, counted from 0. `t` is its time in
    seconds since the epoch.

    `text` is the user's prompt or the agent's words. `tool` and `args` describe a call, with Claude
    Code's names for tools and arguments. `out` is the result of the call. `cwd` is absolute.
    `offset` is the byte offset of the event's record in the transcript, or 0 if the format is not
    line-based.
    """

    session: str
    i: int
    t: float
    kind: Kind
    text: str = ""
    tool: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)
    out: str = ""
    failed: bool = False
    cwd: str | None = None
    host: str = ""
    offset: int = 0

    @property
    def is_users(self) -> bool:
        """Whether the user wrote the text. The heading of an accepted plan is the agent's."""
        return self.kind is Kind.PROMPT and not self.text.startswith(ACCEPTED_PLAN)


class BadEvent(UsageError):
    """A line that is not a neutral event."""


def read_events(path: Path) -> Iterator[SessionEvent]:
    """Yield the events of a file in chronological order. Its lines may be in any order. Raises
    OSError if the file cannot be read, and BadEvent, which names the file and the line, if a line
    is not an event."""
    with path.open("rb") as file:
        for number, offset in _in_order(file, path):
            file.seek(offset)
            yield event_of(file.readline(), f"{path}:{number}")


def event_of(line: bytes, source: str) -> SessionEvent:
    """Parse a line. Raises BadEvent, whose message begins with `source`, if it is not an event."""
    entry = _table(line, source)
    for name, kind in _REQUIRED.items():
        if name not in entry:
            raise BadEvent(f"{source}: {name!r} is missing", hint=_SHAPE)
        _check(entry, name, kind, source)
    for name, kind in _OPTIONAL.items():
        if entry.get(name) is not None:
            _check(entry, name, kind, source)
    if entry["kind"] not in list(Kind):
        raise BadEvent(f"{source}: kind {entry['kind']!r:.40} is not one of {', '.join(Kind)}")
    fields = {name: entry[name] for name in _OPTIONAL if entry.get(name) is not None}
    return SessionEvent(
        session=entry["session"],
        i=entry["i"],
        t=float(entry["t"]),
        kind=Kind(entry["kind"]),
        **fields,
    )


def line_of(event: SessionEvent) -> str:
    """Return an event as a line of a file, without the line break. Empty fields are left out."""
    entry: dict[str, Any] = {"session": event.session, "i": event.i, "t": event.t}
    entry["kind"] = str(event.kind)
    fields = {name: getattr(event, name) for name in _OPTIONAL}
    return json.dumps(entry | {name: value for name, value in fields.items() if value})


_SHAPE = 'a line is {"session", "i", "t", "kind", …}'
_NUMBER = (int, float)
_REQUIRED: Mapping[str, Any] = {"session": str, "i": int, "t": _NUMBER, "kind": str}
_OPTIONAL: Mapping[str, Any] = {
    "text": str,
    "tool": str,
    "args": dict,
    "out": str,
    "failed": bool,
    "cwd": str,
    "host": str,
}
_NAMES = {
    str: "text",
    int: "a whole number",
    _NUMBER: "a number",
    dict: "an object",
    bool: "true or false",
}


def _check(entry: Mapping[str, Any], name: str, kind: Any, source: str) -> None:
    value = entry[name]
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise BadEvent(f"{source}: {name!r} must be {_NAMES[kind]}", hint=_SHAPE)


def _table(line: bytes, source: str) -> dict[str, Any]:
    try:
        entry = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadEvent(f"{source}: not JSON: {error}", hint=_SHAPE) from error
    if not isinstance(entry, dict):
        raise BadEvent(f"{source}: not a JSON object", hint=_SHAPE)
    return entry


def _in_order(file: BinaryIO, path: Path) -> list[tuple[int, int]]:
    """Return the number and offset of each line that is not blank, sorted by time."""
    lines: list[tuple[float, int, int]] = []
    offset = 0
    for number, line in enumerate(file, start=1):
        if line.strip():
            entry = _table(line, f"{path}:{number}")
            at = entry.get("t")
            lines.append((float(at) if isinstance(at, int | float) else 0.0, number, offset))
        offset += len(line)
    return [(number, offset) for _, number, offset in sorted(lines)]


def inside(path: str, root: str | None) -> str:
    """Make `path` relative to the folder `root`, if it is inside. Also remove a leading `./`."""
    path = path.removeprefix("./")
    return path.removeprefix(f"{root.rstrip('/')}/") if root else path
