"""A team's store. Memories are kept in PostgreSQL and found by their words, files and symbols."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager

from msgspec.structs import replace

from upwell.ground.clock import SYSTEM_CLOCK, Clock, Deadline
from upwell.ground.errors import StoreError, UsageError
from upwell.ground.postgres.connection import Postgres, Statement, Transaction
from upwell.ground.text.words import counted
from upwell.ground.types.memory import DEFAULT_TENANT, Memory, Query, Scope
from upwell.ground.types.rpc import Ping
from upwell.memory.base import Added, Discarded, WordCounts
from upwell.memory.lookups import (
    COMPARED,
    MAX_CHECKED,
    SEQUENCE_BITS,
    are_alike,
    duplicates_of,
    rarest_stems,
    stemmer,
    words_by_stem,
)
from upwell.memory.meaning import QuestionVectors
from upwell.memory.postgres.counts import (
    MAX_OVERVIEWS,
    VERSION,
    Overviews,
    holding,
    namespace_values,
    owners,
    within,
)
from upwell.memory.postgres.lookup import last_of, measure, pool_of, successors_sql
from upwell.memory.postgres.vectors import PostgresVectors
from upwell.memory.postgres.writing import BY_ID, COLUMNS, from_row, insert, remove
from upwell.memory.ranking.scoring import NOTHING, Pool
from upwell.memory.ranking.terms import Corpus
from upwell.memory.records import check, complete, from_json, stamped, to_json
from upwell.memory.team.sharing import addressed

_EXACT = """
    SELECT content_hash, id FROM upwell.memory
    WHERE tenant = %(tenant)s AND project = %(project)s AND content_hash = ANY(%(hashes)s)
    ORDER BY n"""
_HOLDING = """
    SELECT s.no, s.memories, t.stem, t.memories FROM upwell.scope s
    JOIN upwell.term t ON t.tenant = s.tenant AND t.scope = s.no AND t.stem = ANY(%(stems)s)
    WHERE s.tenant = %(tenant)s AND s.project = %(project)s"""
_SHARING = """
    SELECT m.id, m.text FROM (
        SELECT p.n FROM unnest(%(stems)s::text[], %(worths)s::float8[]) AS c(stem, worth)
        JOIN upwell.posting p ON p.tenant = %(tenant)s AND p.stem = c.stem
            AND p.n BETWEEN %(low)s AND %(high)s
        GROUP BY p.n ORDER BY sum(c.worth) DESC, p.n LIMIT %(most)s) AS best
    JOIN upwell.memory m ON m.tenant = %(tenant)s AND m.n = best.n"""


async def find_duplicates(
    postgres: Postgres, tenant: str, memories: Sequence[Memory]
) -> list[tuple[str, ...]]:
    """Return the ids of a few duplicates of each memory in the same project. Raises StoreError if
    the database failed."""
    by_project: dict[str, list[Memory]] = defaultdict(list)
    for memory in memories:
        by_project[memory.project or ""].append(memory)
    exact: dict[str, list[str]] = {}
    near: dict[str, list[str]] = {}
    for project, own in by_project.items():
        values = {"project": project, "hashes": [memory.content_hash for memory in own]}
        (rows,) = await postgres.ask(tenant, Statement(_EXACT, values))
        same: dict[str, list[str]] = defaultdict(list)
        for text_hash, memory_id in rows:
            same[text_hash].append(memory_id)
        exact |= {memory.id: same[memory.content_hash] for memory in own}
        if len(memories) <= MAX_CHECKED:
            near |= await _near(postgres, tenant, project, own)
    return duplicates_of(memories, exact, near)


async def _near(
    postgres: Postgres, tenant: str, project: str, memories: Sequence[Memory]
) -> Mapping[str, list[str]]:
    stems = {memory.id: list(words_by_stem(memory.text)) for memory in memories}
    every = sorted(set().union(*stems.values()))
    (rows,) = await postgres.ask(tenant, Statement(_HOLDING, {"project": project, "stems": every}))
    if not rows:
        return {}
    scope, size = int(rows[0][0]), int(rows[0][1])
    holding = {stem: int(count) for _, _, stem, count in rows}
    corpus = Corpus((scope,), size, size)
    prefixes = {memory_id: rarest_stems(own, holding) for memory_id, own in stems.items()}
    looked_up = [memory for memory in memories if prefixes[memory.id]]
    found = await postgres.ask(
        tenant,
        *(
            Statement(
                _SHARING,
                {
                    "stems": prefixes[memory.id],
                    "worths": [corpus.idf(holding[stem]) for stem in prefixes[memory.id]],
                    "low": scope << SEQUENCE_BITS,
                    "high": ((scope + 1) << SEQUENCE_BITS) - 1,
                    "most": COMPARED,
                },
            )
            for memory in looked_up
        ),
    )
    return {
        memory.id: [other for other, text in near if are_alike(memory.text, text)]
        for memory, near in zip(looked_up, found, strict=True)
    }


_TO_TRASH = """
    INSERT INTO upwell.trash
    SELECT %(tenant)s, * FROM unnest(%(ids)s::text[], %(times)s::float8[], %(memories)s::text[])
    ON CONFLICT (tenant, id) DO UPDATE
    SET deleted_at = excluded.deleted_at, memory = excluded.memory"""
TRASH_SECONDS = 30 * 86_400.0
_LIVING = "(expires_at IS NULL OR expires_at > %(now)s)"
_SEEN = """n >> %(bits)s IN (SELECT no FROM upwell.scope WHERE tenant = %(tenant)s
    AND (%(project)s::text IS NULL OR project IN ('', %(project)s, %(address)s, %(main)s)))"""
_TRASHED = "SELECT memory, deleted_at FROM upwell.trash WHERE tenant = %(tenant)s"
_DROP = "DELETE FROM upwell.trash WHERE tenant = %(tenant)s AND id = %(id)s RETURNING id"
_DROP_OLD = """
    DELETE FROM upwell.trash WHERE tenant = %(tenant)s AND deleted_at < %(before)s RETURNING id"""
_EXPIRED = "SELECT id FROM upwell.memory WHERE tenant = %(tenant)s AND expires_at <= %(now)s"
_SIZE = "SELECT coalesce(sum(memories), 0)::bigint FROM upwell.scope WHERE tenant = %(tenant)s"


class PostgresStore:
    """The `Store` of one tenant. If `questions` is given, searches also find and compare memories
    by meaning.
    """

    name = "postgres"

    def __init__(
        self,
        postgres: Postgres,
        *,
        tenant: str = DEFAULT_TENANT,
        clock: Clock = SYSTEM_CLOCK,
        questions: QuestionVectors | None = None,
    ) -> None:
        self.vectors = PostgresVectors(questions, postgres, tenant) if questions else None
        self._postgres = postgres
        self._tenant = tenant
        self._clock = clock
        self._overviews = Overviews()
        self._rules: dict[tuple[Scope, int], tuple[int, Sequence[Memory]]] = {}

    async def add(self, memories: Sequence[Memory]) -> list[Added]:
        if not memories:
            return []
        own_memories = [self._owned(addressed(memory)) for memory in memories]
        added_memories = complete(own_memories, self._clock.now())
        duplicates = await find_duplicates(self._postgres, self._tenant, added_memories)
        async with self._writing() as transaction:
            await insert(transaction, self._tenant, added_memories)
        await measure(self._postgres, self._tenant, {memory.project for memory in added_memories})
        return [
            Added(id=memory.id, duplicates=ids)
            for memory, ids in zip(added_memories, duplicates, strict=True)
        ]

    async def update(self, memory: Memory) -> None:
        check(memory)
        now = self._clock.now()
        async with self._writing() as transaction:
            old = await self._by_id(transaction, memory.id)
            if old is None:
                raise UsageError(f"no memory has the id {memory.id!r}", hint="see `upwell recall`")
            new = self._owned(addressed(memory))
            new = replace(new, created_at=old.created_at, updated_at=now)
            await insert(transaction, self._tenant, [stamped(new, now)])

    async def delete(self, memory_id: str) -> bool:
        async with self._writing() as transaction:
            memory = await self._by_id(transaction, memory_id)
            if memory is None or not await remove(transaction, [memory_id]):
                return False
            await transaction.run(_in_trash([Discarded(memory, self._clock.now())]))
            return True

    async def restore(self, memory_id: str) -> bool:
        async with self._writing() as transaction:
            trashed, used = await transaction.run(
                Statement(f"{_TRASHED} AND id = %(id)s", {"id": memory_id}),
                Statement(BY_ID, {"ids": [memory_id]}),
            )
            if not trashed or used:
                return False
            await insert(transaction, self._tenant, [from_json(trashed[0][0])])
            await transaction.run(Statement(_DROP, {"id": memory_id}))
            return True

    async def purge(self, memory_id: str | None = None) -> int:
        now = self._clock.now()
        async with self._writing() as transaction:
            if memory_id is not None:
                removed = await remove(transaction, [memory_id])
                (trashed,) = await transaction.run(Statement(_DROP, {"id": memory_id}))
                return int(bool(removed or trashed))
            expired, old = await transaction.run(
                Statement(_EXPIRED, {"now": now}),
                Statement(_DROP_OLD, {"before": now - TRASH_SECONDS}),
            )
            return len(old) + await remove(transaction, [row[0] for row in expired])

    async def get(self, memory_id: str) -> Memory | None:
        return next(iter(await self.get_many([memory_id])), None)

    async def get_many(self, ids: Sequence[str]) -> Sequence[Memory]:
        values = {"ids": list(ids), "now": self._clock.now()}
        return await self._memories(Statement(f"{BY_ID} AND {_LIVING}", values))

    async def list(self, scope: Scope, *, limit: int = 100, offset: int = 0) -> Sequence[Memory]:
        return await self._memories(self._newest_statement(scope, "true", limit, offset))

    async def pinned(self, scope: Scope, *, limit: int = 50) -> Sequence[Memory]:
        scope = replace(scope, tenant=self._tenant)
        version, now = self._overviews.version(self._tenant), self._clock.now()
        if version is not None:
            overview = self._overviews.known(scope, version)
            if overview and not overview.has_pinned:
                return ()
        known = self._rules.get((scope, limit))
        if known is None or version is None or known[0] != version:
            condition = "pinned AND trust NOT IN ('agent', 'tool')"
            reading = self._newest_statement(scope, condition, limit, 0)
            versions, rows = await self._postgres.ask(self._tenant, VERSION, reading)
            version = versions[0][0] if versions else 0
            self._overviews.note(self._tenant, version)
            known = version, [from_row(self._tenant, row) for row in rows]
            self._rules[scope, limit] = known
            if len(self._rules) > MAX_OVERVIEWS:
                del self._rules[next(iter(self._rules))]
        return [rule for rule in known[1] if rule.expires_at is None or rule.expires_at > now]

    async def trash(self, *, limit: int = 100) -> Sequence[Memory]:
        sql = f"{_TRASHED} ORDER BY deleted_at DESC LIMIT %(limit)s"
        (rows,) = await self._postgres.ask(self._tenant, Statement(sql, {"limit": limit}))
        return [from_json(text) for text, _ in rows]

    async def discarded(self) -> Sequence[Discarded]:
        (rows,) = await self._postgres.ask(self._tenant, Statement(_TRASHED, {}))
        return [Discarded(from_json(text), deleted_at) for text, deleted_at in rows]

    async def discard(self, items: Sequence[Discarded]) -> None:
        async with self._writing() as transaction:
            await remove(transaction, [item.memory.id for item in items])
            own = [replace(item, memory=self._owned(item.memory)) for item in items]
            await transaction.run(_in_trash(own))

    async def superseded(self, ids: Sequence[str]) -> Mapping[str, str]:
        values = {"ids": list(ids), "now": self._clock.now(), "lows": [0], "highs": [2**63 - 1]}
        successors = Statement(successors_sql("ANY(%(ids)s)"), values)
        (newer,) = await self._postgres.ask(self._tenant, successors)
        return {old: new for old, new in last_of(newer).items() if old in ids}

    async def candidates(self, query: Query, deadline: Deadline) -> Pool:
        query = replace(query, scope=replace(query.scope, tenant=self._tenant))
        try:
            async with asyncio.timeout(deadline.remaining()):
                question = self.vectors.question(query, deadline) if self.vectors else None
                return await pool_of(
                    self._postgres, self._overviews, query, self._clock.now(), question
                )
        except TimeoutError:
            return NOTHING

    async def changes(self) -> Hashable:
        (rows,) = await self._postgres.ask(self._tenant, VERSION)
        return rows[0][0] if rows else 0

    async def stamps(self, *, limit: int) -> Mapping[str, float]:
        (rows,) = await self._postgres.ask(
            self._tenant,
            Statement(
                f"""SELECT id, updated_at FROM upwell.memory WHERE tenant = %(tenant)s AND {_LIVING}
                    ORDER BY created_at DESC, n DESC LIMIT %(limit)s""",
                {"now": self._clock.now(), "limit": limit},
            ),
        )
        return dict(rows)

    async def word_counts(self, words: Sequence[str]) -> WordCounts:
        stems = dict(zip(words, stemmer().stems(words), strict=True))
        sizes, counts = await self._postgres.ask(
            self._tenant, Statement(_SIZE, {}), holding(None, sorted({*stems.values()}))
        )
        count_of = {stem: int(count) for stem, count in counts}
        return WordCounts(
            int(sizes[0][0]), {word: count_of.get(stem, 0) for word, stem in stems.items()}
        )

    async def ping(self) -> Ping:
        try:
            (rows,) = await self._postgres.ask(self._tenant, Statement(_SIZE, {}))
        except StoreError as error:
            return Ping(ok=False, detail=error.message, hint=error.hint)
        return Ping(ok=True, detail=counted(int(rows[0][0]), "memory", "memories"))

    async def aclose(self) -> None:
        await self._postgres.aclose()

    def _owned(self, memory: Memory) -> Memory:
        return replace(memory, tenant=self._tenant)

    async def _by_id(self, transaction: Transaction, memory_id: str) -> Memory | None:
        (rows,) = await transaction.run(Statement(BY_ID, {"ids": [memory_id]}))
        return from_row(self._tenant, rows[0]) if rows else None

    def _newest_statement(self, scope: Scope, condition: str, limit: int, offset: int) -> Statement:
        if scope.namespaces:
            condition += f" AND {within('namespace', scope.namespaces)}"
        values = {
            **owners(scope.project),
            **namespace_values(scope.namespaces),
            "now": self._clock.now(),
            "bits": SEQUENCE_BITS,
            "limit": limit,
            "offset": offset,
        }
        return Statement(
            f"""SELECT {COLUMNS} FROM upwell.memory
                WHERE tenant = %(tenant)s AND {_SEEN} AND {_LIVING} AND {condition}
                ORDER BY created_at DESC, n DESC LIMIT %(limit)s OFFSET %(offset)s""",
            values,
        )

    async def _memories(self, statement: Statement) -> Sequence[Memory]:
        (rows,) = await self._postgres.ask(self._tenant, statement)
        return [from_row(self._tenant, row) for row in rows]

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[Transaction]:
        """Run a transaction. Forgets the cached version, so that this process sees the changes."""
        try:
            async with self._postgres.transaction(self._tenant) as transaction:
                yield transaction
        finally:
            self._overviews.forget(self._tenant)


def _in_trash(items: Sequence[Discarded]) -> Statement:
    values = {
        "ids": [item.memory.id for item in items],
        "times": [item.deleted_at for item in items],
        "memories": [to_json(item.memory) for item in items],
    }
    return Statement(_TO_TRASH, values)
