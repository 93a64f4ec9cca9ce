"""The tables of `sessions.db`: the transcripts that were read, their sessions and turns, and the
postings.

    transcript ──< session ──< turn
                                 └── posting    by term: the keys of turns, and the terms' weights

No transcript is copied here. A turn has the offset of its question in the file, and two masked
excerpts that remain if the host removes the file. All tables can be rebuilt.

A turn's key is its session's number followed by its own number, so that a posting identifies both
in 32 bits. Postings are appended in batches. A turn that has changed is posted again under the same
key. It still contains nearly all of its earlier terms, so the older postings stay.
"""

import sqlite3
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import batched
from typing import Any

from msgspec import Struct, field

from upwell.ground.sqlite.database import Owner
from upwell.ground.sqlite.file import recreate

TURN_BITS = 11
MAX_TURNS = 1 << TURN_BITS
MAX_SESSIONS = 1 << (32 - TURN_BITS)
MAX_BATCHES = 48
"""If there are more batches than this, the postings of each term are merged into one row."""
MAX_CHOICES = 300
"""The maximum number of projects (and likewise of hosts) offered as filters."""
_ITEM = "I"
_IN_CHUNKS = 500


class KnownTranscript(Struct, frozen=True):
    """A transcript that was read up to `size`. The session had `turns` turns, the last of which
    begins at the byte `resume` and may have grown since."""

    no: int
    size: int
    mtime_ns: int
    resume: int
    turns: int
    cwd: str | None


class SessionRow(Struct, frozen=True, kw_only=True):
    """A session. `began` and `ended` are in epoch seconds."""

    no: int
    name: str
    host: str
    project: str
    cwd: str
    began: float
    ended: float
    turns: int
    path: str
    format: str


class TurnRow(Struct, frozen=True, kw_only=True):
    """A turn with its masked excerpts. It begins at the byte `offset` of the transcript. `facts` is
    its part of the session's record (`record.encoded`)."""

    key: int
    at: float
    offset: int
    question: str
    conclusion: str
    facts: bytes

    @property
    def session(self) -> int:
        """The number of the turn's session."""
        return self.key >> TURN_BITS

    @property
    def number(self) -> int:
        """The position of the turn in its session, from 0."""
        return self.key & (MAX_TURNS - 1)


_IS_COMMAND = "question GLOB '/*' AND instr(question, ' ') = 0"


class Listed(Struct, frozen=True):
    """A session in a list, with the masked excerpts of its first question (a bare command such as
    `/clear` only if there is no other) and of its last conclusion."""

    session: SessionRow
    question: str
    conclusion: str


class TurnEntry(Struct, frozen=True, kw_only=True):
    """A turn to store, with the fields of its session, its masked excerpts, its part of the
    session's record (`facts`), and its terms with their weights (`impacts`)."""

    name: str
    host: str
    cwd: str
    project: str
    number: int
    began: float
    ended: float
    offset: int
    digest: int
    question: str
    conclusion: str
    facts: bytes
    impacts: Mapping[int, int]


class TranscriptReading(Struct):
    """A transcript that was read up to `size`. `known` is its stored state before this reading."""

    path: str
    format: str
    size: int
    mtime_ns: int
    known: KnownTranscript | None
    entries: list[TurnEntry] = field(default_factory=list[TurnEntry])


def create(db: sqlite3.Connection) -> None:
    """Create the tables in an empty file."""
    for statement in (
        """CREATE TABLE transcript (
            no INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, format TEXT NOT NULL,
            size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, resume INTEGER NOT NULL)""",
        """CREATE TABLE session (
            no INTEGER PRIMARY KEY, transcript INTEGER NOT NULL, name TEXT NOT NULL,
            host TEXT NOT NULL, project TEXT NOT NULL, cwd TEXT NOT NULL, began REAL NOT NULL,
            ended REAL NOT NULL, turns INTEGER NOT NULL, closed REAL NOT NULL DEFAULT 0,
            UNIQUE (transcript, name))""",
        "CREATE INDEX session_name ON session (name)",
        "CREATE INDEX session_project ON session (project, ended)",
        """CREATE TABLE turn (
            key INTEGER PRIMARY KEY, at REAL NOT NULL, offset INTEGER NOT NULL,
            digest INTEGER NOT NULL, question TEXT NOT NULL, conclusion TEXT NOT NULL,
            facts BLOB NOT NULL, terms BLOB NOT NULL)""",
        "CREATE INDEX turn_digest ON turn (digest)",
        """CREATE TABLE posting (
            term INTEGER NOT NULL, batch INTEGER NOT NULL, keys BLOB NOT NULL,
            impacts BLOB NOT NULL, PRIMARY KEY (term, batch)) WITHOUT ROWID""",
        "CREATE TABLE batch (no INTEGER PRIMARY KEY)",
    ):
        db.execute(statement)


def create_again(db: sqlite3.Connection) -> None:
    """Replace the tables of an earlier version. The next search fills them from the transcripts."""
    for table in ("transcript", "session", "turn", "posting", "batch"):
        db.execute(f"DROP TABLE IF EXISTS {table}")
    create(db)


OWNER = Owner("sessions", [create, create_again, create_again], salvage=recreate)


def known_transcripts(db: sqlite3.Connection) -> dict[str, KnownTranscript]:
    """The transcripts that were read, keyed by path."""
    rows = db.execute(
        "SELECT path, transcript.no, size, mtime_ns, resume, turns, cwd FROM transcript "
        "LEFT JOIN session ON session.transcript = transcript.no GROUP BY transcript.no"
    )
    return {
        path: KnownTranscript(no, size, mtime_ns, resume, turns or 0, cwd or None)
        for path, no, size, mtime_ns, resume, turns, cwd in rows
    }


def put(db: sqlite3.Connection, readings: Sequence[TranscriptReading]) -> None:
    """Store these readings in one transaction, except transcripts that another process has stored
    in the meantime."""
    postings = TurnPostings()
    for reading in readings:
        stored = db.execute(
            "SELECT size, mtime_ns FROM transcript WHERE path = ?", (reading.path,)
        ).fetchone()
        known = reading.known
        if stored == ((known.size, known.mtime_ns) if known else None):
            _put_one(db, reading, postings)
    if postings.is_empty:
        return
    batch = int(db.execute("INSERT INTO batch DEFAULT VALUES RETURNING no").fetchone()[0])
    db.executemany("INSERT INTO posting VALUES (?, ?, ?, ?)", postings.rows(batch))
    if db.execute("SELECT count(*) FROM batch").fetchone()[0] > MAX_BATCHES:
        merge(db)


def _put_one(db: sqlite3.Connection, reading: TranscriptReading, postings: "TurnPostings") -> None:
    last = max(reading.entries, key=lambda entry: entry.number, default=None)
    resume = last.offset if last else reading.known.resume if reading.known else 0
    (no,) = db.execute(
        "INSERT INTO transcript (path, format, size, mtime_ns, resume) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (path) DO UPDATE SET size = excluded.size, mtime_ns = excluded.mtime_ns, "
        "resume = excluded.resume RETURNING no",
        (reading.path, reading.format, reading.size, reading.mtime_ns, resume),
    ).fetchone()
    # If the file became smaller, it holds something else now.
    if reading.known is not None and reading.size < reading.known.size:
        _detach_sessions(db, int(no))
    numbers: dict[str, int] = {}
    for entry in reading.entries:
        session = numbers.get(entry.name)
        if session is None:
            session = numbers[entry.name] = _session(db, int(no), entry)
        if entry.number < MAX_TURNS and session < MAX_SESSIONS:
            _put_turn(db, session, entry, postings)


def _detach_sessions(db: sqlite3.Connection, transcript: int) -> None:
    """Remove the sessions of a transcript. Their rows stay, without turns, so that no other session
    gets their numbers: the postings still name them."""
    rows = db.execute("SELECT no FROM session WHERE transcript = ?", (transcript,)).fetchall()
    for (session,) in rows:
        _drop_turns(db, session)
        db.execute("UPDATE session SET transcript = ? WHERE no = ?", (-session, session))


def _session(db: sqlite3.Connection, transcript: int, entry: TurnEntry) -> int:
    row = db.execute(
        "INSERT INTO session (transcript, name, host, project, cwd, began, ended, turns) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, 0) ON CONFLICT (transcript, name) DO UPDATE "
        "SET name = excluded.name RETURNING no",
        (
            *(transcript, entry.name, entry.host, entry.project, entry.cwd),
            *(entry.began, entry.ended),
        ),
    ).fetchone()
    return int(row[0])


def _put_turn(
    db: sqlite3.Connection, session: int, entry: TurnEntry, postings: "TurnPostings"
) -> None:
    """Store a turn, unless another session of the project already contains it or it has not
    changed. Anybody can write a history that repeats a turn, so no history stands in for the
    transcript of a host."""
    key = session << TURN_BITS | entry.number
    others = db.execute(
        f"SELECT key FROM turn JOIN session ON session.no = turn.key >> {TURN_BITS} "
        "WHERE digest = ? AND project = ? AND (host = ? OR ? = 'specstory')",
        (entry.digest, entry.project, entry.host, entry.host),
    ).fetchall()
    if others and (key,) not in others:
        return
    db.execute(
        "UPDATE session SET ended = max(ended, ?), turns = max(turns, ?) WHERE no = ?",
        (entry.ended, entry.number + 1, session),
    )
    # A turn that gains only files or errors gains terms.
    impacts = repr(sorted(entry.impacts.items())).encode()
    terms = blake2b(impacts, digest_size=8).digest()
    row = (
        *(entry.began, entry.offset, entry.digest, entry.question, entry.conclusion),
        *(entry.facts, terms),
    )
    stored = db.execute(
        "SELECT at, offset, digest, question, conclusion, facts, terms FROM turn WHERE key = ?",
        (key,),
    ).fetchone()
    if stored != row:
        db.execute("INSERT OR REPLACE INTO turn VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (key, *row))
        postings.add(key, entry.impacts)


class TurnPostings:
    """The postings of a batch: for each term, the keys of turns and the term's weights in them."""

    def __init__(self) -> None:
        self._by_term: dict[int, tuple[array[int], bytearray]] = {}

    @property
    def is_empty(self) -> bool:
        """True if there are no postings."""
        return not self._by_term

    def add(self, key: int, impacts: Mapping[int, int]) -> None:
        """Add the terms of a turn."""
        for term, impact in impacts.items():
            posting = self._by_term.get(term)
            if posting is None:
                posting = self._by_term[term] = array(_ITEM), bytearray()
            posting[0].append(key)
            posting[1].append(impact)

    def rows(self, batch: int) -> Iterator[tuple[int, int, bytes, bytes]]:
        """The rows to store, sorted by term."""
        for term in sorted(self._by_term):
            keys, impacts = self._by_term[term]
            yield term, batch, _bytes_of(keys), bytes(impacts)


def postings_of(
    db: sqlite3.Connection, terms: Sequence[int]
) -> dict[int, tuple["array[int]", bytes]]:
    """For each term, the keys of the turns that contain it, and its weight in each of them."""
    postings: dict[int, tuple[array[int], bytearray]] = {}
    for chunk in batched(terms, _IN_CHUNKS):
        marks = ",".join("?" * len(chunk))
        rows = db.execute(f"SELECT term, keys, impacts FROM posting WHERE term IN ({marks})", chunk)
        for term, keys, impacts in rows:
            posting = postings.setdefault(term, (array(_ITEM), bytearray()))
            posting[0].extend(_keys_in(keys))
            posting[1].extend(impacts)
    return {term: (keys, bytes(impacts)) for term, (keys, impacts) in postings.items()}


def merge(db: sqlite3.Connection) -> None:
    """Merge the batches into one. A turn that was posted several times keeps its highest
    weights."""
    db.execute("CREATE TEMP TABLE merged AS SELECT * FROM posting WHERE 0")
    term, weights = None, dict[int, int]()

    def row() -> tuple[int | None, int, bytes, bytes]:
        return term, 1, _bytes_of(array(_ITEM, weights)), bytes(weights.values())

    def rows() -> Iterator[tuple[int | None, int, bytes, bytes]]:
        nonlocal term, weights
        for next_term, keys, impacts in db.execute(
            "SELECT term, keys, impacts FROM posting ORDER BY term, batch"
        ):
            if next_term != term:
                if weights:
                    yield row()
                term, weights = next_term, {}
            for key, impact in zip(_keys_in(keys), impacts, strict=True):
                weights[key] = max(impact, weights.get(key, 0))
        if weights:
            yield row()

    db.executemany("INSERT INTO merged VALUES (?, ?, ?, ?)", rows())
    db.execute("DELETE FROM posting")
    db.execute("INSERT INTO posting SELECT * FROM merged")
    db.execute("DROP TABLE merged")
    db.execute("DELETE FROM batch")
    db.execute("INSERT INTO batch VALUES (1)")


_SESSION_ROW = (
    "SELECT session.no, name, host, project, cwd, began, ended, turns, path, format "
    "FROM session JOIN transcript ON transcript.no = session.transcript "
)


def sessions(db: sqlite3.Connection, numbers: Iterable[int]) -> dict[int, SessionRow]:
    """The sessions with these numbers, keyed by number."""
    by_number: dict[int, SessionRow] = {}
    for chunk in batched(numbers, _IN_CHUNKS):
        marks = ",".join("?" * len(chunk))
        rows = db.execute(f"{_SESSION_ROW} WHERE session.no IN ({marks})", chunk)
        by_number |= {row[0]: _session_row(row) for row in rows}
    return by_number


def session_named(db: sqlite3.Connection, beginning: str) -> list[SessionRow]:
    """At most two sessions whose names begin with this text. One with exactly this name is among
    them."""
    escaped = beginning.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    rows = db.execute(
        f"{_SESSION_ROW} WHERE name LIKE ? ESCAPE '\\' AND turns > 0 ORDER BY name <> ? LIMIT 2",
        (f"{escaped}%", beginning),
    )
    return [_session_row(row) for row in rows]


def listed(
    db: sqlite3.Connection,
    project: str | None,
    host: str | None,
    before: tuple[float, str],
    limit: int,
) -> list[Listed]:
    """A page of the sessions of a project and host, the most recently ended first. `before` is the
    end time and name of the last session on the previous page. A session found in several
    transcripts is listed once."""
    filters = {"project = ?": project, "host = ?": host}
    given = {condition: value for condition, value in filters.items() if value is not None}
    where = "".join(f" AND {condition}" for condition in given)
    of_newest = f"key >= newest.no << {TURN_BITS} AND key < (newest.no + 1) << {TURN_BITS}"
    rows = db.execute(
        f"""SELECT newest.no, name, host, project, cwd, began, ended, turns, path, format,
            coalesce((SELECT question FROM turn WHERE {of_newest}
                ORDER BY {_IS_COMMAND}, key LIMIT 1), ''),
            coalesce((SELECT conclusion FROM turn WHERE {of_newest} AND conclusion != ''
                ORDER BY key DESC LIMIT 1), '')
        FROM (SELECT no, transcript, name, host, project, cwd, began, max(ended) AS ended,
                sum(turns) AS turns
            FROM session WHERE turns > 0{where} GROUP BY name
            HAVING max(ended) < ? OR (max(ended) = ? AND name > ?)
            ORDER BY max(ended) DESC, name LIMIT ?) AS newest
        JOIN transcript ON transcript.no = newest.transcript ORDER BY ended DESC, name""",
        (*given.values(), before[0], *before, limit),
    )
    return [Listed(_session_row(row[:-2]), *row[-2:]) for row in rows]


def choices(db: sqlite3.Connection) -> tuple[list[str], list[str]]:
    """The sessions' projects and hosts, most recently used first."""
    projects, hosts = (
        [
            name
            for (name,) in db.execute(
                f"SELECT {column} FROM session WHERE turns > 0 AND {column} != '' "
                f"GROUP BY {column} ORDER BY max(ended) DESC LIMIT {MAX_CHOICES}"
            )
        ]
        for column in ("project", "host")
    )
    return projects, hosts


def known_names(db: sqlite3.Connection, names: Sequence[str]) -> set[str]:
    """Those of `names` that belong to sessions."""
    known: set[str] = set()
    for chunk in batched(names, _IN_CHUNKS):
        marks = ",".join("?" * len(chunk))
        rows = db.execute(f"SELECT name FROM session WHERE turns > 0 AND name IN ({marks})", chunk)
        known.update(name for (name,) in rows)
    return known


def recorded(db: sqlite3.Connection, name: str) -> list[tuple[SessionRow, TurnRow]]:
    """Every turn of the session with this name, oldest first."""
    rows = db.execute(f"{_SESSION_ROW} WHERE name = ? AND turns > 0", (name,))
    pairs = []
    for session in map(_session_row, rows.fetchall()):
        pairs += [(session, turn) for turn in turns_in(db, session.no)]
    return sorted(pairs, key=lambda pair: (pair[1].at, pair[1].key))


def visible(
    db: sqlite3.Connection, project: str | None, host: str | None, since: float
) -> set[int] | None:
    """The numbers of the sessions that pass the filters: they belong to `project` and `host`, and
    ended at `since` or later. None if there is no filter."""
    conditions = {
        "project = ?": project,
        "host = ?": host,
        "ended >= ?": since or None,
    }
    filters = {condition: value for condition, value in conditions.items() if value is not None}
    if not filters:
        return None
    rows = db.execute(
        f"SELECT no FROM session WHERE {' AND '.join(filters)}", tuple(filters.values())
    )
    return {row[0] for row in rows}


def turns(db: sqlite3.Connection, keys: Iterable[int]) -> dict[int, TurnRow]:
    """Maps these keys to their turns. Unknown keys are left out."""
    by_key: dict[int, TurnRow] = {}
    for chunk in batched(keys, _IN_CHUNKS):
        marks = ",".join("?" * len(chunk))
        rows = db.execute(f"SELECT {_TURN_ROW} FROM turn WHERE key IN ({marks})", chunk)
        by_key |= {row[0]: _turn_row(row) for row in rows}
    return by_key


def turns_in(db: sqlite3.Connection, session: int) -> list[TurnRow]:
    """The turns of a session, oldest first."""
    first = session << TURN_BITS
    rows = db.execute(
        f"SELECT {_TURN_ROW} FROM turn WHERE key >= ? AND key < ? ORDER BY key",
        (first, first + MAX_TURNS),
    )
    return [_turn_row(row) for row in rows]


def past(
    db: sqlite3.Connection,
    project: str | None,
    since: float,
    now: float,
    quiet_seconds: float,
    limit: int,
) -> list[SessionRow]:
    """The sessions of a project that ended at `since` or later and are over, the most recently
    ended first. A session is over if its host said so, or if it has been quiet for so long. None
    stands for every project."""
    where, values = ("project = ? AND ", (project,)) if project is not None else ("", ())
    rows = db.execute(
        f"{_SESSION_ROW} WHERE {where}turns > 0 AND ended BETWEEN ? AND ? "
        "AND (ended <= ? OR closed >= ended) ORDER BY ended DESC, session.no LIMIT ?",
        (*values, since, now, now - quiet_seconds, limit),
    )
    return [_session_row(row) for row in rows]


def close(db: sqlite3.Connection, name: str, at: float) -> None:
    """Note that the host ended the session with this name."""
    db.execute("UPDATE session SET closed = max(ended, ?) WHERE name = ?", (at, name))


def counts(db: sqlite3.Connection) -> tuple[int, int]:
    """The number of sessions and of turns."""
    (sessions,) = db.execute("SELECT count(*) FROM session WHERE turns > 0").fetchone()
    (turns,) = db.execute("SELECT count(*) FROM turn").fetchone()
    return sessions, turns


def drop_oldest(db: sqlite3.Connection, most: int) -> None:
    """Remove the turns of the sessions that ended first, until at most `most` turns remain."""
    (turns,) = db.execute("SELECT count(*) FROM turn").fetchone()
    for (no,) in db.execute("SELECT no FROM session ORDER BY ended").fetchall():
        if turns <= most:
            return
        turns -= _drop_turns(db, no)


def folders(db: sqlite3.Connection) -> list[str]:
    """The folders of the sessions that have turns."""
    rows = db.execute("SELECT DISTINCT cwd FROM session WHERE turns > 0 AND cwd <> ''")
    return [cwd for (cwd,) in rows]


def drop_folders(db: sqlite3.Connection, folders: Sequence[str]) -> None:
    """Remove the turns of the sessions in these folders. The rows of the sessions stay, because
    later turns of the same transcripts need their folder."""
    for folder in folders:
        for (no,) in db.execute("SELECT no FROM session WHERE cwd = ?", (folder,)).fetchall():
            _drop_turns(db, no)


def _drop_turns(db: sqlite3.Connection, session: int) -> int:
    """Remove the turns of a session, and return how many there were."""
    first = session << TURN_BITS
    deleted = db.execute("DELETE FROM turn WHERE key >= ? AND key < ?", (first, first + MAX_TURNS))
    db.execute("UPDATE session SET turns = 0 WHERE no = ?", (session,))
    return deleted.rowcount


def _session_row(row: Sequence[Any]) -> SessionRow:
    names = ("no", "name", "host", "project", "cwd", "began", "ended", "turns", "path", "format")
    return SessionRow(**dict(zip(names, row, strict=True)))


_TURN_ROW = "key, at, offset, question, conclusion, facts"


def _turn_row(row: Sequence[Any]) -> TurnRow:
    return TurnRow(**dict(zip(_TURN_ROW.split(", "), row, strict=True)))


def _bytes_of(keys: "array[int]") -> bytes:
    if sys.byteorder == "big":
        keys = array(_ITEM, keys)
        keys.byteswap()
    return keys.tobytes()


def _keys_in(data: bytes) -> "array[int]":
    keys = array(_ITEM)
    keys.frombytes(data)
    if sys.byteorder == "big":
        keys.byteswap()
    return keys
