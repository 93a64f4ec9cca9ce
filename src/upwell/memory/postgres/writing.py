"""Convert memories to rows and back, and write them, with everything derived from them, in the
caller's transaction. A write takes two round trips, whatever the number of memories.

A PostgreSQL text cannot contain NUL or lone surrogates. If a memory's text contains them, `raw`
stores its exact bytes and `text` stores a readable form.
"""

import asyncio
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct, field

from upwell.ground.errors import StoreError
from upwell.ground.postgres.connection import Rows, Statement, Transaction
from upwell.ground.postgres.schema import ENSURE_TENANT
from upwell.ground.types.memory import Memory
from upwell.memory.lookups import SEQUENCE_BITS, Tally, scope_of
from upwell.memory.ranking.signals import EXTRA_WEIGHT, anchor_keys
from upwell.memory.ranking.terms import IndexedText, indexed, sound, speaker
from upwell.memory.records import DETAILS, details_of, from_details, with_sound_origin

COLUMNS = f"id, namespace, text, raw, {DETAILS}"
ID, NAMESPACE, TEXT, RAW, EXPIRES, PINNED = (
    COLUMNS.split(", ").index(name)
    for name in ("id", "namespace", "text", "raw", "expires_at", "pinned")
)
BY_ID = f"SELECT {COLUMNS} FROM upwell.memory WHERE tenant = %(tenant)s AND id = ANY(%(ids)s)"
TYPES = (
    "text, text, text, bytea, text, text, text, text, text, integer, integer, text, text, text, "
    "text, text, boolean, text, double precision, text, double precision, double precision, "
    "double precision, text, integer"
)
"""The types of `COLUMNS`, in the same order."""


_MAX_INDEXED_BYTES = 1_000


def indexable(key: str) -> str:
    """Return `key`, or its hash if it is too long for a PostgreSQL index."""
    encoded = key.encode()
    if len(encoded) <= _MAX_INDEXED_BYTES:
        return key
    return f"sha256:{hashlib.sha256(encoded).hexdigest()}"


def to_row(memory: Memory) -> tuple[Any, ...]:
    text = sound(memory.text)
    raw = None if text == memory.text else memory.text.encode("utf-8", "surrogatepass")
    return (memory.id, memory.namespace, text, raw, *details_of(with_sound_origin(memory)))


def from_row(tenant: str, row: Sequence[Any]) -> Memory:
    return from_details(tenant, row[0], row[1], text_of(row), row[4:])


def text_of(row: Sequence[Any]) -> str:
    text, raw = row[TEXT], row[RAW]
    return text if raw is None else bytes(raw).decode("utf-8", "surrogatepass")


LONG_CHARS = 20_000
"""Batches with more characters of text than this are indexed in a thread, so that they do not block
the event loop."""
_SPEAKER_CHARS = 100
_MEMORY = f"n, {COLUMNS}, extra, keys, is_turn"
_MEMORY_TYPES = f"bigint, {TYPES}, text, text, boolean"
_POSTING, _POSTING_TYPES = "stem, n, frequency, length", "text, bigint, real, integer"
_OLD = """
    SELECT n, id, text, extra, keys, triggers FROM upwell.memory
    WHERE tenant = %(tenant)s AND id = ANY(%(ids)s)"""
NEXT_VERSION = Statement(
    "UPDATE upwell.tenant SET version = version + 1 WHERE tenant = %(tenant)s", {}
)
"""Tells all processes that the tenant's memories have changed."""

LOCK_TENANT = Statement("SELECT FROM upwell.tenant WHERE tenant = %(tenant)s FOR UPDATE", {})
"""Makes the tenant's other writers wait until the end of the transaction."""


class Changes(Struct):
    """The rows to write and to remove, and the resulting changes to the counts. `gone` has the
    numbers of memories, and `gone_rows` the keys of rows, by table."""

    memories: list[tuple[Any, ...]] = field(default_factory=list)
    postings: list[tuple[str, int, float, int]] = field(default_factory=list)
    joins: list[tuple[str, int]] = field(default_factory=list)
    triggers: list[tuple[str, int]] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    gone_rows: dict[str, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))
    tallies: dict[int, Tally] = field(default_factory=lambda: defaultdict(Tally))

    def add(self, n: int, memory: Memory) -> None:
        parts, keys = indexed(memory), anchor_keys(memory)
        is_turn = not keys and bool(speaker(memory.text[:_SPEAKER_CHARS]))
        self.memories.append((n, *to_row(memory), parts.extra, "\n".join(keys), is_turn))
        stems, length = self._count(n, parts, keys, 1)
        self.postings += [(stem, n, weight, length) for stem, weight in stems.items()]
        self.joins += [(indexable(key), n) for key in keys]
        self.triggers += [(indexable(sound(trigger)), n) for trigger in memory.triggers]

    def remove(self, row: Sequence[Any]) -> None:
        """Mark a memory and everything derived from it for removal. `row` comes from `_OLD`."""
        n, _, text, extra, key_lines, triggers = row
        keys = key_lines.split("\n") if key_lines else []
        stems, _ = self._count(n, IndexedText(text, extra), keys, -1)
        self.gone.append(n)
        self.gone_rows["posting"] += [(stem, n) for stem in stems]
        self.gone_rows["about"] += [(indexable(key), n) for key in keys]
        names = map(sound, json.loads(triggers))
        self.gone_rows["memory_trigger"] += [(indexable(name), n) for name in names]

    def _count(
        self, n: int, parts: IndexedText, keys: Sequence[str], sign: int
    ) -> tuple[dict[str, float], int]:
        """Add a memory to its scope's counts, or subtract it from them. Returns the weighted
        frequency of each stem, and the length in words, which includes the words in `extra`."""
        body, extra = self.tallies[scope_of(n)].count(parts, map(indexable, keys), sign)
        frequencies = {
            stem: body[stem] + EXTRA_WEIGHT * extra[stem] for stem in body.keys() | extra.keys()
        }
        return frequencies, body.total() + extra.total()


async def insert(transaction: Transaction, tenant: str, memories: Sequence[Memory]) -> None:
    """Store these memories, which must have ids, hashes and times. A memory replaces the stored
    memory with the same id. If `memories` repeats an id, only the last memory with that id is
    stored.
    """
    latest = {memory.id: memory for memory in memories}
    projects = sorted({memory.project or "" for memory in latest.values()})
    scopes, old = await _prepared(transaction, tenant, projects, list(latest))
    last = {no: count for _, no, count in scopes}
    scope_number = {project: no for project, no, _ in scopes}
    building = partial(_replacement, latest.values(), old, last, scope_number)
    chars = sum(len(memory.text) for memory in latest.values()) + sum(len(row[2]) for row in old)
    statements = await asyncio.to_thread(building) if chars > LONG_CHARS else building()
    await transaction.run(*statements)


def _replacement(
    memories: Iterable[Memory],
    old: Rows,
    last: dict[int, int],
    scope_number: Mapping[str, int],
) -> list[Statement]:
    """Return the statements that replace the `old` rows with these memories. Increases the counters
    in `last` for memories that get new numbers."""
    changes = Changes()
    number_of = {}
    for row in old:
        changes.remove(row)
        number_of[row[1]] = row[0]
    for memory in memories:
        scope = scope_number[memory.project or ""]
        n = number_of.get(memory.id)
        if n is None or scope_of(n) != scope:
            last[scope] += 1
            n = scope << SEQUENCE_BITS | last[scope]
        changes.add(n, memory)
    return _statements(changes, last)


async def remove(transaction: Transaction, ids: Sequence[str]) -> int:
    """Remove the memories with these ids and everything derived from them. The trash does not
    change. Returns how many were removed.
    """
    _, old = await transaction.run(LOCK_TENANT, Statement(_OLD, {"ids": list(ids)}))
    changes = Changes()
    for row in old:
        changes.remove(row)
    if old:
        await transaction.run(*_statements(changes, {}))
    return len(old)


async def _prepared(
    transaction: Transaction, tenant: str, projects: Sequence[str], ids: Sequence[str]
) -> tuple[Rows, Rows]:
    """Lock the tenant's row, so that only one writer at a time changes the counts. Creates missing
    scopes. Returns the scopes of these projects and the `_OLD` rows of these ids.
    """
    _, names, _, scopes, old = await transaction.run(
        # Two processes may insert the same tenant at once, so a conflict on either unique key is
        # ignored.
        Statement(ENSURE_TENANT, {"name": tenant}),
        Statement(
            "UPDATE upwell.tenant SET tenant = tenant WHERE tenant = %(tenant)s RETURNING name", {}
        ),
        Statement(
            """INSERT INTO upwell.scope (tenant, no, project)
               SELECT %(tenant)s, coalesce(max_no.no, -1) + row_number() OVER (), missing.project
               FROM (SELECT unnest(%(projects)s::text[]) AS project EXCEPT
                     SELECT project FROM upwell.scope WHERE tenant = %(tenant)s) AS missing
               CROSS JOIN (SELECT max(no) AS no FROM upwell.scope
                           WHERE tenant = %(tenant)s) AS max_no""",
            {"projects": list(projects)},
        ),
        Statement(
            "SELECT project, no, last FROM upwell.scope "
            "WHERE tenant = %(tenant)s AND project = ANY(%(projects)s)",
            {"projects": list(projects)},
        ),
        Statement(_OLD, {"ids": list(ids)}),
    )
    if names[0][0] != tenant:
        raise StoreError(
            f"the tenant name {tenant!r} has the same hash as the name of another tenant",
            hint="choose another name",
        )
    return scopes, old


def _statements(changes: Changes, last: Mapping[int, int]) -> list[Statement]:
    return [
        *_deletions(changes),
        *_counts(changes.tallies, last),
        _insertion("memory", _MEMORY, _MEMORY_TYPES, changes.memories),
        _insertion("posting", _POSTING, _POSTING_TYPES, changes.postings),
        _insertion("about", "key, n", "text, bigint", changes.joins),
        _insertion("memory_trigger", "trigger, n", "text, bigint", changes.triggers),
        NEXT_VERSION,
    ]


def _insertion(table: str, columns: str, types: str, rows: Sequence[tuple[Any, ...]]) -> Statement:
    """Return the statement that inserts these rows. Each column is passed as an array, so one
    statement inserts any number of rows. COPY is not possible under row-level security.
    """
    names = [name.strip() for name in columns.split(",")]
    arrays = [
        f"%({name})s::{type.strip()}[]" for name, type in zip(names, types.split(","), strict=True)
    ]
    values = {name: array([row[index] for row in rows]) for index, name in enumerate(names)}
    return Statement(
        f"INSERT INTO upwell.{table} (tenant, {columns}) "
        f"SELECT %(tenant)s, * FROM unnest({', '.join(arrays)}) ON CONFLICT DO NOTHING",
        values,
    )


def array(values: Sequence[Any]) -> Sequence[Any] | str:
    """Return `values` as an array literal (PostgreSQL documentation, 8.15.2) if they are all
    strings or all numbers, and unchanged otherwise. The driver takes ten times as long to encode a
    list. Long texts have hundreds of thousands of postings, so encoding lists would block the event
    loop.
    """
    kinds = set(map(type, values))
    if kinds == {str}:
        escaped = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
        return "{" + ",".join(f'"{value}"' for value in escaped) + "}"
    if kinds <= {int, float}:
        return "{" + ",".join(map(repr, values)) + "}"
    return values


def _deletions(changes: Changes) -> Iterable[Statement]:
    if not changes.gone:
        return
    yield Statement(
        "DELETE FROM upwell.memory WHERE tenant = %(tenant)s AND n = ANY(%(numbers)s)",
        {"numbers": changes.gone},
    )
    for table, column in (("posting", "stem"), ("about", "key"), ("memory_trigger", "trigger")):
        rows = changes.gone_rows[table]
        yield Statement(
            f"DELETE FROM upwell.{table} t "
            "USING unnest(%(keys)s::text[], %(numbers)s::bigint[]) AS gone(key, n) "
            f"WHERE t.tenant = %(tenant)s AND t.{column} = gone.key AND t.n = gone.n",
            {"keys": array([key for key, _ in rows]), "numbers": array([n for _, n in rows])},
        )


def _counts(tallies: Mapping[int, Tally], last: Mapping[int, int]) -> Iterable[Statement]:
    for scope, tally in tallies.items():
        yield Statement(
            """UPDATE upwell.scope SET memories = memories + %(memories)s,
                   words = words + %(words)s, tokens = tokens + %(tokens)s,
                   last = greatest(last, %(last)s)
               WHERE tenant = %(tenant)s AND no = %(scope)s""",
            {
                "scope": scope,
                "memories": tally.memories,
                "words": tally.words,
                "tokens": tally.tokens,
                "last": last.get(scope, 0),
            },
        )
        for table, column, changed in (
            ("term", "stem", tally.stems),
            ("anchor", "key", tally.anchors),
        ):
            counts = {name: change for name, change in changed.items() if change}
            names, numbers = array(list(counts)), array(list(counts.values()))
            values = {"scope": scope, "names": names, "counts": numbers}
            yield Statement(
                f"""INSERT INTO upwell.{table} AS t (tenant, {column}, scope, memories)
                    SELECT %(tenant)s, name, %(scope)s, count
                    FROM unnest(%(names)s::text[], %(counts)s::bigint[]) AS changed(name, count)
                    ON CONFLICT (tenant, {column}, scope)
                    DO UPDATE SET memories = t.memories + excluded.memories""",
                values,
            )
            if fewer := [name for name, change in counts.items() if change < 0]:
                yield Statement(
                    f"""DELETE FROM upwell.{table} WHERE tenant = %(tenant)s AND scope = %(scope)s
                        AND {column} = ANY(%(names)s) AND memories <= 0""",
                    {"scope": scope, "names": fewer},
                )
