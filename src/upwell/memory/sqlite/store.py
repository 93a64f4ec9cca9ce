"""The local store: memories in one SQLite file, found by words, files and symbols."""

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from upwell.ground.clock import SYSTEM_CLOCK, Clock, Deadline
from upwell.ground.errors import StoreError, UsageError
from upwell.ground.sqlite.database import Database, Owner
from upwell.ground.sqlite.file import DamagedFile
from upwell.ground.text.words import counted
from upwell.ground.trace import LOG
from upwell.ground.types.memory import DEFAULT_TENANT, Memory, Query, Scope
from upwell.ground.types.rpc import Ping
from upwell.memory.base import Added, Discarded, WordCounts
from upwell.memory.lookups import neighbours, stemmer, stems_to_count, worthwhile
from upwell.memory.meaning import QuestionVectors
from upwell.memory.ranking.scoring import NOTHING, Pool, Successor
from upwell.memory.ranking.signals import Candidate, Likeness, join_keys
from upwell.memory.ranking.terms import MAX_TEXTS, Corpus
from upwell.memory.records import check, complete, from_json, stamped, to_json
from upwell.memory.sqlite.lookup import (
    SqliteFilter,
    by_anchors,
    by_triggers,
    by_words,
    candidates,
    corpus_seen_by,
    due_for_measuring,
    existing_joins,
    filter_of,
    find_duplicates,
    has_memory_about,
    measure_null_scores,
    memories_with,
    null_scores_of,
    read,
    successors,
)
from upwell.memory.sqlite.rows import (
    COLUMNS,
    MIGRATIONS,
    by_id,
    from_row,
    insert,
    newest,
    number_of,
    remove,
    snapshot,
    visible_scopes,
    within,
)
from upwell.memory.sqlite.vectors import VectorTable
from upwell.memory.team.sharing import for_worktrees

TRASH_SECONDS = 30 * 86_400.0
INLINE_MEMORIES = 5_000
"""Stores of up to this many memories are searched on the event loop, unless vectors are compared.
The lookup takes a few milliseconds, which is no longer than switching to another thread, waiting
for the interpreter there, and switching back."""


class SqliteStore:
    """The `Store` for one tenant, in one database.

    With `questions`, searches also find memories by meaning. Adding a memory does not create its
    vector; only `vectors.catch_up()` does.
    """

    name = "builtin"

    def __init__(
        self,
        database: Database,
        *,
        tenant: str = DEFAULT_TENANT,
        clock: Clock = SYSTEM_CLOCK,
        questions: QuestionVectors | None = None,
    ) -> None:
        self._database = database
        self.vectors = VectorTable(questions, database) if questions else None
        self._tenant = tenant
        self._clock = clock
        self._pinned: dict[tuple[Scope, int], Sequence[Memory]] = {}
        self._pinned_version = (0, 0)

    async def add(self, memories: Sequence[Memory]) -> list[Added]:
        if not memories:
            return []
        own_memories = [self._owned(for_worktrees(memory)) for memory in memories]
        added_memories = complete(own_memories, self._clock.now())

        def store(db: sqlite3.Connection) -> list[Added]:
            duplicates = find_duplicates(db, added_memories)
            insert(db, added_memories)
            return [
                Added(id=memory.id, duplicates=ids)
                for memory, ids in zip(added_memories, duplicates, strict=True)
            ]

        added = await self._database.write(store)
        try:
            await self.measure({memory.project for memory in added_memories})
        except StoreError as error:
            # The memories are stored. Searches use the old null scores until the next addition.
            LOG.warning("cannot measure null scores: %s", error)
        return added

    async def measure(self, projects: Iterable[str | None]) -> None:
        """Measure the null scores of each of these projects, and of all projects together, if they
        have grown enough since the last measurement."""
        scopes = [
            Scope(tenant=self._tenant, project=project)
            for project in dict.fromkeys([*projects, None])
        ]
        for scope in await self._database.read(lambda db: due_for_measuring(db, scopes)):
            await measure_null_scores(self._database, scope)

    async def update(self, memory: Memory) -> None:
        check(memory)
        now = self._clock.now()

        def replace_row(db: sqlite3.Connection) -> None:
            old = by_id(db, self._tenant, [memory.id]).get(memory.id)
            if old is None:
                raise UsageError(f"no memory has the id {memory.id!r}", hint="see `upwell recall`")
            new = replace(self._owned(memory), created_at=old.created_at, updated_at=now)
            insert(db, [stamped(new, now)])

        await self._database.write(replace_row)

    async def delete(self, memory_id: str) -> bool:
        now = self._clock.now()

        def discard(db: sqlite3.Connection) -> bool:
            row = db.execute(
                f"SELECT n, {COLUMNS} FROM memory WHERE tenant = ? AND id = ?",
                (self._tenant, memory_id),
            ).fetchone()
            if row is None:
                return False
            remove(db, row[0])
            _put_in_trash(db, self._tenant, from_row(row[1:]), now)
            return True

        return await self._database.write(discard)

    async def restore(self, memory_id: str) -> bool:
        def restore_row(db: sqlite3.Connection) -> bool:
            row = db.execute(
                "SELECT memory FROM trash WHERE tenant = ? AND id = ?", (self._tenant, memory_id)
            ).fetchone()
            if row is None or number_of(db, self._tenant, memory_id) is not None:
                return False
            insert(db, [from_json(row[0])])
            db.execute("DELETE FROM trash WHERE tenant = ? AND id = ?", (self._tenant, memory_id))
            return True

        return await self._database.write(restore_row)

    async def purge(self, memory_id: str | None = None) -> int:
        """Permanently delete one memory or, without an id, everything that has expired or has been
        in the trash for 30 days. No part of the deleted text remains in the file, unless a long
        read delays its removal. Returns the number of deleted memories."""
        now = self._clock.now()

        def delete_rows(db: sqlite3.Connection) -> int:
            if memory_id is not None:
                n = number_of(db, self._tenant, memory_id)
                if n is not None:
                    remove(db, n)
                sql = "DELETE FROM trash WHERE tenant = ? AND id = ?"
                trashed = db.execute(sql, (self._tenant, memory_id)).rowcount
                return int(n is not None or trashed > 0)
            # The plus sign keeps the query planner from reading all of the tenant's memories.
            expired = db.execute(
                "SELECT n FROM memory WHERE expires_at <= ? AND +tenant = ?", (now, self._tenant)
            ).fetchall()
            for (n,) in expired:
                remove(db, n)
            old = db.execute(
                "DELETE FROM trash WHERE tenant = ? AND deleted_at < ?",
                (self._tenant, now - TRASH_SECONDS),
            )
            return len(expired) + old.rowcount

        count = await self._database.write(delete_rows)
        if count:
            await self.drop_deleted_words()
        return count

    async def drop_deleted_words(self) -> None:
        """Remove the last traces of deleted memories from the file."""
        # FTS5 drops the words of deleted rows when it merges its segments.
        await self._database.write(
            lambda db: db.execute("INSERT INTO words (words) VALUES ('optimize')")
        )
        await self._database.checkpoint()

    async def get(self, memory_id: str) -> Memory | None:
        return next(iter(await self.get_many([memory_id])), None)

    async def get_many(self, ids: Sequence[str]) -> list[Memory]:
        memories = await self._database.read(lambda db: by_id(db, self._tenant, ids))
        now = self._clock.now()
        return [
            memory
            for memory in memories.values()
            if memory.expires_at is None or memory.expires_at > now
        ]

    async def list(self, scope: Scope, *, limit: int = 100, offset: int = 0) -> Sequence[Memory]:
        return await self._database.read(
            self._newest(scope, "1", limit, offset, is_common=not scope.namespaces)
        )

    async def pinned(self, scope: Scope, *, limit: int = 50) -> Sequence[Memory]:
        version, now = await self._database.data_version(), self._clock.now()
        if version != self._pinned_version:
            self._pinned_version, self._pinned = version, {}
        pinned_here = self._pinned  # Another call may replace `_pinned` during the await.
        rules = pinned_here.get((scope, limit))
        if rules is None or any(rule.expires_at and rule.expires_at <= now for rule in rules):
            look = self._newest(scope, "pinned AND trust NOT IN ('agent', 'tool')", limit, 0)
            rules = pinned_here[scope, limit] = await self._database.inline_read(look)
        return rules

    async def trash(self, *, limit: int = 100) -> Sequence[Memory]:
        def look(db: sqlite3.Connection) -> Sequence[Memory]:
            rows = db.execute(
                "SELECT memory FROM trash WHERE tenant = ? ORDER BY deleted_at DESC LIMIT ?",
                (self._tenant, limit),
            )
            return [from_json(text) for (text,) in rows]

        return await self._database.read(look)

    async def discarded(self) -> Sequence[Discarded]:
        rows = await self._database.read(
            lambda db: db.execute(
                "SELECT memory, deleted_at FROM trash WHERE tenant = ?", (self._tenant,)
            ).fetchall()
        )
        return [Discarded(from_json(text), deleted_at) for text, deleted_at in rows]

    async def discard(self, items: Sequence[Discarded]) -> None:
        def put(db: sqlite3.Connection) -> None:
            for item in items:
                n = number_of(db, self._tenant, item.memory.id)
                if n is not None:
                    remove(db, n)
                _put_in_trash(db, self._tenant, self._owned(item.memory), item.deleted_at)

        await self._database.write(put)

    async def superseded(self, ids: Sequence[str]) -> Mapping[str, str]:
        now = self._clock.now()

        def look(db: sqlite3.Connection) -> Mapping[str, str]:
            with snapshot(db):
                scopes = visible_scopes(db, Scope(tenant=self._tenant))
                return {old: head.id for old, head in successors(db, ids, scopes, now).items()}

        return await self._database.read(look)

    async def candidates(self, query: Query, deadline: Deadline) -> Pool:
        query = replace(query, scope=replace(query.scope, tenant=self._tenant))
        if query.file and not query.triggers:
            # For most files that an agent reads, there is no memory, and a search takes ten times
            # as long as this check.
            about = partial(has_memory_about, file=query.file, scope=query.scope)
            if not await self._database.inline_read(about):
                return NOTHING
        now = self._clock.now()
        compare = None
        if self.vectors and query.texts:
            vector = await self.vectors.questions.vector(query.texts[0], deadline)
            compare = partial(self.vectors.look, vector=vector) if vector is not None else None

        def look(db: sqlite3.Connection) -> Pool:
            with snapshot(db):
                return pool_of(db, query, now, deadline, compare)

        def look_if_small(db: sqlite3.Connection) -> Pool | None:
            return look(db) if _size(db, self._tenant) <= INLINE_MEMORIES else None

        pool = None if compare else await self._database.inline_read(look_if_small)
        return await self._database.read(look) if pool is None else pool

    async def changes(self) -> tuple[int, int]:
        return await self._database.data_version()

    async def stamps(self, *, limit: int) -> Mapping[str, float]:
        now = self._clock.now()

        def look(db: sqlite3.Connection) -> Mapping[str, float]:
            rows = db.execute(
                "SELECT id, updated_at FROM memory WHERE tenant = ? "
                "AND (expires_at IS NULL OR expires_at > ?) ORDER BY created_at DESC LIMIT ?",
                (self._tenant, now, limit),
            )
            return dict(rows.fetchall())

        return await self._database.read(look)

    async def word_counts(self, words: Sequence[str]) -> WordCounts:
        stems = dict(zip(words, stemmer().stems(words), strict=True))

        def count(db: sqlite3.Connection) -> WordCounts:
            scopes = visible_scopes(db, Scope(tenant=self._tenant))
            holding = memories_with(db, sorted({*stems.values()}), scopes)
            return WordCounts(
                _size(db, self._tenant), {word: holding[stem] for word, stem in stems.items()}
            )

        return await self._database.inline_read(count)

    async def ping(self) -> Ping:
        try:
            await self._database.look_for_damage()
            count = await self._database.read(lambda db: _size(db, self._tenant))
        except StoreError as error:
            return Ping(ok=False, detail=error.message, hint=error.hint)
        if obstacle := self._database.obstacle:
            return Ping(
                ok=False,
                detail=f"{obstacle.message}; memories can be read but not changed",
                hint=obstacle.hint,
            )
        return Ping(ok=True, detail=counted(count, "memory", "memories"))

    def _owned(self, memory: Memory) -> Memory:
        return replace(memory, tenant=self._tenant)

    def _newest(
        self, scope: Scope, condition: str, limit: int, offset: int, *, is_common: bool = False
    ) -> Callable[[sqlite3.Connection], Sequence[Memory]]:
        scope, now = replace(scope, tenant=self._tenant), self._clock.now()
        condition = f"{condition} AND (expires_at IS NULL OR expires_at > ?)"
        names: tuple[str, ...] = ()
        if scope.namespaces:
            among, names = within("namespace", scope.namespaces)
            condition += f" AND {among}"

        def look(db: sqlite3.Connection) -> Sequence[Memory]:
            values = (now, *names)
            with snapshot(db):
                scopes = visible_scopes(db, scope)
                return newest(
                    db, scopes, condition, values, limit=limit, offset=offset, is_common=is_common
                )

        return look


def _put_in_trash(db: sqlite3.Connection, tenant: str, memory: Memory, deleted_at: float) -> None:
    db.execute(
        "INSERT OR REPLACE INTO trash VALUES (?, ?, ?, ?)",
        (tenant, memory.id, deleted_at, to_json(memory)),
    )


def pool_of(
    db: sqlite3.Connection,
    query: Query,
    now: float,
    deadline: Deadline,
    compare: Callable[..., Likeness | None] | None = None,
) -> Pool:
    """Return the candidates of `query`, and the neighbours of candidates that are turns of a
    conversation, or none if the query sees no memory or the deadline has passed. `compare` is
    `VectorTable.look` with the vector of the query's text."""
    corpus = corpus_seen_by(db, query.scope)
    if not corpus.memories:
        return NOTHING
    keep = filter_of(db, query.scope.namespaces, now)
    lookups = [read(db, text, corpus) for text in query.texts[:MAX_TEXTS] if text.strip()]
    numbers: dict[int, None] = {}
    for lookup in worthwhile(lookups):
        if not deadline.passed():
            numbers.update(dict.fromkeys(by_words(db, lookup, corpus, keep)))
    keys = join_keys(query.paths, query.symbols, query.scope.project)
    joins = existing_joins(db, keys, corpus)
    numbers.update(dict.fromkeys(by_anchors(db, joins, corpus, keep)))
    triggered = by_triggers(db, query.triggers, corpus, keep)
    numbers.update(dict.fromkeys(triggered))
    readings = [lookup.reading for lookup in lookups]
    stems = stems_to_count(readings, joins)
    likeness = None
    if compare:
        others = numbers.keys() | neighbours(numbers)
        likeness = compare(db, scopes=corpus.scopes, namespaces=keep.namespaces, others=others)
    gathered = candidates(db, numbers, stems)
    if likeness:
        gathered |= candidates(db, likeness.cosines.keys() - numbers.keys(), stems, keep)
    turns = [n for n, candidate in gathered.items() if candidate.speaker]
    if turns:
        gathered |= candidates(db, neighbours(turns) - gathered.keys(), stems, keep)
    if deadline.passed():
        return NOTHING
    return Pool(
        candidates=gathered,
        joins=joins,
        triggered=triggered,
        readings=readings,
        corpus=corpus,
        null_scores=null_scores_of(db, query.scope, corpus),
        likeness=likeness,
        successors=_replacements(db, gathered.values(), corpus, keep),
    )


def _replacements(
    db: sqlite3.Connection, replaceable: Iterable[Candidate], corpus: Corpus, keep: SqliteFilter
) -> dict[str, Successor]:
    heads = successors(db, [candidate.id for candidate in replaceable], corpus.scopes, keep.now)
    if not heads:
        return {}
    loaded = candidates(db, {head.n for head in heads.values()}, (), keep)
    return {old: Successor(head.id, loaded.get(head.n)) for old, head in heads.items()}


def _size(db: sqlite3.Connection, tenant: str) -> int:
    sql = "SELECT coalesce(sum(memories), 0) FROM scope WHERE tenant = ?"
    return int(db.execute(sql, (tenant,)).fetchone()[0])


def _salvage(source: DamagedFile, fresh: sqlite3.Connection) -> int:
    """Copy the readable memories that `fresh` lacks. If `source` is a backup, `fresh` already has
    the trash of the damaged file, and what is in there stays deleted."""
    from upwell.ground.sqlite.salvage import copy_table, insert_row

    trashed = set(fresh.execute("SELECT tenant, id FROM trash"))

    def copy(row: Sequence[Any]) -> int:
        memory = from_row(row)
        key = (memory.tenant, memory.id)
        if key in trashed or number_of(fresh, *key) is not None:
            return 0
        insert(fresh, [memory])
        return 1

    saved = 0
    for row in source.rows("memory", COLUMNS, key="n"):
        saved += insert_row(fresh, partial(copy, row[1:]))
    copy_table(source, fresh, "trash")
    return saved


OWNER = Owner("memory", MIGRATIONS, _salvage, oldest=2)
"""The memory tables in a database file."""
