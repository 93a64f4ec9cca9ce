"""Store the vectors of memories in a plain PostgreSQL table, and find the memories nearest to a
question.

As in SQLite (`memory/sqlite/nearness.py`), a search first finds the memories whose vectors share
the most signs with the question's vector, and then compares these vectors exactly. The server
counts the differing signs, which needs no extension. The exact comparison would need one, so it
runs in this process.

For each tenant and model, one process embeds at a time. It holds a lease, which it renews with
every batch. Vectors are stored per model, so processes that switch to another model one by one do
not overwrite each other's vectors. The vectors of a model are deleted if no process has taken its
lease for a week. A database trigger deletes the vectors of a deleted or changed memory.
"""

import asyncio
import hashlib
import secrets
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec import Struct, field

from upwell.ground.clock import Deadline
from upwell.ground.errors import StoreError
from upwell.ground.postgres.connection import Postgres, Rows, Statement
from upwell.ground.trace import LOG
from upwell.ground.types.memory import Query
from upwell.memory.lookups import SEQUENCE_BITS, SHUFFLE_FACTOR, SHUFFLE_PRIME, ranges
from upwell.memory.meaning import (
    BATCH,
    MAX_CHARS,
    DueVector,
    Progress,
    QuestionVectors,
    embed_due,
)
from upwell.memory.postgres.counts import VERSION, PostgresFilter, within
from upwell.memory.ranking.signals import Likeness
from upwell.memory.ranking.terms import Corpus

if TYPE_CHECKING:
    from upwell.ground.llm import Vector
    from upwell.memory.vectors import Floats, Numbers

LEASE_SECONDS = 120.0
"""How long a lease lasts. An endpoint usually embeds a batch in less time, so a running process
keeps its lease."""
UNUSED_SECONDS = 7 * 86_400.0
COMPARED = 120
"""How many of the memories nearest by sign bits are read and compared exactly. Of those that the
search has found in no other way, the best `NEAREST` become candidates."""
MAX_SCANNED = 200_000
"""If more memories than this are visible, only those found by words, files or symbols are
compared."""
_FORM = "with signs"
"""The format of stored vectors. It is part of the model's number, so vectors in another format are
not used, and processes of different versions do not replace each other's vectors."""
SAMPLE_SECONDS = 60.0
"""How long a sample of the tenant's vectors is used."""
_NOW = "extract(epoch FROM clock_timestamp())::float8"
_LEASE = f"""
    INSERT INTO upwell.embedding_model AS old
        (tenant, model, name, dim, used_at, complete, holder, leased_until)
    VALUES (%(tenant)s, %(model)s, %(name)s, %(dim)s, {_NOW}, -1, %(holder)s, {_NOW} + %(lease)s)
    ON CONFLICT (tenant, model) DO UPDATE SET used_at = excluded.used_at,
        holder = excluded.holder, leased_until = excluded.leased_until
    WHERE old.holder = excluded.holder OR old.leased_until < {_NOW}
    RETURNING complete"""
_RELEASE = """
    UPDATE upwell.embedding_model SET leased_until = 0, complete = greatest(complete, %(complete)s)
    WHERE tenant = %(tenant)s AND model = %(model)s AND holder = %(holder)s"""
_DUE = f"""
    SELECT m.n, m.content_hash, left(m.text, {MAX_CHARS}) FROM upwell.memory m
    WHERE m.tenant = %(tenant)s AND m.n > %(after)s AND NOT m.pinned AND NOT EXISTS (
        SELECT FROM upwell.embedding e
        WHERE e.tenant = %(tenant)s AND e.model = %(model)s AND e.n = m.n)
    ORDER BY m.n LIMIT {BATCH}"""
# The row lock delays a writer that replaces the memory, so that the writer's trigger sees the
# vector that it must delete.
_KEEP = """
    INSERT INTO upwell.embedding (tenant, model, n, numbers, code, namespace)
    SELECT %(tenant)s, %(model)s, living.* FROM (
        SELECT m.n, new.numbers, new.code::bit varying, m.namespace FROM upwell.memory m
        JOIN unnest(%(ns)s::bigint[], %(hashes)s::text[], %(numbers)s::bytea[], %(codes)s::text[])
            AS new(n, hash, numbers, code) ON m.n = new.n AND m.content_hash = new.hash
        WHERE m.tenant = %(tenant)s ORDER BY m.n FOR KEY SHARE OF m) AS living
    ON CONFLICT (tenant, model, n) DO UPDATE
    SET numbers = excluded.numbers, code = excluded.code, namespace = excluded.namespace"""
_COUNTS = """
    SELECT (SELECT count(*) FROM upwell.embedding
            WHERE tenant = %(tenant)s AND model = %(model)s),
           (SELECT count(*) FROM upwell.memory WHERE tenant = %(tenant)s AND NOT pinned)"""
_UNUSED = f"""
    SELECT model FROM upwell.embedding_model
    WHERE tenant = %(tenant)s AND used_at < {_NOW} - {UNUSED_SECONDS}"""
_DROP_UNUSED = (
    f"DELETE FROM upwell.embedding WHERE tenant = %(tenant)s AND model IN ({_UNUSED})",
    f"DELETE FROM upwell.embedding_model WHERE tenant = %(tenant)s AND model IN ({_UNUSED})",
)
_SAMPLE = f"""
    SELECT n, numbers FROM upwell.embedding
    WHERE tenant = %(tenant)s AND model = %(model)s AND n = ANY(ARRAY(
        SELECT n FROM upwell.embedding WHERE tenant = %(tenant)s AND model = %(model)s
        ORDER BY n %% {SHUFFLE_PRIME} * {SHUFFLE_FACTOR} %% {SHUFFLE_PRIME}
        LIMIT %(sample)s))"""


class VectorSample(Struct, frozen=True):
    """Random vectors of a tenant, and the numbers of their memories."""

    vectors: "Floats"
    memories: "Numbers"
    at: float = field(default_factory=time.monotonic)


class PostgresQuestion(Struct, frozen=True):
    """The vector of a query's text, and a sample of the tenant's vectors, which shows what cosines
    are usual. `model` is the number of the model."""

    vector: "Vector"
    model: int
    sample: VectorSample

    def nearest(self, corpus: Corpus, keep: PostgresFilter) -> Statement | None:
        """Return the statement that finds the memories whose vectors share the most signs with the
        question's vector. Returns None if the corpus has too many memories."""
        from upwell.memory.vectors import code_of

        if corpus.memories > MAX_SCANNED:
            return None
        spans = list(ranges(corpus.scopes))
        values = {
            **keep.values,
            "model": self.model,
            "code": code_of(self.vector),
            "lows": [low for low, _ in spans],
            "highs": [high for _, high in spans],
        }
        visible = f"AND {within('namespace', keep.namespaces)}" if keep.namespaces else ""
        return Statement(
            f"""SELECT near.n FROM (
                    SELECT e.n, bit_count(e.code # %(code)s::text::bit varying) AS distance
                    FROM unnest(%(lows)s::bigint[], %(highs)s::bigint[]) AS span(low, high)
                    CROSS JOIN LATERAL (
                        SELECT n, code FROM upwell.embedding
                        WHERE tenant = %(tenant)s AND model = %(model)s AND code IS NOT NULL
                            AND n BETWEEN span.low AND span.high {visible} OFFSET 0) AS e
                    ORDER BY distance, e.n LIMIT {COMPARED}) AS near {keep.joined("near")}""",
            values,
        )

    def statement(self, found: str, named: str) -> Statement:
        """Return the statement that reads the vectors of the memories in the SQL array `found`, and
        of the memories directly before and after each memory in the SQL array `named`."""
        return Statement(
            f"""SELECT e.n, e.numbers FROM (
                    SELECT unnest({found}) AS n UNION
                    SELECT own.n + step FROM unnest({named}) AS own(n)
                    CROSS JOIN (VALUES (-1), (1)) AS near(step)
                    WHERE (own.n + step) >> {SEQUENCE_BITS} = own.n >> {SEQUENCE_BITS}) AS listed
                CROSS JOIN LATERAL (
                    SELECT * FROM upwell.embedding e WHERE e.tenant = %(tenant)s
                        AND e.model = %(model)s AND e.n = listed.n OFFSET 0) AS e""",
            {"model": self.model},
        )

    def likeness(self, rows: Rows, scopes: Sequence[int]) -> Likeness | None:
        """Compare the question with the vectors in `rows`. Returns None if `rows` is empty."""
        import numpy as np

        from upwell.memory.vectors import background_of, unpacked, usual_cosines

        if not rows:
            return None
        question = np.asarray(self.vector, dtype=np.float32)
        vectors = unpacked([bytes(numbers) for _, numbers in rows], len(question))
        cosines = dict(zip([n for n, _ in rows], (vectors @ question).tolist(), strict=True))
        sample = self.sample
        mean, spread = usual_cosines(sample.vectors, sample.memories, question, scopes)
        visible = np.isin(sample.memories >> SEQUENCE_BITS, np.asarray(scopes, np.int64))
        others = zip(
            sample.memories[visible].tolist(),
            (sample.vectors[visible] @ question).tolist(),
            strict=True,
        )
        best = sorted((dict(others) | cosines).values(), reverse=True)
        return Likeness(
            cosines=dict(sorted(cosines.items(), key=lambda pair: -pair[1])),
            mean=mean,
            spread=spread,
            background=background_of(best, mean),
        )


class PostgresVectors:
    """A `VectorIndex` over the memories of one tenant."""

    note = (
        f"among more than {MAX_SCANNED:,} memories, searches compare only those that they find by "
        "words, files or symbols"
    )

    def __init__(self, questions: QuestionVectors, postgres: Postgres, tenant: str) -> None:
        self.questions = questions
        self._postgres = postgres
        self._tenant = tenant
        self._holder = secrets.token_hex(8)
        self._samples: dict[tuple[str, int], VectorSample] = {}
        self._complete_at: int | None = None

    async def question(self, query: Query, deadline: Deadline) -> PostgresQuestion | None:
        if not query.texts:
            return None
        vector = await self.questions.vector(query.texts[0], deadline)
        if vector is None:
            return None
        try:
            sample = await self._sample(query.scope.tenant)
        except StoreError as error:
            LOG.warning("searching by words only: %s", error)
            return None
        return None if sample is None else PostgresQuestion(vector, self._model, sample)

    async def catch_up(self, progress: Progress | None = None) -> int:
        (rows,) = await self._postgres.ask(self._tenant, VERSION)
        version = int(rows[0][0]) if rows else None
        if version in (None, self._complete_at) or not await self.questions.load():
            return 0
        (leased,) = await self._postgres.ask(self._tenant, self._leasing())
        if not leased:
            return 0
        complete = int(leased[0][0])
        if complete == version:
            await self._release(complete)
            self._complete_at = version
            return 0
        ended = -1
        try:
            done, is_whole = await embed_due(self, self._due, self._keep, progress)
            if is_whole:
                self._complete_at = ended = version
                await self._postgres.ask(self._tenant, *(Statement(s, {}) for s in _DROP_UNUSED))
        finally:
            await self._release(ended)
        return done

    async def counts(self) -> tuple[int, int]:
        (rows,) = await self._postgres.ask(self._tenant, self._of_model(_COUNTS))
        return int(rows[0][0]), int(rows[0][1])

    @property
    def _model(self) -> int:
        """The model's number: 63 bits of the SHA-256 of its name, its dimension and `_FORM`."""
        embedder = self.questions.embedder
        name = f"{embedder.name}\n{embedder.dim}\n{_FORM}".encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.sha256(name).digest()[:8]) >> 1

    def _of_model(self, sql: str, **values: object) -> Statement:
        return Statement(sql, {"model": self._model, "holder": self._holder, **values})

    def _leasing(self) -> Statement:
        """Take or renew the lease. The row has the last version of the tenant's memories for which
        a process finished embedding. There is none if another process holds the lease."""
        embedder = self.questions.embedder
        return self._of_model(_LEASE, name=embedder.name, dim=embedder.dim, lease=LEASE_SECONDS)

    async def _release(self, complete: int) -> None:
        await self._postgres.ask(self._tenant, self._of_model(_RELEASE, complete=complete))

    async def _keep(self, vectors: Mapping[DueVector, bytes]) -> bool:
        """Store the vectors, and renew the lease. Returns False if it is lost."""
        from upwell.memory.vectors import code_of, unpacked

        numbers = [*vectors.values()]
        values = {
            "ns": [due.n for due in vectors],
            "hashes": [due.hash for due in vectors],
            "numbers": numbers,
            "codes": [code_of(each) for each in unpacked(numbers, self.questions.embedder.dim)],
        }
        _, leased = await self._postgres.ask(
            self._tenant, self._of_model(_KEEP, **values), self._leasing()
        )
        return bool(leased)

    async def _due(self, after: int) -> list[DueVector]:
        (rows,) = await self._postgres.ask(self._tenant, self._of_model(_DUE, after=after))
        return [DueVector(n, hash, text) for n, hash, text in rows]

    async def _sample(self, tenant: str) -> VectorSample | None:
        key = tenant, self._model
        sample = self._samples.get(key)
        if sample and time.monotonic() - sample.at <= SAMPLE_SECONDS:
            return sample
        # Importing numpy takes 100 ms, which must not block the event loop.
        await asyncio.to_thread(import_module, "upwell.memory.vectors")
        import numpy as np

        from upwell.memory.vectors import SAMPLE, unpacked

        (rows,) = await self._postgres.ask(tenant, self._of_model(_SAMPLE, sample=SAMPLE))
        if not rows:
            return None
        vectors = unpacked([bytes(numbers) for _, numbers in rows], self.questions.embedder.dim)
        sample = VectorSample(vectors, np.asarray([n for n, _ in rows], np.int64))
        self._samples[key] = sample
        return sample
