"""OpenCode: `~/.local/share/opencode/opencode.db`, the files in `storage/` before 1.2, and the
output of `opencode export`.

A session has messages, and a message has parts. A tool's part holds the call and its result. The
files are `storage/session/PROJECT/SESSION.json`, `storage/message/SESSION/MESSAGE.json` and
`storage/part/MESSAGE/PART.json`. Sessions with a parent belong to subagents.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson

from upwell.episodes.events import Event, Kind
from upwell.ground.sqlite.foreign import refuse_computed
from upwell.replay.merge import Stream, merged
from upwell.replay.transcripts.base import (
    Draft,
    Format,
    Tally,
    Unreadable,
    array,
    closed,
    document,
    folder,
    moment,
    table,
    text,
)

_COMPLETE = ("completed", "error")
_SESSIONS = (
    "SELECT id, directory, time_created FROM session WHERE parent_id IS NULL "
    "ORDER BY time_created, id"
)
_PARTS = (
    "SELECT message.id, message.time_created, message.data, part.data FROM message "
    "JOIN part ON part.message_id = message.id WHERE message.session_id = ? "
    "ORDER BY message.time_created, message.id, part.id"
)


def read(path: Path, start: int, tally: Tally) -> Iterator[Event]:
    """The events of a session, or of all sessions in a database, in chronological order.

    Raises:
        Unreadable: the file is neither a session nor a database of OpenCode.
    """
    if path.suffix == ".db":
        yield from _of_database(path, tally)
        return
    stored = document(path)
    exported = table(stored.get("info"))
    session = exported or stored
    if not text(session.get("id")).startswith("ses"):
        raise Unreadable("it holds no session")
    if not text(session.get("parentID")):
        messages = _exported(stored) if exported else _stored(path, text(session["id"]))
        yield from closed(_events(text(session["id"]), session.get("directory"), messages, tally))


Message = tuple[Mapping[str, Any], Iterable[Mapping[str, Any]]]


def _events(
    session: str, directory: Any, messages: Iterable[Message], tally: Tally
) -> Iterator[Event]:
    draft = Draft(session, "opencode", tally, folder(directory))
    for message, parts in messages:
        at = moment(table(message.get("time")).get("created"))
        for part in parts:
            yield from _of_part(draft, text(message.get("role")), part, at)


def _of_part(draft: Draft, role: str, part: Mapping[str, Any], at: float) -> Iterator[Event]:
    kind, state = part.get("type"), table(part.get("state"))
    if kind == "text" and not part.get("synthetic") and not part.get("ignored"):
        words = text(part.get("text"))
        yield from draft.prompt(words, at) if role == "user" else draft.say(words, at)
    elif kind == "compaction":
        yield draft.event(Kind.COMPACT, at)
    elif kind == "tool" and state.get("status") in _COMPLETE:
        yield draft.tool(
            part.get("tool"),
            state.get("input"),
            text(state.get("output")) or text(state.get("error")),
            failed=state["status"] == "error",
            at=moment(table(state.get("time")).get("end")) or at,
        )


def _exported(document: Mapping[str, Any]) -> Iterator[Message]:
    for entry in map(table, array(document.get("messages"))):
        yield table(entry.get("info")), map(table, array(entry.get("parts")))


def _stored(path: Path, session: str) -> Iterator[Message]:
    storage = path.parent.parent.parent
    messages = [
        table(_file(file)) for file in sorted((storage / "message" / session).glob("*.json"))
    ]
    messages.sort(key=lambda message: moment(table(message.get("time")).get("created")))
    for message in messages:
        parts = sorted((storage / "part" / text(message.get("id"))).glob("*.json"))
        yield message, map(_file, parts)


def _file(path: Path) -> Mapping[str, Any]:
    """A message or part; empty if OpenCode is still writing the file."""
    try:
        return table(orjson.loads(path.read_bytes()))
    except (OSError, orjson.JSONDecodeError):
        return {}


def _of_database(path: Path, tally: Tally) -> Iterator[Event]:
    try:
        with closing(_opened(path)) as db:
            refuse_computed(db)
            yield from merged(
                Stream(moment(created), partial(_of_session, db, str(session), directory, tally))
                for session, directory, created in db.execute(_SESSIONS).fetchall()
            )
    except sqlite3.Error as error:
        raise Unreadable(f"cannot be read as a database of OpenCode: {error}") from error


def _opened(path: Path) -> sqlite3.Connection:
    """Open the database for reading. A database without a write-ahead log, or with an empty one, is
    opened as immutable, so that SQLite creates no files beside it."""
    log = Path(f"{path}-wal")
    is_idle = not log.exists() or not log.stat().st_size
    quoted = quote(str(path.absolute()))
    return sqlite3.connect(f"file:{quoted}?mode=ro{'&immutable=1' if is_idle else ''}", uri=True)


def _of_session(
    db: sqlite3.Connection, session: str, directory: Any, tally: Tally
) -> Iterator[Event]:
    return closed(_events(session, directory, _rows(db.execute(_PARTS, (session,))), tally))


def _rows(rows: Iterable[tuple[str, Any, Any, Any]]) -> Iterator[Message]:
    for _, created, message, part in rows:
        fields = _decoded(message)
        yield {"time": {"created": created}, **fields}, [_decoded(part)]


def _decoded(value: Any) -> Mapping[str, Any]:
    try:
        return table(orjson.loads(value)) if isinstance(value, str | bytes) else {}
    except orjson.JSONDecodeError:
        return {}


def _recognises(path: Path, head: bytes) -> bool:
    if path.suffix == ".db":
        return head.startswith(b"SQLite format 3\0") and path.stem.startswith("opencode")
    if path.suffix != ".json":
        return False
    return path.name.startswith("ses_") or (b'"info"' in head and b'"ses_' in head)


FORMAT = Format(
    name="opencode",
    recognises=_recognises,
    read=read,
)
