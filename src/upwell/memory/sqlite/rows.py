"""The tables of `memory.db` that hold memories, and their indexes. Memories are converted to rows
and back, and written with everything derived from them, in the caller's transaction.

    scope ──< memory >── words (FTS5)      a memory's number `n` holds tenant, project and sequence
                │                          in one integer: the memories of a project are a range
                ├──< about >── anchor      exact joins with files and symbols
                ├──< memory_trigger        the situations in which a memory surfaces
                └── term                   how many memories in a scope contain a stem
    background                             null scores of each scope
    trash                                  deleted memories, kept for 30 days

`words`, `anchor`, `about`, `memory_trigger` and `term` are derived from `memory` and can be
rebuilt. Two columns of `memory` are also derived. `extra` contains words that are not separate
words of the text, such as the parts of an identifier, and `keys` contains join keys, one per line.
Both are stored so that searches do not have to derive them for every candidate.

SQLite cannot store text with lone surrogates, which JSON escapes can produce. Such text is stored
as bytes and comes back unchanged.
"""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import batched
from typing import Any

from upwell.ground.project import owners_of
from upwell.ground.types.memory import Memory, Scope
from upwell.ground.types.rpc import EVERY, PRIVATE
from upwell.memory.lookups import SEQUENCE_BITS, TOKENIZER, Tally, ranges, scope_of
from upwell.memory.ranking.signals import anchor_keys
from upwell.memory.ranking.terms import IndexedText, indexed, sound
from upwell.memory.records import DETAILS, details_of, from_details, is_text

PROJECT_BITS = 18
"""The number of bits that identify the project in a memory's number. Of the number's 63 bits, 34
are for the sequence within the project (`memory/lookups.py: SEQUENCE_BITS`), 18 for the project and
the rest for the tenant. This allows 17 billion memories per project, 262,143 projects per tenant,
and 2,047 tenants."""


def create_tables(db: sqlite3.Connection) -> None:
    for statement in (
        """CREATE TABLE scope (
            no INTEGER PRIMARY KEY, tenant TEXT NOT NULL, project TEXT NOT NULL,
            memories INTEGER NOT NULL DEFAULT 0, words INTEGER NOT NULL DEFAULT 0,
            last INTEGER NOT NULL DEFAULT 0, UNIQUE (tenant, project))""",
        """CREATE TABLE memory (
            n INTEGER PRIMARY KEY, tenant TEXT NOT NULL, id TEXT NOT NULL,
            namespace TEXT NOT NULL, text NOT NULL, tags TEXT NOT NULL,
            paths TEXT NOT NULL, symbols TEXT NOT NULL, project TEXT NOT NULL,
            source TEXT NOT NULL, first_line INTEGER, last_line INTEGER,
            door TEXT NOT NULL, server TEXT NOT NULL, tool TEXT NOT NULL, session TEXT NOT NULL,
            trust TEXT NOT NULL, pinned INTEGER NOT NULL, supersedes TEXT, expires_at REAL,
            content_hash TEXT NOT NULL, created_at REAL NOT NULL, updated_at REAL NOT NULL,
            viewed_at REAL, extra TEXT NOT NULL, keys TEXT NOT NULL, UNIQUE (tenant, id))""",
        "CREATE INDEX memory_hash ON memory (content_hash)",
        "CREATE INDEX memory_created ON memory (created_at)",
        "CREATE INDEX memory_expiry ON memory (expires_at) WHERE expires_at IS NOT NULL",
        "CREATE INDEX memory_pinned ON memory (n) WHERE pinned",
        "CREATE INDEX memory_supersedes ON memory (supersedes) WHERE supersedes IS NOT NULL",
        f"""CREATE VIRTUAL TABLE words USING fts5 (
            body, extra, content = '', tokenize = '{TOKENIZER}')""",
        "INSERT INTO words (words, rank) VALUES ('rank', 'bm25(1.0, 0.5)')",
        """CREATE TABLE term (
            stem TEXT NOT NULL, scope INTEGER NOT NULL, memories INTEGER NOT NULL,
            PRIMARY KEY (stem, scope)) WITHOUT ROWID""",
        """CREATE TABLE anchor (
            no INTEGER PRIMARY KEY, scope INTEGER NOT NULL, key TEXT NOT NULL,
            memories INTEGER NOT NULL DEFAULT 0, UNIQUE (key, scope))""",
        """CREATE TABLE about (
            anchor INTEGER NOT NULL, n INTEGER NOT NULL,
            PRIMARY KEY (anchor, n)) WITHOUT ROWID""",
        """CREATE TABLE background (
            key INTEGER NOT NULL, words INTEGER NOT NULL, mean REAL NOT NULL,
            spread REAL NOT NULL, memories INTEGER NOT NULL,
            PRIMARY KEY (key, words)) WITHOUT ROWID""",
        """CREATE TABLE trash (
            tenant TEXT NOT NULL, id TEXT NOT NULL, deleted_at REAL NOT NULL,
            memory TEXT NOT NULL, PRIMARY KEY (tenant, id)) WITHOUT ROWID""",
    ):
        db.execute(statement)


def add_triggers(db: sqlite3.Connection) -> None:
    """Add the columns `triggers` and `occurrences`. `triggers` are the situations in which a memory
    surfaces, not SQL triggers. `occurrences` is the number of sessions that led to the
    memory."""
    db.execute("ALTER TABLE memory ADD COLUMN triggers NOT NULL DEFAULT '[]'")
    db.execute("ALTER TABLE memory ADD COLUMN occurrences NOT NULL DEFAULT 1")
    db.execute(
        """CREATE TABLE memory_trigger (
            trigger TEXT NOT NULL, n INTEGER NOT NULL,
            PRIMARY KEY (trigger, n)) WITHOUT ROWID"""
    )


MIGRATIONS = (create_tables, add_triggers)
"""The migrations of the tables, oldest first."""


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


_MARKS = ",".join("?" * (len(COLUMNS.split(",")) + 3))


def insert(
    db: sqlite3.Connection, memories: Sequence[Memory], around: Mapping[str, str] | None = None
) -> None:
    """Store these memories, which must have ids, hashes and times. A memory replaces an earlier one
    with the same id. If a batch repeats an id, only the last memory with that id is stored.
    `around` maps ids to words from the context of a memory's text, such as the headings above it.
    Searches treat these words like tags."""
    tallies: dict[int, Tally] = defaultdict(Tally)
    joins: list[tuple[int, str, int]] = []
    triggers: list[tuple[str, int]] = []
    latest = {(memory.tenant, memory.id): memory for memory in memories}
    for memory in latest.values():
        n = _number(db, memory)
        parts, keys = indexed(memory, (around or {}).get(memory.id, "")), anchor_keys(memory)
        db.execute(
            f"INSERT INTO memory (n, {COLUMNS}, extra, keys) VALUES ({_MARKS})",
            (n, *to_row(memory), parts.extra, "\n".join(keys)),
        )
        db.execute(
            "INSERT INTO words (rowid, body, extra) VALUES (?, ?, ?)", (n, parts.body, parts.extra)
        )
        tallies[scope_of(n)].count(parts, keys, 1)
        joins += [(n, key, scope_of(n)) for key in keys]
        triggers += [(sound(trigger), n) for trigger in memory.triggers]
    for scope, tally in tallies.items():
        _apply(db, scope, tally)
    about = "INSERT OR IGNORE INTO about SELECT no, ? FROM anchor WHERE key = ? AND scope = ?"
    db.executemany(about, joins)
    db.executemany("INSERT OR IGNORE INTO memory_trigger VALUES (?, ?)", triggers)


def remove(db: sqlite3.Connection, n: int) -> None:
    text, extra, key_lines, triggers = db.execute(
        "SELECT text, extra, keys, triggers FROM memory WHERE n = ?", (n,)
    ).fetchone()
    parts = IndexedText(sound(text_of(text)), extra)
    keys = key_lines.split("\n") if key_lines else []
    scope = scope_of(n)
    db.execute(
        "INSERT INTO words (words, rowid, body, extra) VALUES ('delete', ?, ?, ?)",
        (n, parts.body, parts.extra),
    )
    db.executemany(
        "DELETE FROM about WHERE n = ? AND anchor = "
        "(SELECT no FROM anchor WHERE key = ? AND scope = ?)",
        [(n, key, scope) for key in keys],
    )
    db.executemany(
        "DELETE FROM memory_trigger WHERE trigger = ? AND n = ?",
        [(sound(trigger), n) for trigger in json.loads(triggers)],
    )
    db.execute("DELETE FROM memory WHERE n = ?", (n,))
    tally = Tally()
    tally.count(parts, keys, -1)
    _apply(db, scope, tally)
    db.executemany(
        "DELETE FROM anchor WHERE key = ? AND scope = ? AND memories <= 0",
        [(key, scope) for key in keys],
    )
    db.executemany(
        "DELETE FROM term WHERE stem = ? AND scope = ? AND memories <= 0",
        [(stem, scope) for stem in tally.stems],
    )


def _number(db: sqlite3.Connection, memory: Memory) -> int:
    """Return the number that the memory already has in the same scope, or the next free one. A
    stored memory with the same id is removed."""
    scope = scope_number(db, memory.tenant, memory.project)
    old = number_of(db, memory.tenant, memory.id)
    if old is not None:
        remove(db, old)
        if scope_of(old) == scope:
            return old
    # The counter may be damaged. If it returned a number that is in use, no new memory could be
    # stored.
    first, beyond = scope << SEQUENCE_BITS, scope + 1 << SEQUENCE_BITS
    row = db.execute(
        "UPDATE scope SET last = 1 + max(CAST(last AS INTEGER), coalesce("
        "(SELECT max(n) FROM memory WHERE n >= ? AND n < ?) - ?, 0)) WHERE no = ? RETURNING last",
        (first, beyond, first, scope),
    ).fetchone()
    return int(first | row[0])


def _apply(db: sqlite3.Connection, scope: int, tally: Tally) -> None:
    db.execute(
        "UPDATE scope SET memories = memories + ?, words = words + ? WHERE no = ?",
        (tally.memories, tally.words, scope),
    )
    db.executemany(
        "INSERT INTO term VALUES (?, ?, ?) ON CONFLICT (stem, scope) "
        "DO UPDATE SET memories = memories + excluded.memories",
        [(stem, scope, change) for stem, change in sorted(tally.stems.items())],
    )
    db.executemany(
        "INSERT INTO anchor (scope, key, memories) VALUES (?, ?, ?) ON CONFLICT (key, scope) "
        "DO UPDATE SET memories = memories + excluded.memories",
        [(scope, key, change) for key, change in sorted(tally.anchors.items())],
    )
