"""The index of past sessions. It keeps `sessions.db` up to date with the transcripts, and searches
it.

The database is created on first use and may be deleted at any time.
"""

import asyncio
import contextlib
import math
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import UsageError
from upwell.ground.names import SESSION_LOCATOR
from upwell.ground.project import project_of
from upwell.ground.secrets.redact import redact
from upwell.ground.sqlite.database import Database, open_database
from upwell.ground.trace import LOG
from upwell.replay.transcripts import Transcript, format_named, own_bytes, transcripts_at
from upwell.sessions import tables
from upwell.sessions.rank import (
    MAX_RANKED,
    digest_of,
    error_terms,
    impacts_of,
    named_file,
    question_terms,
    ranked,
    tallies,
    with_priors,
)
from upwell.sessions.record import encoded, facts_of, telling
from upwell.sessions.tables import (
    KnownTranscript,
    Listed,
    SessionRow,
    TranscriptReading,
    TurnEntry,
    TurnRow,
)
from upwell.sessions.turns import Turn, turns_of

CHUNK_BYTES, CHUNK_FILES = 16_000_000, 200
"""One transaction covers about this many bytes of transcripts, and at most this many files. An
interruption loses at most one transaction."""
MAX_TURNS = 400_000
"""The maximum number of turns in all sessions together. The oldest sessions are dropped first."""
MAX_STORED_CHARS = 200
"""Session names are truncated to this length."""
QUESTION_CHARS, CONCLUSION_CHARS = 200, 400
"""The maximum lengths of the excerpts."""

Progress = Callable[[int, int], None]
Excludes = Callable[[str], bool]


class SessionScope(Struct, frozen=True, kw_only=True):
    """The sessions that a search may see: those of `project` and `host` whose last turn ended at
    `since` or later. None, or 0 for `since`, means no limit. `here` is the project in which the
    question is asked, and its sessions rank higher."""

    project: str | None = None
    host: str | None = None
    since: float = 0.0
    here: str | None = None


class SessionMatch(Struct, frozen=True):
    """A session, and its most relevant turn."""

    session: SessionRow
    turn: TurnRow
    score: float

    @property
    def locator(self) -> str:
        """The identifier by which the turn can be read."""
        return f"{SESSION_LOCATOR}{self.session.name}#{self.turn.number}"


class SessionIndex:
    """The index of past sessions. `transcripts` lists the transcripts that exist now. `excludes`
    returns whether the sessions in a folder must not be indexed. Every method raises `StoreError`
    if the database cannot be read or written."""

    def __init__(
        self,
        path: Path,
        transcripts: Callable[[], Sequence[Transcript]],
        *,
        excludes: Excludes = lambda folder: False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._path = path
        self._transcripts = transcripts
        self._excludes = excludes
        self._clock = clock
        self._opening = asyncio.Lock()
        self._database: Database | None = None

    async def refresh(
        self, show: Progress = lambda done, total: None, seconds: float | None = None
    ) -> bool:
        """Index the new parts of the transcripts. After `seconds`, no further transaction is begun.
        Returns False if time ran out. The next call then continues."""
        # Even a replay needs the real clock here, because reading takes real time.
        ends = SYSTEM_CLOCK.monotonic() + seconds if seconds is not None else None
        transcripts = await asyncio.to_thread(self._transcripts)
        return await self._read(transcripts, show, ends)

    async def read_one(self, path: str) -> None:
        """Index what a session has added to its own transcript, such as at the end of a turn."""
        if own_bytes(path):
            with contextlib.suppress(UsageError):
                await self._read(transcripts_at([Path(path)]), lambda done, total: None, None)

    async def _read(
        self, transcripts: Sequence[Transcript], show: Progress, ends: float | None
    ) -> bool:
        database = await self._open()
        folders = await database.read(tables.folders)
        if excluded := [folder for folder in folders if self._excludes(folder)]:
            await database.write(lambda db: tables.drop_folders(db, excluded))
        known = await database.read(tables.known_transcripts)
        due = await asyncio.to_thread(lambda: list(_due(transcripts, known)))
        total, done = sum(size for _, size in due), 0
        for chunk in _chunks(due):
            if ends is not None and SYSTEM_CLOCK.monotonic() >= ends:
                return False
            readings = await asyncio.to_thread(_read_all, chunk, known, self._excludes)
            await database.write(partial(tables.put, readings=readings))
            done += sum(size for _, size in chunk)
            show(done, total)
        if due:
            await database.write(lambda db: tables.drop_oldest(db, MAX_TURNS))
        return True

    async def search(self, question: str, scope: SessionScope, limit: int) -> list[SessionMatch]:
        """The sessions most relevant to the question, best first. If the question contains an
        error, sessions with the same error are also found, whatever paths and numbers it has."""
        database = await self._open()
        return await database.read(lambda db: self._search(db, question, scope, limit))

    async def changes(self, path: str, scope: SessionScope, limit: int) -> list[SessionMatch]:
        """The turns that changed this file, newest first. `path` is absolute, relative to a
        project, or only a name."""
        database = await self._open()
        return await database.read(lambda db: _changes(db, path, scope, limit))

    async def located(self, locator: str) -> SessionMatch:
        """The turn with this locator, or the first turn if the locator names only a session. Raises
        UsageError if no session matches, several do, or the session has no such turn."""
        database = await self._open()
        return await database.read(lambda db: _located(db, locator))

    async def closing(self, match: SessionMatch) -> SessionMatch | None:
        """The last turn with a conclusion in the session of `match`, if `match` is the session's
        first turn and not that turn itself. A session's first request describes its subject; what
        was settled stands at its end."""
        if match.turn.number or match.session.turns < 2:
            return None
        database = await self._open()
        turns = await database.read(lambda db: tables.turns_in(db, match.session.no))
        last = next((turn for turn in reversed(turns[1:]) if turn.conclusion), None)
        return SessionMatch(match.session, last, match.score) if last else None

    async def listed(
        self, scope: SessionScope, before: tuple[float, str] | None, limit: int
    ) -> list[Listed]:
        """A page of sessions, the most recently ended first. `before` is the end time and name of
        the last session on the previous page; None starts with the newest session."""
        database, start = await self._open(), before or (math.inf, "")
        return await database.read(
            lambda db: tables.listed(db, scope.project, scope.host, start, limit)
        )

    async def choices(self) -> tuple[list[str], list[str]]:
        """The sessions' projects and hosts, most recently used first."""
        return await (await self._open()).read(tables.choices)

    async def known_names(self, names: Sequence[str]) -> set[str]:
        """Those of `names` that belong to sessions in the index."""
        return await (await self._open()).read(lambda db: tables.known_names(db, names))

    async def recorded(self, name: str) -> list[SessionMatch]:
        """Every turn of the session with this name, oldest first. Empty if there is no such
        session."""
        pairs = await (await self._open()).read(lambda db: tables.recorded(db, name))
        return [SessionMatch(session, turn, 0.0) for session, turn in pairs]

    async def add(self, turns: Sequence[Turn]) -> None:
        """Keep the record of a session that is over and that no file on this machine holds, such as
        one in a replay. A search for its words does not find it."""
        if turns:
            entries = [replace(_entry(turn), impacts={}) for turn in turns]
            reading = TranscriptReading(turns[0].session, "", len(turns), 0, None, entries)
            database, ended = await self._open(), max(turn.ended for turn in turns)
            await database.write(lambda db: tables.put(db, [reading]))
            await database.write(lambda db: tables.close(db, entries[0].name, ended))

    async def close(self, session: str) -> None:
        """Note that the host ended this session."""
        at, name = self._clock.now(), session[:MAX_STORED_CHARS]
        await (await self._open()).write(lambda db: tables.close(db, name, at))

    async def counts(self) -> tuple[int, int]:
        """The number of sessions and of turns."""
        return await (await self._open()).read(tables.counts)

    async def aclose(self) -> None:
        """Close the database."""
        if self._database is not None:
            await self._database.aclose()

    def _search(
        self, db: sqlite3.Connection, question: str, scope: SessionScope, limit: int
    ) -> list[SessionMatch]:
        words, exact = question_terms(question), error_terms(question)
        postings = tables.postings_of(db, [*words, *exact])
        visible = tables.visible(db, scope.project, scope.host, scope.since)
        _, turn_count = tables.counts(db)
        best = ranked(tallies(words, exact, postings, turn_count, visible), MAX_RANKED + limit)
        rows = tables.sessions(db, [no for no, _, _ in best])
        known_turns = tables.turns(db, [key for _, _, key in best])
        now = self._clock.now()
        matches = [
            SessionMatch(rows[no], known_turns[key], with_priors(score, rows[no], now, scope.here))
            for no, score, key in best
            if no in rows and key in known_turns
        ]
        return sorted(matches, key=lambda match: -match.score)[:limit]

    async def _open(self) -> Database:
        async with self._opening:
            if self._database is None:
                self._database = await asyncio.to_thread(
                    open_database, self._path, [tables.OWNER], synchronous="NORMAL"
                )
        return self._database


def read_turn(match: SessionMatch) -> Turn | None:
    """The turn as it is in its transcript now. None if the transcript is gone or was replaced."""
    transcript = Transcript(Path(match.session.path), format_named(match.session.format))
    number, offset = match.turn.number, match.turn.offset
    try:
        if offset:
            first = next(turns_of(transcript.events(offset), number), None)
        else:
            own = (event for event in transcript.events() if event.session == match.session.name)
            first = next(islice(turns_of(own), number, None), None)
    except (UsageError, OSError):
        return None
    if first is None or abs(first.began - match.turn.at) > 1.0:
        return None
    return first


def _due(
    transcripts: Sequence[Transcript], known: dict[str, KnownTranscript]
) -> Iterator[tuple[Transcript, int]]:
    due = []
    for transcript in transcripts:
        try:
            info = transcript.path.stat()
        except OSError:
            continue
        old = known.get(str(transcript.path))
        if old is None or (old.size, old.mtime_ns) != (info.st_size, info.st_mtime_ns):
            due.append((info.st_mtime_ns, transcript, info.st_size))
    for _, transcript, size in sorted(due, key=lambda entry: -entry[0]):
        yield transcript, size


def _chunks(due: Sequence[tuple[Transcript, int]]) -> Iterator[list[tuple[Transcript, int]]]:
    chunk: list[tuple[Transcript, int]] = []
    size = 0
    for entry in due:
        chunk.append(entry)
        size += entry[1]
        if size >= CHUNK_BYTES or len(chunk) >= CHUNK_FILES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _read_all(
    chunk: Sequence[tuple[Transcript, int]],
    known: dict[str, KnownTranscript],
    excludes: Excludes,
) -> list[TranscriptReading]:
    readings = []
    for transcript, _ in chunk:
        try:
            readings.append(_read(transcript, known.get(str(transcript.path)), excludes))
        except (UsageError, OSError) as error:
            LOG.info("%s is not indexed: %s", transcript.path, error)
        # Let other threads run.
        time.sleep(0)
    return readings


def _read(
    transcript: Transcript, known: KnownTranscript | None, excludes: Excludes
) -> TranscriptReading:
    """The new turns of a transcript, except those in excluded folders. If the first turn is in an
    excluded folder, the rest is not read."""
    info = transcript.path.stat()
    start, first = 0, 0
    if known and transcript.format.resumes and known.resume > 0 and info.st_size >= known.size:
        start, first = known.resume, max(0, known.turns - 1)
    cwd = known.cwd if known else None
    entries: list[TurnEntry] = []
    for turn in turns_of(transcript.events(start), first):
        turn.cwd = turn.cwd or cwd
        if turn.cwd and excludes(turn.cwd):
            if not entries:
                break
            continue
        entries.append(_entry(turn))
    path, size, mtime_ns = str(transcript.path), info.st_size, info.st_mtime_ns
    return TranscriptReading(path, transcript.format.name, size, mtime_ns, known, entries)


def _entry(turn: Turn) -> TurnEntry:
    project = project_of(turn.cwd)
    return TurnEntry(
        name=turn.session[:MAX_STORED_CHARS],
        host=turn.host,
        cwd=turn.cwd or "",
        project=project or "",
        number=turn.number,
        began=turn.began,
        ended=turn.ended,
        offset=turn.offset,
        digest=digest_of(turn),
        question=_excerpt(turn.question, QUESTION_CHARS),
        conclusion=_conclusion(turn),
        facts=encoded(facts_of(turn, project)),
        impacts=impacts_of(turn),
    )


def _conclusion(turn: Turn) -> str:
    """The masked sentences that tell most, or the beginning if there is no whole sentence."""
    # Masked first, because half a secret would not be recognised.
    best = telling(redact(turn.conclusion)[0], CONCLUSION_CHARS)
    return best or _excerpt(turn.conclusion, CONCLUSION_CHARS)


def _excerpt(text: str, limit: int) -> str:
    """The masked beginning of a text, truncated at a space, because half a secret would not be
    recognised."""
    if len(text) > limit:
        text = text[:limit].rpartition(" ")[0]
    return redact(text)[0]


def _changes(
    db: sqlite3.Connection, path: str, scope: SessionScope, limit: int
) -> list[SessionMatch]:
    term = named_file(path, changed=True)
    posting = tables.postings_of(db, [term]).get(term)
    rows = tables.turns(db, set(posting[0]) if posting else ())
    sessions = tables.sessions(db, {row.session for row in rows.values()})
    visible = tables.visible(db, scope.project, scope.host, scope.since)
    matches = [
        SessionMatch(sessions[row.session], row, 0.0)
        for row in rows.values()
        if row.session in sessions and (visible is None or row.session in visible)
    ]
    return sorted(matches, key=lambda match: (-match.turn.at, -match.turn.key))[:limit]


def _located(db: sqlite3.Connection, locator: str) -> SessionMatch:
    name, _, number = locator.removeprefix(SESSION_LOCATOR).partition("#")
    named = tables.session_named(db, name) if name else []
    exact = [row for row in named if row.name == name]
    if len(exact or named) != 1 or (number and not number.isdecimal()):
        found = "several sessions match" if len(named) > 1 else "no session matches"
        raise UsageError(
            f"{found} {locator!r:.80}", hint="a search in past sessions shows locators"
        )
    session = (exact or named)[0]
    key = session.no << tables.TURN_BITS | min(int(number or 0), tables.MAX_TURNS - 1)
    turn = tables.turns(db, [key]).get(key)
    if turn is None:
        raise UsageError(
            f"{session.name} has no turn {number or 0}", hint=f"it has {session.turns} turns"
        )
    return SessionMatch(session, turn, 0.0)
