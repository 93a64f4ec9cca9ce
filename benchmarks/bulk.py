"""Fills a store with made-up memories faster than `add_many` can. The product's code makes the same
rows, but nothing searches for duplicates.

SQLite gets large transactions. In PostgreSQL a superuser runs COPY without triggers and row-level
security. The indexes are dropped before and made again afterwards. VACUUM and ANALYZE follow, as
autovacuum would run them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import batched
from pathlib import Path
from typing import Any

import psycopg

from upwell.ground.postgres.connection import Postgres
from upwell.ground.postgres.schema import tenant_number
from upwell.ground.sqlite.database import open_database
from upwell.ground.types.memory import Memory, Scope
from upwell.memory.lookups import SEQUENCE_BITS, Tally
from upwell.memory.postgres.lookup import measure_if_due
from upwell.memory.postgres.writing import COLUMNS, Changes
from upwell.memory.records import complete
from upwell.memory.sqlite.lookup import measure_null_scores as measure
from upwell.memory.sqlite.rows import insert
from upwell.memory.sqlite.store import OWNER

BATCH = 20_000
WHOLE = Scope()
_NOW = 1_800_000_000.0
_TABLES = {
    "memory": f"n, {COLUMNS}, extra, keys, is_turn",
    "posting": "stem, n, frequency, length",
    "about": "key, n",
}
_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})


async def fill_sqlite(home: Path, memories: Iterable[Memory]) -> None:
    """Store memories in the `memory.db` of a new home."""
    home.mkdir(parents=True, exist_ok=True)
    database = open_database(home / "memory.db", [OWNER], synchronous="OFF")
    for batch in batched(memories, BATCH):
        rows = complete(batch, _NOW)
        await database.write(lambda db, rows=rows: insert(db, rows))
    await measure(database, WHOLE)
    await database.aclose()


def fill_postgres(
    superuser: str, url: str, tenants: Iterable[tuple[str, Iterable[Memory]]]
) -> None:
    """Store the memories of new tenants in the database at `url`, in which upwell has already made
    its tables. `superuser` is the address with which a superuser opens the same database."""
    with psycopg.connect(superuser, autocommit=True) as connection:
        for name, value in (
            ("session_replication_role", "replica"),
            ("maintenance_work_mem", "1GB"),
            ("synchronous_commit", "off"),
        ):
            connection.execute(f"SET {name} = '{value}'")
        with _without_indexes(connection):
            for tenant, memories in tenants:
                _copy_tenant(connection, tenant, memories)
        connection.execute("VACUUM ANALYZE")


@contextmanager
def _without_indexes(connection: psycopg.Connection) -> Iterator[None]:
    """Drop the indexes and keys of the large tables, and make them again."""
    tables = [[f"upwell.{table}" for table in _TABLES]]
    keys = connection.execute(
        """SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
            FROM pg_constraint WHERE contype IN ('p', 'u') AND conrelid = ANY(%s::regclass[])""",
        tables,
    ).fetchall()
    for table, name, _ in keys:
        connection.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
    indexes = connection.execute(
        """SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index
            WHERE indrelid = ANY(%s::regclass[])""",
        tables,
    ).fetchall()
    for name, _ in indexes:
        connection.execute(f"DROP INDEX {name}")
    yield
    for table, name, definition in keys:
        connection.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}")
    for _, definition in indexes:
        connection.execute(definition)


def _copy_tenant(connection: psycopg.Connection, name: str, memories: Iterable[Memory]) -> None:
    number = tenant_number(name)
    scopes: dict[str, int] = {}
    last: dict[int, int] = defaultdict(int)
    tallies: dict[int, Tally] = defaultdict(Tally)
    for batch in batched(memories, BATCH):
        changes = Changes(tallies=tallies)
        for memory in complete(batch, _NOW):
            scope = scopes.setdefault(memory.project or "", len(scopes))
            last[scope] += 1
            changes.add(scope << SEQUENCE_BITS | last[scope], memory)
        for table, rows in (
            ("memory", changes.memories),
            ("posting", changes.postings),
            ("about", changes.joins),
        ):
            _copy(connection, table, _TABLES[table], number, rows)
    connection.execute(
        "INSERT INTO upwell.tenant (tenant, name, version) VALUES (%s, %s, 1)", [number, name]
    )
    sizes = [
        (no, project, tallies[no].memories, tallies[no].words, tallies[no].tokens, last[no])
        for project, no in scopes.items()
    ]
    _copy(connection, "scope", "no, project, memories, words, tokens, last", number, sizes)
    for table, column, kind in (("term", "stem", "stems"), ("anchor", "key", "anchors")):
        rows = [
            (text, scope, count)
            for scope, tally in tallies.items()
            for text, count in getattr(tally, kind).items()
        ]
        _copy(connection, table, f"{column}, scope, memories", number, rows)


def _copy(
    connection: psycopg.Connection,
    table: str,
    columns: str,
    tenant: int,
    rows: Sequence[tuple[Any, ...]],
) -> None:
    with connection.cursor().copy(f"COPY upwell.{table} (tenant, {columns}) FROM STDIN") as copy:
        for lines in batched(_lines(tenant, rows), 2_000):
            copy.write("".join(lines))


def _lines(tenant: int, rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    for row in rows:
        yield "\t".join((str(tenant), *map(_field, row))) + "\n"


def _field(value: object) -> str:
    if value is None:
        return r"\N"
    if isinstance(value, bool):
        return "t" if value else "f"
    return value.translate(_ESCAPES) if isinstance(value, str) else str(value)


async def measure_null_scores(url: str, tenants: Sequence[str], superuser: str) -> None:
    """Measure the null scores of the first tenant (how well its best memory matches by chance), and
    give them to the other tenants, whose memories are of the same kind."""
    first, *others = tenants
    postgres = Postgres(url)
    try:
        await measure_if_due(postgres, Scope(tenant=first))
    finally:
        await postgres.aclose()
    with psycopg.connect(superuser, autocommit=True) as connection:
        for tenant in others:
            connection.execute(
                """INSERT INTO upwell.null_score SELECT %s, scope, words, mean, spread, memories
                    FROM upwell.null_score WHERE tenant = %s""",
                [tenant_number(tenant), tenant_number(first)],
            )
