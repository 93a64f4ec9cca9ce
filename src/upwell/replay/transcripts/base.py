"""The interface of a transcript format, and functions for reading untrusted values.

A reader takes the values that have the expected shape and ignores the rest, but counts the records
that it does not know in a `ReadTally`. It may raise `UnreadableTranscript` if a whole file has
another format. Streams of events are merged by time.
"""

import contextlib
import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from upwell.episodes.events import Kind, SessionEvent, read_events
from upwell.ground.errors import UsageError
from upwell.hosts import HOSTS
from upwell.hosts.events import own_words, plain_args


class EventStream(Struct, frozen=True):
    """A stream of events in chronological order. `begins` is the time of the first event, in
    seconds since the epoch."""

    begins: float
    open: Callable[[], Iterator[SessionEvent]]


def merged(streams: Iterable[EventStream]) -> Iterator[SessionEvent]:
    """All events in chronological order. Events at the same time are in the order of their
    streams. A stream is opened only when its first event is due."""
    numbered = enumerate(streams)
    unopened = sorted(numbered, key=lambda pair: (pair[1].begins, pair[0]), reverse=True)
    running: list[tuple[float, int, SessionEvent, Iterator[SessionEvent]]] = []
    while unopened or running:
        while unopened and (not running or unopened[-1][1].begins <= running[0][0]):
            number, stream = unopened.pop()
            _push_next(running, number, stream.open())
        if running:
            _, number, event, rest = heapq.heappop(running)
            yield event
            _push_next(running, number, rest)


def _push_next(
    running: list[tuple[float, int, SessionEvent, Iterator[SessionEvent]]],
    number: int,
    rest: Iterator[SessionEvent],
) -> None:
    event = next(rest, None)
    if event is not None:
        heapq.heappush(running, (event.t, number, event, rest))


MAX_TEXT_CHARS = 100_000
MAX_NAME_CHARS = 200
MAX_DEPTH = 20
MAX_KINDS = 50
"""The maximum number of kinds of unknown records that are counted separately."""
MAX_OUT_CHARS = 24_000
"""How much of a tool's result is read."""
HEAD_BYTES = 4_096
CHUNK_BYTES = 1_000_000
LATEST = 4_102_444_800.0
"""The end of 2099 in seconds since the epoch. Larger numbers must be milliseconds."""
_OTHER_AGENTS: Mapping[str, str] = {"view_file": "Read", "run_command": "Bash"}
TOOLS: Mapping[str, str] = {
    name.lower(): tool
    for tools in (
        _OTHER_AGENTS,
        *(host.recorded_tools for host in HOSTS.values()),
        *(host.writers for host in HOSTS.values()),
        *(host.events.readers for host in HOSTS.values()),
    )
    for name, tool in tools.items()
}
"""The tool names of all hosts, in lower case, mapped to upwell's names."""
_PATH_TOOLS = frozenset({"Read", "Edit", "Write"})
_OTHER_NAMES: Mapping[str, str] = {"cmd": "command"}
"""Argument names that occur only in transcripts, not in hooks."""
_PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete|Modify|Create) File: (.+)$", re.MULTILINE)
_MEMORIES = ("<upwell-memories", "</upwell-memories>")


class UnreadableTranscript(UsageError):
    """A file cannot be read or has another format. The message is one line."""


class ReadTally(Struct):
    """What a reader made of a transcript: the number of its records, how many of them it did not
    know, by kind, how many prompts it found, and the version of the agent that wrote the file (""
    if none is recorded)."""

    records: int = 0
    unknown: dict[str, int] = field(default_factory=dict[str, int])
    prompts: int = 0
    version: str = ""

    def miss(self, kind: Any) -> None:
        """Count a record that the reader does not know."""
        name = text(kind)[:MAX_NAME_CHARS] or "?"
        if name not in self.unknown and len(self.unknown) >= MAX_KINDS:
            name = "other"
        self.unknown[name] = self.unknown.get(name, 0) + 1

    @property
    def missed(self) -> int:
        """How many records the reader did not know."""
        return sum(self.unknown.values())


class TranscriptFormat(Struct, frozen=True, kw_only=True):
    """How a host records sessions. A `Host` refers to its format by `name`.

    - `recognises` receives the path and the first `HEAD_BYTES` bytes of a file.
    - `read` yields the events of a file in chronological order, from a byte offset on, and counts
      the records that it reads. It may raise `UsageError` or `OSError`.
    - `resumes`: the file is only appended to, so it can be read from an offset other than 0.
    - `written_for` is the newest version of the agent whose transcripts the reader was tested with.
    """

    name: str
    recognises: Callable[[Path, bytes], bool]
    read: Callable[[Path, int, ReadTally], Iterator[SessionEvent]]
    resumes: bool = False
    written_for: str = ""


class SessionDraft(Struct):
    """Creates the events of a session in order. Their times never run backwards. `now` is the time
    of the record that is being read, `at` that of the latest event; 0 for none. The reader of a
    format may be a subclass."""

    session: str
    host: str
    tally: ReadTally
    cwd: str | None = None
    offset: int = 0
    now: float = 0.0
    at: float = 0.0
    latest: Kind | None = None

    def lines(self, path: Path, start: int) -> Iterator[SessionEvent]:
        """Yield the events of a file of JSON lines, each with a `timestamp`."""
        for offset, record in records(path, start, self.tally):
            self.offset = offset
            self.now = moment(record.get("timestamp"))
            yield from self.record(record)
        self.now = 0.0
        yield from self.left()

    def record(self, record: Mapping[str, Any]) -> Iterator[SessionEvent]:
        """Yield the events of a line."""
        yield from ()

    def left(self) -> Iterator[SessionEvent]:
        """Yield the calls that have no end in the file."""
        yield from ()

    def event(self, kind: Kind, at: float = 0.0, **fields: Any) -> SessionEvent:
        """Create an event, at the time `at` or `now`. If it has no time or is out of order, it gets
        the time of the previous event."""
        self.at = max(self.at, at or self.now)
        self.latest = kind
        return SessionEvent(
            session=self.session,
            i=0,
            t=self.at,
            kind=kind,
            cwd=self.cwd,
            host=self.host,
            offset=self.offset,
            **fields,
        )

    def prompt(self, message: str) -> Iterator[SessionEvent]:
        """Yield the user's prompt, if a message whose author the host does not record contains
        one."""
        yield from self.typed(own_words(message, self.host))

    def typed(self, words: str) -> Iterator[SessionEvent]:
        """Yield a prompt that the user wrote according to the host, if there is any."""
        if prompt := words.strip()[:MAX_TEXT_CHARS]:
            self.tally.prompts += 1
            yield self.event(Kind.PROMPT, text=prompt)

    def say(self, words: Any) -> Iterator[SessionEvent]:
        """Yield the agent's words, if there are any."""
        if isinstance(words, str) and words.strip():
            yield self.event(Kind.SAY, text=words.strip()[:MAX_TEXT_CHARS])

    def tool(
        self, name: Any, args: Any, out: Any, *, failed: bool, at: float = 0.0
    ) -> SessionEvent:
        """Create the event of a finished call. Memories that a hook added to its result are left
        out."""
        tool = tool_name(name)
        return self.event(
            Kind.TOOL,
            at,
            tool=tool,
            args=arguments(tool, args),
            out=without(text_of(out), *_MEMORIES)[:MAX_OUT_CHARS],
            failed=failed,
        )

    def compaction(self) -> Iterator[SessionEvent]:
        """Yield a compaction, which some hosts record twice in succession."""
        if self.latest is not Kind.COMPACT:
            yield self.event(Kind.COMPACT)


def closed(events: Iterable[SessionEvent]) -> Iterator[SessionEvent]:
    """The events of one session, numbered, between a start event and an end event. Yields nothing
    if there are no events."""
    last: SessionEvent | None = None
    for number, event in enumerate(events, start=1):
        if last is None:
            yield boundary(event, Kind.START, 0)
        last = replace(event, i=number)
        yield last
    if last is not None:
        yield boundary(last, Kind.END, last.i + 1)


def boundary(event: SessionEvent, kind: Kind, number: int) -> SessionEvent:
    """The start or end of a session, beside its first or last event."""
    text = "startup" if kind is Kind.START else ""
    return replace(event, kind=kind, i=number, text=text, tool="", args={}, out="", failed=False)


MAX_LINE_BYTES = 64_000_000
"""Longer lines are ignored. No host writes them, and each would have to fit in memory."""
MAX_DOCUMENT_BYTES = 256_000_000


def records(path: Path, start: int, tally: ReadTally) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON objects in a file of JSON lines, each with the byte offset of its line, from the
    first line that starts at or after the byte `start`. A line without a JSON object is counted as
    unknown, unless it is the last: that of a running session may be incomplete."""
    with path.open("rb") as file:
        if start:
            file.seek(start - 1)
            file.readline()
        offset = file.tell()
        while line := file.readline(MAX_LINE_BYTES):
            begin, whole = offset, line.endswith(b"\n") or len(line) < MAX_LINE_BYTES
            offset += len(line)
            while not whole:
                # Skip the rest of a line that is too long.
                rest = file.readline(MAX_LINE_BYTES)
                offset += len(rest)
                whole, line = not rest or rest.endswith(b"\n"), b""
            try:
                entry = orjson.loads(line)
            except orjson.JSONDecodeError:
                entry = None
            if isinstance(entry, dict):
                tally.records += 1
                yield begin, entry
            elif (line.strip() and line.endswith(b"\n")) or not line:
                tally.records += 1
                tally.miss("not JSON")


def document(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        Unreadable: the file contains something else or is too large.
    """
    if path.stat().st_size > MAX_DOCUMENT_BYTES:
        raise UnreadableTranscript(f"larger than {MAX_DOCUMENT_BYTES:,} bytes")
    try:
        document = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise UnreadableTranscript(f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise UnreadableTranscript("not a JSON object")
    return document


def table(value: Any) -> dict[str, Any]:
    """The value if it is an object, otherwise an empty object."""
    return value if isinstance(value, dict) else {}


def json_table(value: Any) -> dict[str, Any]:
    """The object in a JSON text; empty for any other value."""
    try:
        return table(orjson.loads(value)) if isinstance(value, str | bytes) else {}
    except orjson.JSONDecodeError:
        return {}


def array(value: Any) -> list[Any]:
    """The value if it is a list, otherwise an empty list."""
    return value if isinstance(value, list) else []


def text(value: Any) -> str:
    """The value if it is a string, otherwise ""."""
    return value if isinstance(value, str) else ""


def moment(value: Any) -> float:
    """A time in seconds since the epoch, from ISO 8601 or a number of seconds or milliseconds; 0
    for any other value."""
    if isinstance(value, bool):
        return 0.0
    try:
        if isinstance(value, int | float):
            seconds = float(value) / 1000 if value > LATEST else float(value)
            return seconds if 0.0 <= seconds <= LATEST else 0.0
        stamp = datetime.fromisoformat(value) if isinstance(value, str) else None
        if stamp is None:
            return 0.0
        zoned = stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)
        return max(0.0, zoned.timestamp())
    except (ValueError, OverflowError):
        return 0.0


def folder(value: Any) -> str | None:
    """The value if it is an absolute path, otherwise None."""
    path = text(value)
    return path if path.startswith("/") and "\0" not in path else None


def holds(path: Path, needle: bytes) -> bool:
    """True if the file contains these bytes."""
    with path.open("rb") as file:
        tail = b""
        while chunk := file.read(CHUNK_BYTES):
            if needle in tail + chunk:
                return True
            tail = chunk[-len(needle) :]
    return False


def text_of(value: Any, depth: int = 0) -> str:
    """The text in a message or a tool's result, which may be a string, a list of content blocks or
    an object. What lies deeper than `MAX_DEPTH` is left out."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and depth < MAX_DEPTH:
        return "\n".join(filter(None, (_block(entry, depth) for entry in value)))
    if isinstance(value, dict):
        with contextlib.suppress(orjson.JSONEncodeError, UnicodeDecodeError):
            return _block(value, depth) or orjson.dumps(value).decode()
    return ""


def _block(value: Any, depth: int) -> str:
    if isinstance(value, str):
        return value
    entry = table(value)
    for name in ("text", "content", "output", "error", "stdout"):
        if isinstance(entry.get(name), str):
            return str(entry[name])
    content = entry.get("content")
    return text_of(content, depth + 1) if isinstance(content, list) else ""


def between(text: str, opening: str, closing: str) -> str:
    """The text between the first `opening` and the next `closing`; "" if either is missing."""
    words, end, _ = text.partition(opening)[2].partition(closing)
    return words if end else ""


def without(text: str, opening: str, closing: str) -> str:
    """`text` without the parts that begin with `opening` and end with the next `closing`."""
    parts, offset = [], 0
    while (start := text.find(opening, offset)) >= 0:
        end = text.find(closing, start + len(opening))
        if end < 0:
            break
        parts.append(text[offset:start])
        offset = end + len(closing)
    return "".join((*parts, text[offset:]))


def tool_name(name: Any) -> str:
    """upwell's name for a tool."""
    host_name = text(name)[:MAX_NAME_CHARS]
    return TOOLS.get(host_name.lower(), host_name)


def arguments(tool: str, raw: Any) -> dict[str, Any]:
    """The arguments of a call in the form that hooks use (`hosts.events.plain_args()`). `raw` is an
    object or its JSON. For a patch, `file_path` is the first file that the patch changes."""
    if isinstance(raw, str):
        try:
            decoded = orjson.loads(raw)
        except orjson.JSONDecodeError:
            decoded = None
        raw = decoded if isinstance(decoded, dict) else {"input": raw}
    args = plain_args({_OTHER_NAMES.get(name, name): value for name, value in table(raw).items()})
    if tool in _PATH_TOOLS and "path" in args:
        args.setdefault("file_path", args.pop("path"))
    patch = args.get("input", args.get("patch", args.get("patch_text")))
    change = _PATCHED.search(patch) if isinstance(patch, str) else None
    if tool == "Edit" and change:
        args.setdefault("file_path", change[1].strip())
    return args


def _recognises(path: Path, head: bytes) -> bool:
    return path.suffix == ".jsonl" and b'"kind"' in head and b'"session"' in head


NEUTRAL = TranscriptFormat(
    name="events",
    recognises=_recognises,
    read=lambda path, start, tally: read_events(path),
)
"""upwell's own format, written by `upwell replay --events` and other programs."""
