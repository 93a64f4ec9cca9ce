"""OpenCode: `~/.local/share/opencode/opencode.db`, the files in `storage/` before 1.2, and the
output of `opencode export`.

Until 1.x a session has messages, and a message has parts. A tool's part holds the call and its
result. The files are `storage/session/PROJECT/SESSION.json`, `storage/message/SESSION/MESSAGE.json`
and `storage/part/MESSAGE/PART.json`. Since 2.0 a session has only messages; those of the agent
hold texts and calls. Version 2.0 keeps the tables of 1.x beside its own (`session_v2`), and copies
their sessions. Sessions with a parent belong to subagents.

A command counts as completed whatever its exit status, which stands in its metadata.

Sources: the schemas of OpenCode 1.18.33 and of `packages/schema/src/session-message.ts` (2.0).
"""

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from upwell.episodes.events import Kind, SessionEvent
from upwell.hosts.events import COMMANDS
from upwell.replay.transcripts.base import (
    EventStream,
    ReadTally,
    SessionDraft,
    TranscriptFormat,
    UnreadableTranscript,
    array,
    closed,
    document,
    folder,
    json_table,
    merged,
    moment,
    table,
    text,
    text_of,
    tool_name,
)

_MAX_VALUE_BYTES = 64_000_000
_COMPUTED = """
SELECT name FROM sqlite_schema WHERE type = 'view'
UNION SELECT tables.name
FROM (SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE '%AS%(%') AS tables,
     pragma_table_xinfo(tables.name) AS columns
WHERE columns.hidden IN (2, 3)
"""
_COMPLETE = ("completed", "error")
_PENDING = ("pending", "running", "streaming")
_IGNORED_PARTS = frozenset(
    "file agent subtask reasoning step-start step-finish snapshot patch retry".split()
)
_IGNORED_MESSAGES = frozenset(
    """
    synthetic system skill agent-switched model-switched location-switched idle
    """.split()
)
_REFUSED = ("The user rejected permission to use", "The user dismissed this question")
_STOPPED = re.compile(
    r"(?:Command exited with code (?!0\.)[\w-]{1,20}\.|Command timed out before completion\."
    r"|Command stopped by user\.[^\n]*|User aborted the command\s+</\w*metadata>)\s*\Z"
)
"""How the result of a command ends that failed, timed out or was stopped."""
_END_CHARS = 400
_V1 = ("session", "message", "part")
_V2 = ("session_v2", "session_message")
_TABLES = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
_SESSIONS = "SELECT * FROM session WHERE parent_id IS NULL ORDER BY time_created, id"
_SESSIONS_V2 = (
    "SELECT * FROM session_v2 WHERE parent_id IS NULL AND EXISTS (SELECT 1 FROM session_message "
    "WHERE session_message.session_id = session_v2.id) ORDER BY time_created, id"
)
_PARTS = (
    "SELECT message.id, message.time_created, message.data, part.data FROM message "
    "JOIN part ON part.message_id = message.id WHERE message.session_id = ? "
    "ORDER BY message.time_created, message.id, part.id"
)
_MESSAGES_V2 = (
    "SELECT type, time_created, data FROM session_message WHERE session_id = ? ORDER BY seq, id"
)


def read(path: Path, start: int, tally: ReadTally) -> Iterator[SessionEvent]:
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
        raise UnreadableTranscript("it holds no session")
    tally.version = text(session.get("version"))
    if not text(session.get("parentID")):
        messages = _stored(path, text(session["id"]))
        if exported:
            entries = map(table, array(stored.get("messages")))
            messages = ((table(e.get("info")), map(table, array(e.get("parts")))) for e in entries)
        cwd = folder(session.get("directory"))
        draft = SessionDraft(text(session["id"]), "opencode", tally, cwd)
        yield from closed(_events(draft, messages))


Message = tuple[Mapping[str, Any], Iterable[Mapping[str, Any]]]


def _events(draft: SessionDraft, messages: Iterable[Message]) -> Iterator[SessionEvent]:
    for message, parts in messages:
        draft.now = moment(table(message.get("time")).get("created"))
        for part in parts:
            draft.tally.records += 1
            yield from _of_part(draft, message, part)


def _of_part(
    draft: SessionDraft, message: Mapping[str, Any], part: Mapping[str, Any]
) -> Iterator[SessionEvent]:
    kind, role = text(part.get("type")), message.get("role")
    is_summary = role == "assistant" and message.get("summary") is True
    if kind == "text":
        words = text(part.get("text"))
        if role not in ("user", "assistant"):
            draft.tally.miss(f"{text(role)}: text")
        elif not (part.get("synthetic") or part.get("ignored") or is_summary):
            yield from draft.prompt(_unquoted(words)) if role == "user" else draft.say(words)
    elif kind == "compaction":
        yield draft.event(Kind.COMPACT)
    elif kind == "tool":
        state = table(part.get("state"))
        ended = moment(table(state.get("time")).get("end"))
        yield from _called(draft, part.get("tool"), state, ended)
    elif kind not in _IGNORED_PARTS:
        draft.tally.miss(kind)


def _unquoted(words: str) -> str:
    """The words that `opencode run` received. It puts an argument with spaces in quotes."""
    inner = words[1:-1].replace('\\"', "")
    is_quoted = len(words) > 1 and words[0] == words[-1] == '"' and '"' not in inner
    return words[1:-1].replace('\\"', '"') if is_quoted else words


def _called(
    draft: SessionDraft, name: Any, state: Mapping[str, Any], at: float
) -> Iterator[SessionEvent]:
    status, error = state.get("status"), state.get("error")
    if status not in _COMPLETE:
        if status not in _PENDING:
            draft.tally.miss(f"tool: {text(status)}")
        return
    reason = text(table(error).get("message")) or text(error)
    if not reason.startswith(_REFUSED):
        out = text(state.get("output")) or text_of(state.get("content")) or reason
        failed = status == "error" or _has_failed(name, state, out)
        yield draft.tool(name, state.get("input"), out, failed=failed, at=at)


def _has_failed(name: Any, state: Mapping[str, Any], out: str) -> bool:
    """True if a call that completed ran a command that failed. The exit status of a command that
    was stopped or timed out is null in 1.x and absent in 2.0."""
    facts = table(state.get("metadata")) or table(state.get("structured"))
    if facts.get("timeout") is True or facts.get("interrupted") is True:
        return True
    if "exit" in facts:
        return bool(facts["exit"] != 0)
    return tool_name(name) == COMMANDS and bool(_STOPPED.search(out[-_END_CHARS:]))


def _of_message(draft: SessionDraft, kind: Any, data: Mapping[str, Any]) -> Iterator[SessionEvent]:
    """The events in a message of version 2.0."""
    if kind == "user":
        yield from draft.prompt(_unquoted(text(data.get("text"))))
    elif kind == "assistant":
        for entry in map(table, array(data.get("content"))):
            draft.tally.records += 1
            yield from _of_content(draft, entry)
    elif kind == "shell":
        if data.get("status") != "running":
            failed = data.get("exit", 0) != 0 or data.get("status") in ("timeout", "killed")
            out, args = text_of(data.get("output")), {"command": data.get("command")}
            yield draft.tool("shell", args, out, failed=failed)
    elif kind == "compaction":
        if data.get("status") in (None, "completed"):
            yield draft.event(Kind.COMPACT)
    elif kind not in _IGNORED_MESSAGES:
        draft.tally.miss(kind)


def _of_content(draft: SessionDraft, entry: Mapping[str, Any]) -> Iterator[SessionEvent]:
    kind = text(entry.get("type"))
    if kind == "text":
        if not (entry.get("synthetic") or entry.get("ignored")):
            yield from draft.say(entry.get("text"))
    elif kind == "tool":
        ended = moment(table(entry.get("time")).get("completed"))
        yield from _called(draft, entry.get("name"), table(entry.get("state")), ended)
    elif kind != "reasoning":
        draft.tally.miss(f"assistant: {kind}")


def _stored(path: Path, session: str) -> Iterator[Message]:
    storage = path.parent.parent.parent
    messages = [_file(file) for file in sorted((storage / "message" / session).glob("*.json"))]
    messages.sort(key=lambda message: moment(table(message.get("time")).get("created")))
    for message in messages:
        parts = sorted((storage / "part" / text(message.get("id"))).glob("*.json"))
        yield message, map(_file, parts)


def _file(path: Path) -> Mapping[str, Any]:
    """A message or part; empty if OpenCode is still writing the file."""
    try:
        return json_table(path.read_bytes())
    except OSError:
        return {}


def _of_database(path: Path, tally: ReadTally) -> Iterator[SessionEvent]:
    try:
        with closing(_opened(path)) as db:
            _refuse_computed(db)
            db.row_factory = sqlite3.Row
            yield from merged(_streams(db, tally))
    except sqlite3.Error as error:
        raise UnreadableTranscript(f"cannot be read as a database of OpenCode: {error}") from error


def _refuse_computed(db: sqlite3.Connection) -> None:
    """Refuse to read views and tables with computed columns, whose content could be endless, and
    values over `_MAX_VALUE_BYTES`."""
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
    db.execute("PRAGMA trusted_schema = OFF")
    computed = {name.lower() for (name,) in db.execute(_COMPUTED)}

    def allowed(action: int, table: str | None, *_: str | None) -> int:
        is_computed = action == sqlite3.SQLITE_READ and (table or "").lower() in computed
        return sqlite3.SQLITE_DENY if is_computed else sqlite3.SQLITE_OK

    db.set_authorizer(allowed)


def _streams(db: sqlite3.Connection, tally: ReadTally) -> list[EventStream]:
    """The sessions of a database, each once. Those of version 2.0 come before the frozen originals
    of 1.x from which they were copied."""
    tables = {name for (name,) in db.execute(_TABLES)}
    if not tables.issuperset(_V2) and not tables.issuperset(_V1):
        raise UnreadableTranscript("this version of OpenCode is not supported: it has other tables")
    rows = {}
    if tables.issuperset(_V2):
        rows = {row["id"]: (row, True) for row in db.execute(_SESSIONS_V2).fetchall()}
    if tables.issuperset(_V1):
        old = db.execute(_SESSIONS).fetchall()
        rows = {row["id"]: (row, False) for row in old} | rows
    return [
        EventStream(moment(row["time_created"]), partial(_of_session, db, row, tally, is_v2=is_v2))
        for row, is_v2 in rows.values()
    ]


def _opened(path: Path) -> sqlite3.Connection:
    """Open the database for reading. A database without a write-ahead log, or with an empty one, is
    opened as immutable, so that SQLite creates no files beside it."""
    log = Path(f"{path}-wal")
    is_idle = not log.exists() or not log.stat().st_size
    quoted = quote(str(path.absolute()))
    return sqlite3.connect(f"file:{quoted}?mode=ro{'&immutable=1' if is_idle else ''}", uri=True)


def _of_session(
    db: sqlite3.Connection, row: sqlite3.Row, tally: ReadTally, *, is_v2: bool
) -> Iterator[SessionEvent]:
    # Some databases do not record the version that wrote a session.
    if "version" in row.keys() and isinstance(row["version"], str):  # noqa: SIM118
        tally.version = row["version"]
    draft = SessionDraft(str(row["id"]), "opencode", tally, folder(row["directory"]))
    if is_v2:
        yield from closed(_messages(db, draft))
        return
    messages = (
        ({"time": {"created": created}, **json_table(message)}, [json_table(part)])
        for _, created, message, part in db.execute(_PARTS, (row["id"],))
    )
    yield from closed(_events(draft, messages))


def _messages(db: sqlite3.Connection, draft: SessionDraft) -> Iterator[SessionEvent]:
    for kind, created, data in db.execute(_MESSAGES_V2, (draft.session,)):
        draft.tally.records += 1
        message = json_table(data)
        draft.now = moment(table(message.get("time")).get("created")) or moment(created)
        yield from _of_message(draft, kind, message)


def _recognises(path: Path, head: bytes) -> bool:
    if path.suffix == ".db":
        return head.startswith(b"SQLite format 3\0") and path.stem.startswith("opencode")
    if path.suffix != ".json":
        return False
    return path.name.startswith("ses_") or (b'"info"' in head and b'"ses_' in head)


FORMAT = TranscriptFormat(
    name="opencode",
    recognises=_recognises,
    read=read,
    written_for="1.18.33",
)
