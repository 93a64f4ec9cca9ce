"""Recalls the state of the last work: how the past sessions of a project left theirs."""

import asyncio
import sqlite3
from collections import OrderedDict
from heapq import nlargest
from pathlib import Path

from upwell.ground.clock import SYSTEM_CLOCK, Clock, Deadline
from upwell.ground.errors import RecallUnavailable, StoreError
from upwell.ground.sqlite.database import Database, open_database
from upwell.ground.types.memory import Found, Hit, Memory, Query, QuerySource
from upwell.ground.types.principal import is_visible
from upwell.ground.types.rpc import Ping
from upwell.sessions import tables
from upwell.sessions.record import RecordedRequest, SessionRecord, decoded
from upwell.sessions.relation import Past, Relation, Words, is_superseded, past_of, taken_up
from upwell.sessions.state import ID, NAMESPACE, state_of
from upwell.sessions.tables import SessionRow

MAX_SESSIONS, MAX_DAYS = 100, 365
"""Only this many of a project's latest sessions are considered, and none older than this."""
MAX_KNOWN = 400
QUIET_SECONDS = 600.0
"""A session that has been quiet for this long is over, even if its host did not say so."""
_DAY_SECONDS = 86_400.0


class States:
    """`Recall` over the records of past sessions in `sessions.db`. A state is made from a record at
    the time of the search, so nothing is stored twice."""

    name = "states"

    def __init__(self, path: Path, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._path = path
        self._clock = clock
        self._opening = asyncio.Lock()
        self._database: Database | None = None
        self._known: OrderedDict[tuple[int, str, float, int], Past] = OrderedDict()

    async def search(self, query: Query, deadline: Deadline) -> Found:
        """The states that bear on a prompt or an explicit question, best first. A tool call has
        none.

        Raises:
            RecallUnavailable: the index of sessions cannot be read.
        """
        asks = query.source in (QuerySource.MESSAGE, QuerySource.EXPLICIT) and query.texts
        is_here = query.awaited or query.scope.project is not None
        is_seen = is_visible(NAMESPACE, query.scope.namespaces)
        if not (asks and is_here and is_seen and self._path.exists()):
            return Found()
        try:
            database = await self._open()
            hits = await database.read(lambda db: self._hits(db, query))
        except StoreError as error:
            raise RecallUnavailable(error.message, source=self.name, hint=error.hint) from error
        return Found(tuple(hits))

    async def get(self, memory_id: str) -> Memory | None:
        """The state with an id that `search()` returned; None if its session is gone."""
        if not memory_id.startswith(ID) or not self._path.exists():
            return None
        name = memory_id.removeprefix(ID)

        def read(db: sqlite3.Connection) -> Memory | None:
            named = [row for row in tables.session_named(db, name) if row.name == name]
            return state_of(record_at(db, named[0]), self._clock.now()) if named else None

        return await (await self._open()).read(read)

    async def ping(self) -> Ping:
        if not self._path.exists():
            return Ping(ok=True, detail="no past sessions are indexed")
        try:
            sessions, _ = await (await self._open()).read(tables.counts)
        except StoreError as error:
            return Ping(ok=False, detail=error.message, hint=error.hint)
        return Ping(ok=True, detail=f"{sessions} past sessions")

    async def aclose(self) -> None:
        """Close the database."""
        if self._database is not None:
            await self._database.aclose()

    async def _open(self) -> Database:
        async with self._opening:
            if self._database is None:
                self._database = await asyncio.to_thread(
                    open_database, self._path, [tables.OWNER], synchronous="NORMAL"
                )
        return self._database

    def _hits(self, db: sqlite3.Connection, query: Query) -> list[Hit]:
        now, text = self._clock.now(), query.texts[0]
        known = self._past(db, query, now)
        if not known:
            return []
        words = Words(text, known)
        found = [
            (relation, number, place)
            for number, past in enumerate(known)
            for place, relation in [words.relation_of(past, number, now, query.prompts)]
            if relation.score > 0 and not is_superseded(past, known[:number])
        ]
        # Unasked, only the best: the next is mostly an earlier stage of the same work.
        limit = query.limit if query.source is QuerySource.EXPLICIT else 1
        best = nlargest(limit, found, key=lambda row: row[0].score)
        hits = []
        for relation, number, place in best:
            record = known[number].record
            request: RecordedRequest | None = record.requests[place]
            if (later := taken_up(known, number)) is not None:
                record, request = later.record, None
            state = state_of(record, now, request, words.weight_in)
            hits.append(_hit(state, relation, text))
        return hits

    def _past(self, db: sqlite3.Connection, query: Query, now: float) -> list[Past]:
        """The sessions of the project that are over, newest first, but for the one that asks."""
        rows = tables.past(
            db, query.scope.project, now - MAX_DAYS * _DAY_SECONDS, now, QUIET_SECONDS, MAX_SESSIONS
        )
        known = []
        for row in rows:
            if row.name == query.session:
                continue
            key = (row.no, row.name, row.ended, row.turns)
            past = self._known.pop(key, None) or past_of(record_at(db, row))
            self._known[key] = past
            known.append(past)
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return known


def record_at(db: sqlite3.Connection, session: SessionRow) -> SessionRecord:
    """The record of a session, from its turns."""
    requests = [
        RecordedRequest(turn.number, turn.at, turn.question, turn.conclusion, decoded(turn.facts))
        for turn in tables.turns_in(db, session.no)
    ]
    return SessionRecord(
        session.name, session.host, session.project, session.ended, tuple(requests)
    )


def _hit(memory: Memory, relation: Relation, text: str) -> Hit:
    return Hit(
        memory=memory,
        score=relation.score,
        signals={
            "share": relation.share,
            "mass": relation.mass,
            "names": float(relation.names),
            "hours": relation.hours,
            "newer": float(relation.newer),
        },
        matched=(text,),
    )
