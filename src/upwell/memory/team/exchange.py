"""The messages with which a developer's machine reads and changes a team's memories through a
gateway (`memory/team/gateway.py`, `web/team.py`). They are JSON over HTTP.

    GET  /team          → Greeting   the store, and whether the token may write
    POST /team/pages    PagesRequest → PagesReply     the next changes of some projects
    POST /team/writes   WritesRequest → WritesReply   writes of the machine's outbox

Both sides check what they receive, because any program may have sent it.
"""

import math
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.types.memory import Memory
from upwell.memory.ranking.terms import sound
from upwell.memory.records import MAX_COUNT, MAX_ID_CHARS, MAX_TIME
from upwell.memory.team.base import ChangePage, Cursor, Outgoing, RefusedWrite, SharedChange

PROTOCOL = 1
"""The version of these messages. Both sides reject any other version."""
PATH, PAGES_PATH, WRITES_PATH = "/team", "/team/pages", "/team/writes"
MAX_CURSORS = 32
MAX_WRITES = 100
MAX_REQUEST_BYTES = 4_000_000
PAGES_BYTES = 2_000_000
"""The approximate maximum size of a response with pages. A response with only one change may be
larger."""
MAX_REPLY_BYTES = 16_000_000
MAX_NAME_CHARS = 1_000
_MAX_VERSION = 2**63 - 1
_MAX_LINE = 2**31 - 1
_TOKEN_CHARS = range(16, 65)


class Greeting(Struct, frozen=True, kw_only=True):
    """The gateway's description of itself. `source` is the identity of the store, as returned by
    `SharedMemories.identity()`. `version` is the version of upwell. `may_write` is True if the
    token's role allows writes."""

    protocol: int
    source: str
    version: str = ""
    may_write: bool = True


class PagesRequest(Struct, frozen=True, kw_only=True):
    """A request for the next changes in the store `source`, which the machine copies."""

    protocol: int
    source: str
    cursors: tuple[Cursor, ...]


class PagesReply(Struct, frozen=True, kw_only=True):
    protocol: int
    pages: tuple[ChangePage, ...]


class WritesRequest(Struct, frozen=True, kw_only=True):
    """Writes for the store `source`."""

    protocol: int
    source: str
    writes: tuple[Outgoing, ...]


class WritesReply(Struct, frozen=True, kw_only=True):
    """The reply to writes. All writes have arrived, and those in `refused` were not applied."""

    protocol: int
    refused: tuple[RefusedWrite, ...] = ()


class ErrorBody(Struct, frozen=True, kw_only=True):
    """The body of every error response."""

    error: str
    protocol: int = 0


class _Any(Struct, frozen=True, kw_only=True):
    """The field that messages of every version have."""

    protocol: int


class Malformed(Exception):
    """The body is not one of these messages."""


class OtherProtocol(Malformed):
    """The sender uses another version of the protocol."""


def encoded(message: Any) -> bytes:
    """Encode a message as JSON. Lone surrogates are replaced, because UTF-8 cannot encode them."""
    try:
        return msgspec.json.encode(message)
    except UnicodeEncodeError:
        return msgspec.json.encode(_sound(msgspec.to_builtins(message)))


def decoded[T](kind: type[T], body: bytes) -> T:
    """Decode a message of this kind.

    Raises:
        OtherProtocol: the sender uses another version of the protocol.
        Malformed: the body is not a message of this kind.
    """
    protocol = _decoded(_Any, body).protocol
    if protocol != PROTOCOL:
        raise OtherProtocol(str(protocol))
    return _decoded(kind, body)


def problem_in(body: bytes) -> ErrorBody | None:
    """Return the error in the body of a response, or None if another program wrote the body."""
    try:
        return _decoded(ErrorBody, body)
    except Malformed:
        return None


def check_cursors(cursors: Sequence[Cursor]) -> None:
    """Reject cursors that cannot come from a gateway.

    Raises:
        Malformed: there are too many cursors, two have the same project, or one is impossible.
    """
    if len(cursors) > MAX_CURSORS:
        raise Malformed(f"more than {MAX_CURSORS} projects at once")
    if len({cursor.project for cursor in cursors}) < len(cursors):
        raise Malformed("a project occurs twice")
    for cursor in cursors:
        try:
            version, after = cursor.position
        except ValueError:
            raise Malformed("a position that no store has") from None
        lowest = -1 if cursor.base < 0 else 0
        if not (lowest <= version <= _MAX_VERSION and cursor.base <= _MAX_VERSION):
            raise Malformed("a version that no store has")
        check_name(cursor.project)
        check_name(after, MAX_ID_CHARS)


def check_writes(writes: Sequence[Outgoing]) -> None:
    """Reject writes that cannot come from an outbox.

    Raises:
        Malformed: there are too many writes, two of them have the same memory or token, or one has
            no valid id or token.
    """
    if len(writes) > MAX_WRITES:
        raise Malformed(f"more than {MAX_WRITES} writes at once")
    for names in ([write.id for write in writes], [write.token for write in writes]):
        if len(set(names)) < len(names):
            raise Malformed("two writes of one memory, or with one token")
    for write in writes:
        if len(write.token) not in _TOKEN_CHARS or not (
            write.token.isascii() and write.token.isalnum()
        ):
            raise Malformed("a write without a proper token")
        check_name(write.id, MAX_ID_CHARS)
        if not write.id:
            raise Malformed("a write without an id")


def storable(memory: Memory) -> Memory:
    """Return the memory with numbers that fit the database's columns. Impossible line ranges and
    times are dropped, and the number of occurrences is clamped."""
    first, last = memory.lines or (0, -1)
    return replace(
        memory,
        lines=memory.lines if 0 < first <= last <= _MAX_LINE else None,
        occurrences=min(max(memory.occurrences, 1), MAX_COUNT),
        expires_at=_time(memory.expires_at),
        created_at=_time(memory.created_at),
        updated_at=_time(memory.updated_at),
        viewed_at=_time(memory.viewed_at),
    )


def cut(
    cursors: Sequence[Cursor], pages: Sequence[ChangePage], max_bytes: int
) -> tuple[ChangePage, ...]:
    """Trim the pages to about `max_bytes` in total. The first change is always included, whatever
    its size, so that every response makes progress. `cursors` are the cursors in the request, one
    for each page."""
    remaining, is_first, result = max_bytes, True, []
    for cursor, page in zip(cursors, pages, strict=True):
        changes: list[SharedChange] = []
        for change in page.changes:
            remaining -= len(encoded(change))
            if remaining < 0 and not is_first:
                break
            is_first = False
            changes.append(change)
        result.append(_beginning(cursor, page, changes))
    return tuple(result)


def _beginning(cursor: Cursor, page: ChangePage, changes: Sequence[SharedChange]) -> ChangePage:
    if len(changes) == len(page.changes):
        return page
    if not changes:
        return ChangePage((), cursor, is_last=False)
    last = changes[-1]
    return ChangePage(changes, cursor.behind(last.version, last.id), is_last=False)


def _decoded[T](kind: type[T], body: bytes) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise Malformed(f"not a message of upwell: {str(error)[:200]}") from error


def check_name(name: str, most: int = MAX_NAME_CHARS) -> None:
    """Reject the name of a memory or project if the database cannot store it.

    Raises:
        Malformed: the name is too long or has invalid characters.
    """
    if len(name) > most or sound(name) != name:
        raise Malformed("a name that no memory or project has")


def _time(seconds: float | None) -> float | None:
    if seconds is None or not math.isfinite(seconds) or abs(seconds) >= MAX_TIME:
        return None
    return seconds


def _sound(value: Any) -> Any:
    if isinstance(value, str):
        return sound(value)
    if isinstance(value, dict):
        return {name: _sound(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_sound(item) for item in value]
    return value
