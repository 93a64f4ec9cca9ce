"""Writing: a memory's row and everything that is derived from it, in the caller's transaction."""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from upwell.ground.text.anchors import file_stem, path_parts, relative_to, symbol_keys
from upwell.ground.types import Memory
from upwell.memory.rows import (
    COLUMNS,
    from_row,
    ranges,
    scope_number,
    scope_of,
    text_of,
    to_row,
)
from upwell.memory.schema import SEQUENCE_BITS
from upwell.memory.terms import Indexed, counted, indexed, sound

_MARKS = ",".join("?" * (len(COLUMNS.split(",")) + 3))


@dataclass(slots=True)
class Tally:
    """What a batch changes in the counts of one scope."""

    memories: int = 0
    words: int = 0
    stems: Counter[str] = field(default_factory=Counter)
    anchors: Counter[str] = field(default_factory=Counter)


def insert(
    db: sqlite3.Connection, memories: Sequence[Memory], around: Mapping[str, str] | None = None
) -> list[int]:
    """Keep these memories, each complete with id, hash and times. One whose id is taken replaces
    what had it. Returns their numbers. `around` has, by id, words that stand around a memory's
    text (the headings above it): they find it as tags do."""
    numbers: list[int] = []
    tallies: dict[int, Tally] = defaultdict(Tally)
    about: list[tuple[int, str]] = []
    latest = {(memory.tenant, memory.id): place for place, memory in enumerate(memories)}
    for place, memory in enumerate(memories):
        if latest[memory.tenant, memory.id] != place:
            numbers.append(0)
            continue
        n = _number(db, memory)
        numbers.append(n)
        parts, keys = indexed(memory, (around or {}).get(memory.id, "")), anchor_keys(memory)
        _write(db, n, memory, parts, keys)
        _count(tallies[scope_of(n)], parts, keys, 1)
        about += [(n, key) for key in keys]
    for scope, tally in tallies.items():
        _apply(db, scope, tally)
    _join(db, about)
    return numbers


def remove(db: sqlite3.Connection, n: int) -> None:
    """Take a memory out of its row and of every index."""
    text, extra, joined = db.execute(
        "SELECT text, extra, keys FROM memory WHERE n = ?", (n,)
    ).fetchone()
    parts = Indexed(sound(text_of(text)), extra)
    keys = joined.split("\n") if joined else []
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
    db.execute("DELETE FROM memory WHERE n = ?", (n,))
    tally = Tally()
    _count(tally, parts, keys, -1)
    _apply(db, scope, tally)
    db.executemany(
        "DELETE FROM anchor WHERE key = ? AND scope = ? AND memories <= 0",
        [(key, scope) for key in keys],
    )
    db.executemany(
        "DELETE FROM term WHERE stem = ? AND scope = ? AND memories <= 0",
        [(stem, scope) for stem in tally.stems],
    )


def number_of(db: sqlite3.Connection, tenant: str, memory_id: str) -> int | None:
    """The number of the memory with this id."""
    row = db.execute(
        "SELECT n FROM memory WHERE tenant = ? AND id = ?", (tenant, memory_id)
    ).fetchone()
    return int(row[0]) if row else None


def by_number(db: sqlite3.Connection, numbers: Iterable[int]) -> dict[int, Memory]:
    """The memories with these numbers; those that are gone are left out."""
    listed = list(numbers)
    found: dict[int, Memory] = {}
    for start in range(0, len(listed), 500):
        chunk = listed[start : start + 500]
        marks = ",".join("?" * len(chunk))
        for row in db.execute(f"SELECT n, {COLUMNS} FROM memory WHERE n IN ({marks})", chunk):
            found[row[0]] = from_row(row[1:])
    return found


def anchor_keys(memory: Memory) -> tuple[str, ...]:
    """Under which keys a memory is joined: for each file its whole path, its last two parts, its
    name and its stem, and each symbol."""
    keys: dict[str, None] = {}
    for path in memory.paths:
        for key in path_keys(relative_to(path, memory.project)):
            keys.setdefault(key)
    for key in symbol_keys(memory.symbols):
        keys.setdefault(f"y:{key}")
    return tuple(sound(key.replace("\n", " ")) for key in keys)


def path_keys(path: str) -> tuple[str, ...]:
    """The keys of one file, strictest first."""
    parts = path_parts(path.lower())
    if not parts:
        return ()
    keys = [f"f:{'/'.join(parts)}"]
    if len(parts) > 1:
        keys.append(f"s:{'/'.join(parts[-2:])}")
    keys += [f"n:{parts[-1]}", f"t:{file_stem(path)}"]
    return tuple(keys)


def _number(db: sqlite3.Connection, memory: Memory) -> int:
    """The number to write it under: the old one while it stays in its scope, else the next."""
    scope = scope_number(db, memory.tenant, memory.project)
    old = number_of(db, memory.tenant, memory.id)
    if old is not None:
        remove(db, old)
        if scope_of(old) == scope:
            return old
    row = db.execute(
        "UPDATE scope SET last = last + 1 WHERE no = ? RETURNING last", (scope,)
    ).fetchone()
    return int(scope << SEQUENCE_BITS | row[0])


def _write(
    db: sqlite3.Connection, n: int, memory: Memory, parts: Indexed, keys: Sequence[str]
) -> None:
    db.execute(
        f"INSERT INTO memory (n, {COLUMNS}, extra, keys) VALUES ({_MARKS})",
        (n, *to_row(memory), parts.extra, "\n".join(keys)),
    )
    db.execute(
        "INSERT INTO words (rowid, body, extra) VALUES (?, ?, ?)", (n, parts.body, parts.extra)
    )


def _count(tally: Tally, parts: Indexed, keys: Sequence[str], sign: int) -> None:
    body, extra = counted(parts.body), counted(parts.extra)
    tally.memories += sign
    tally.words += sign * body.total()
    for stem in body.keys() | extra.keys():
        tally.stems[stem] += sign
    for key in keys:
        tally.anchors[key] += sign


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


def _join(db: sqlite3.Connection, about: Iterable[tuple[int, str]]) -> None:
    db.executemany(
        "INSERT OR IGNORE INTO about SELECT no, ? FROM anchor WHERE key = ? AND scope = ?",
        [(n, key, scope_of(n)) for n, key in about],
    )


def newest(
    db: sqlite3.Connection,
    scopes: Sequence[int],
    condition: str,
    values: Sequence[object],
    *,
    limit: int,
    offset: int = 0,
) -> list[Memory]:
    """Memories of these scopes that meet `condition` (SQL of ours, with marks), newest first."""
    spans = list(ranges(scopes))
    if not spans:
        return []
    within = " OR ".join("n BETWEEN ? AND ?" for _ in spans)
    rows = db.execute(
        f"SELECT {COLUMNS} FROM memory WHERE ({within}) AND {condition} "
        "ORDER BY created_at DESC, n DESC LIMIT ? OFFSET ?",
        (*(edge for span in spans for edge in span), *values, limit, offset),
    )
    return [from_row(row) for row in rows]
