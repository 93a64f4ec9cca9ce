"""What the memories are about: an index of topics in memory (ADR-003 of seed 004).

A memory's topics are its tags, its namespace, and the five words that it says most. The index is
built in the background and looked after at each use: when the database says that somebody has
written, here or in another process, what changed is read anew. Nothing of it is persisted.
"""

import asyncio
import json
import re
import sqlite3
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from upwell.ground.db import Database
from upwell.ground.limits import SYSTEM_CLOCK, Clock
from upwell.ground.project import is_seen
from upwell.ground.text.words import STOP_WORDS, fold
from upwell.ground.types import DEFAULT_TENANT
from upwell.memory.everyday import EVERYDAY_WORDS
from upwell.memory.rows import text_of
from upwell.memory.terms import sound, word_list

MOST_WORDS = 5
MIN_CHARS, MAX_CHARS = 3, 30
"""Of the words of a text (seed 004's origin)."""
SHARED_BY = 2
"""A mere word is listed as a topic when so many memories have it; looked up it always is."""
MAX_READ_CHARS = 4_000
MOST_INDEXED = 10_000
"""The newest memories of each database: a topic is a door, not an archive (the origin's cap)."""
_SLICE = 500
_BETWEEN = re.compile(r"[\s_-]+")
_UNTELLING = frozenset(map(fold, STOP_WORDS)) | EVERYDAY_WORDS


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic: its name, how many memories have it, and in which namespaces they are."""

    name: str
    memory_count: int
    namespaces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Row:
    """What is known of a memory. `stamp` changes when it does; `named` are its tags and namespace,
    `spoken` the words of its text."""

    id: str
    stamp: tuple[str, float]
    project: str | None
    namespace: str
    created_at: float
    expires_at: float | None
    named: frozenset[str]
    spoken: frozenset[str]

    def is_seen(self, project: str | None, namespaces: Sequence[str], now: float) -> bool:
        if self.expires_at is not None and self.expires_at <= now:
            return False
        if namespaces and self.namespace not in namespaces:
            return False
        return is_seen(self.project, project)


@dataclass(slots=True)
class _Index:
    """The topics of one database: the state it was read in, its memories by number, the numbers
    by topic."""

    version: tuple[int, int] | None = None
    rows: dict[int, _Row] = field(default_factory=dict)
    holders: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    def put(self, n: int, row: _Row) -> None:
        self.drop(n)
        self.rows[n] = row
        for topic in row.named | row.spoken:
            self.holders[topic].add(n)

    def drop(self, n: int) -> None:
        row = self.rows.pop(n, None)
        for topic in row.named | row.spoken if row else ():
            self.holders[topic].discard(n)
            if not self.holders[topic]:
                del self.holders[topic]


class Topics:
    """The topics of every memory of a tenant in `databases`, a list that may still grow."""

    def __init__(
        self,
        databases: Sequence[Database],
        *,
        tenant: str = DEFAULT_TENANT,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._databases = databases
        self._tenant = tenant
        self._clock = clock
        self._indexes: dict[int, _Index] = {}
        self._refreshing = asyncio.Lock()

    async def all(self, project: str | None = None, namespaces: Sequence[str] = ()) -> list[Topic]:
        """The topics of what a project sees in these namespaces (in every one, when none is named),
        those of most memories first, then by name.

        Raises:
            StoreError: a database failed.
        """
        await self.refresh()
        now = self._clock.now()
        holders: defaultdict[str, list[_Row]] = defaultdict(list)
        for index in self._indexes.values():
            for row in index.rows.values():
                if row.is_seen(project, namespaces, now):
                    for topic in row.named | row.spoken:
                        holders[topic].append(row)
        listed = [
            _topic(name, rows)
            for name, rows in holders.items()
            if len(rows) >= SHARED_BY or any(name in row.named for row in rows)
        ]
        return sorted(listed, key=lambda topic: (-topic.memory_count, topic.name))

    async def about(
        self, topic: str, project: str | None = None, namespaces: Sequence[str] = ()
    ) -> list[str]:
        """The ids of the memories that have a topic, newest first; none where there is no such.

        Raises:
            StoreError: a database failed.
        """
        await self.refresh()
        now, key = self._clock.now(), normal(topic)
        found = [
            row
            for index in self._indexes.values()
            for n in index.holders.get(key, ())
            if (row := index.rows[n]).is_seen(project, namespaces, now)
        ]
        return [row.id for row in sorted(found, key=lambda row: (-row.created_at, row.id))]

    async def refresh(self) -> None:
        """Take up what was written since the last time."""
        async with self._refreshing:
            for place, database in enumerate(tuple(self._databases)):
                index = self._indexes.setdefault(place, _Index())
                version = await database.data_version()
                if version != index.version:
                    await self._take_up(database, index)
                    index.version = version

    async def _take_up(self, database: Database, index: _Index) -> None:
        stamps = await database.read(lambda db: _stamps(db, self._tenant))
        for n in [n for n in index.rows if n not in stamps]:
            index.drop(n)
        changed = [n for n, s in stamps.items() if n not in index.rows or index.rows[n].stamp != s]
        for start in range(0, len(changed), _SLICE):
            chunk = changed[start : start + _SLICE]
            raw = await database.read(partial(_raw, numbers=chunk))
            for n, row in (await asyncio.to_thread(_read, raw)).items():
                index.put(n, row)


def normal(topic: str) -> str:
    """The one name of a topic: lower case, blanks, `_` and `-` a single `-`."""
    return _BETWEEN.sub("-", sound(topic).strip().lower()).strip("-")


def words_of(text: str) -> frozenset[str]:
    """The words that a text says most, those first said on ties."""
    counts = Counter(
        word
        for word in word_list(sound(text[:MAX_READ_CHARS]))
        if MIN_CHARS <= len(word) <= MAX_CHARS and word not in _UNTELLING and not word.isdigit()
    )
    return frozenset(sys.intern(word) for word, _ in counts.most_common(MOST_WORDS))


def _topic(name: str, rows: Sequence[_Row]) -> Topic:
    return Topic(name, len(rows), tuple(sorted({row.namespace for row in rows})))


def _stamps(db: sqlite3.Connection, tenant: str) -> dict[int, tuple[str, float]]:
    rows = db.execute(
        "SELECT n, id, updated_at FROM memory WHERE tenant = ? ORDER BY created_at DESC LIMIT ?",
        (tenant, MOST_INDEXED),
    )
    return {n: (memory_id, updated_at) for n, memory_id, updated_at in rows}


def _raw(db: sqlite3.Connection, numbers: Sequence[int]) -> list[Any]:
    marks = ",".join("?" * len(numbers))
    return db.execute(
        "SELECT n, id, updated_at, project, namespace, created_at, expires_at, tags, text "
        f"FROM memory WHERE n IN ({marks})",
        tuple(numbers),
    ).fetchall()


def _read(raw: Iterable[Any]) -> Mapping[int, _Row]:
    return {
        n: _Row(
            id=memory_id,
            stamp=(memory_id, updated_at),
            project=project or None,
            namespace=namespace,
            created_at=created_at,
            expires_at=expires_at,
            named=frozenset(filter(None, map(normal, [namespace, *json.loads(tags)]))),
            spoken=words_of(text_of(text)),
        )
        for n, memory_id, updated_at, project, namespace, created_at, expires_at, tags, text in raw
    }
