"""Convert memories to rows and back, number their scopes, and store the list of sources.

SQLite cannot store text with lone surrogates, which JSON escapes can produce. Such text is stored
as bytes and comes back unchanged.

The index of the sources' contents can be rebuilt from their list, but the list cannot be rebuilt.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import batched
from typing import Any

from upwell.ground.files import Stamp, stamp
from upwell.ground.project import owners_of
from upwell.ground.sqlite.database import Database, Owner
from upwell.ground.types.memory import Memory, Scope
from upwell.ground.types.rpc import EVERY, PRIVATE
from upwell.memory.lookups import ranges
from upwell.memory.records import DETAILS, details_of, from_details, is_text
from upwell.memory.sources import Source
from upwell.memory.sqlite.schema import PROJECT_BITS

COLUMNS = f"tenant, id, namespace, text, {DETAILS}"


def to_row(memory: Memory) -> tuple[Any, ...]:
    text = memory.text
    stored = text if is_text(text) else text.encode("utf-8", "surrogatepass")
    return (memory.tenant, memory.id, memory.namespace, stored, *details_of(memory))


def from_row(row: Sequence[Any]) -> Memory:
    return from_details(row[0], row[1], row[2], text_of(row[3]), row[4:])


def text_of(value: object) -> str:
    if not isinstance(value, bytes):
        return value if isinstance(value, str) else ""
    try:
        return value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return value.decode("utf-8", "replace")


def scope_number(db: sqlite3.Connection, tenant: str, project: str | None) -> int:
    """Return the number of a tenant's project. A new project gets the tenant's next number."""
    row = db.execute(
        "SELECT no FROM scope WHERE tenant = ? AND project = ?", (tenant, project or "")
    ).fetchone()
    if row:
        return int(row[0])
    latest = db.execute("SELECT max(no) FROM scope WHERE tenant = ?", (tenant,)).fetchone()[0]
    highest = db.execute("SELECT max(no) FROM scope").fetchone()[0]
    if latest is not None:
        number = latest + 1
    else:
        number = 0 if highest is None else ((highest >> PROJECT_BITS) + 1) << PROJECT_BITS
    db.execute(
        "INSERT INTO scope (no, tenant, project) VALUES (?, ?, ?)", (number, tenant, project or "")
    )
    return int(number)


def visible_scopes(db: sqlite3.Connection, scope: Scope) -> list[int]:
    """Return the scopes that a query may see: those of its project and the global one, or all
    scopes of its tenant."""
    condition, values = seen_by(scope)
    rows = db.execute(f"SELECT no FROM scope WHERE {condition} ORDER BY no", values)
    return [row[0] for row in rows]


def seen_by(scope: Scope) -> tuple[str, tuple[str, ...]]:
    """Return an SQL condition for the rows of the `scope` table that a query with this scope may
    see, and the condition's values."""
    if scope.project is None:
        return "tenant = ?", (scope.tenant,)
    return "tenant = ? AND project IN ('', ?, ?, ?)", (scope.tenant, *owners_of(scope.project))


CHUNK = 500
"""The maximum number of memories that one statement looks up by number or id."""


def marks(values: Sequence[object]) -> str:
    """Return question marks for the values in an `IN (…)`."""
    return ",".join("?" * len(values))


def within(column: str, patterns: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return an SQL condition that is true if the namespace in `column` matches one of the
    patterns, and the condition's values. `is_visible()` does the same in Python."""
    exact = list(patterns)
    below = [pattern[:-1] for pattern in patterns if pattern.endswith("/*")]
    parts = [f"{column} IN ({marks(exact)})"]
    parts += [f"instr({column}, ?) = 1"] * len(below)
    if EVERY in patterns:
        parts.append(f"{column} NOT GLOB '{PRIVATE}*'")
    return f"({' OR '.join(parts)})", (*exact, *below)


def number_of(db: sqlite3.Connection, tenant: str, memory_id: str) -> int | None:
    row = db.execute(
        "SELECT n FROM memory WHERE tenant = ? AND id = ?", (tenant, memory_id)
    ).fetchone()
    return int(row[0]) if row else None


def by_number(db: sqlite3.Connection, numbers: Iterable[int]) -> dict[int, Memory]:
    """Load the memories with these numbers; deleted memories are left out."""
    memories: dict[int, Memory] = {}
    for chunk in batched(numbers, CHUNK):
        rows = db.execute(f"SELECT n, {COLUMNS} FROM memory WHERE n IN ({marks(chunk)})", chunk)
        memories.update((row[0], from_row(row[1:])) for row in rows)
    return memories


def by_id(db: sqlite3.Connection, tenant: str, ids: Iterable[str]) -> dict[str, Memory]:
    """Load the memories with these ids; deleted memories are left out. A single statement reads the
    whole row, so that a concurrent deletion cannot come between two reads."""
    memories: dict[str, Memory] = {}
    for chunk in batched(ids, CHUNK):
        rows = db.execute(
            f"SELECT {COLUMNS} FROM memory WHERE tenant = ? AND id IN ({marks(chunk)})",
            (tenant, *chunk),
        )
        memories.update((memory.id, memory) for memory in map(from_row, rows))
    return memories


def newest(
    db: sqlite3.Connection,
    scopes: Sequence[int],
    condition: str,
    values: Sequence[object],
    *,
    limit: int,
    offset: int = 0,
    is_common: bool = False,
) -> list[Memory]:
    """Load memories in these scopes that meet `condition`, newest first. `condition` is trusted SQL
    with placeholders for `values`. `is_common` means that most memories meet the condition."""
    spans = list(ranges(scopes))
    if not spans:
        return []
    # Without the plus sign, SQLite would sort all memories in the scopes. With it, SQLite walks the
    # date index, and soon finds enough memories if most of them qualify.
    number = "n"
    if is_common:
        # At least one memory in four is in these scopes.
        sizes = dict(db.execute("SELECT no, memories FROM scope"))
        if 4 * sum(sizes.get(scope, 0) for scope in scopes) >= sum(sizes.values()):
            number = "+n"
    within = " OR ".join(f"{number} BETWEEN ? AND ?" for _ in spans)
    rows = db.execute(
        f"SELECT {COLUMNS} FROM memory WHERE ({within}) AND {condition} "
        "ORDER BY created_at DESC, n DESC LIMIT ? OFFSET ?",
        (*(edge for span in spans for edge in span), *values, limit, offset),
    )
    return [from_row(row) for row in rows]


@contextmanager
def snapshot(db: sqlite3.Connection) -> Iterator[None]:
    """Read from one snapshot. Concurrent writes are not visible inside this block."""
    if db.in_transaction:
        yield
        return
    db.execute("BEGIN")
    try:
        yield
    finally:
        db.rollback()


class SqliteSources:
    """`Sources` in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> list[Source]:
        rows = await self._database.read(
            lambda db: db.execute("SELECT path, cited, project FROM source ORDER BY no").fetchall()
        )
        return [
            Source(path, cited, project or None)
            for path, cited, project in rows
            if all(isinstance(value, str) for value in (path, cited, project))
        ]

    def stamp(self) -> tuple[Stamp | None, ...]:
        path = str(self._database.path)
        return stamp(path), stamp(f"{path}-wal")

    async def add(self, source: Source) -> None:
        await self._database.write(
            lambda db: db.execute(
                "INSERT INTO source (path, cited, project) VALUES (?, ?, ?) ON CONFLICT (path) "
                "DO UPDATE SET cited = excluded.cited, project = excluded.project",
                (source.path, source.cited, source.project or ""),
            )
        )

    async def remove(self, path: str) -> bool:
        return await self._database.write(
            lambda db: db.execute("DELETE FROM source WHERE path = ?", (path,)).rowcount > 0
        )


def _create(db: sqlite3.Connection) -> None:
    db.execute(
        "CREATE TABLE source (no INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, "
        "cited TEXT NOT NULL, project TEXT NOT NULL)"
    )


OWNER = Owner("sources", [_create])
