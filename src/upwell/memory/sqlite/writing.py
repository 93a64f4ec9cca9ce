"""Write a memory's row and everything derived from it, in the caller's transaction."""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from upwell.ground.types.memory import Memory
from upwell.memory.lookups import SEQUENCE_BITS, scope_of
from upwell.memory.ranking.signals import anchor_keys
from upwell.memory.ranking.terms import IndexedText, indexed, sound
from upwell.memory.sqlite.rows import (
    COLUMNS,
    number_of,
    scope_number,
    text_of,
    to_row,
)
from upwell.memory.stems import Tally

_MARKS = ",".join("?" * (len(COLUMNS.split(",")) + 3))


def insert(
    db: sqlite3.Connection, memories: Sequence[Memory], around: Mapping[str, str] | None = None
) -> list[int]:
    """Store these memories, which must have ids, hashes and times, and return their numbers. A
    memory replaces an earlier one with the same id. If a batch repeats an id, only the last memory
    with that id is stored, and the earlier ones get the number 0. `around` maps ids to words from
    the context of a memory's text, such as the headings above it. Searches treat these words like
    tags."""
    numbers: list[int] = []
    tallies: dict[int, Tally] = defaultdict(Tally)
    joins: list[tuple[int, str]] = []
    triggers: list[tuple[str, int]] = []
    latest = {(memory.tenant, memory.id): index for index, memory in enumerate(memories)}
    for index, memory in enumerate(memories):
        if latest[memory.tenant, memory.id] != index:
            numbers.append(0)
            continue
        n = _number(db, memory)
        numbers.append(n)
        parts, keys = indexed(memory, (around or {}).get(memory.id, "")), anchor_keys(memory)
        _write(db, n, memory, parts, keys)
        tallies[scope_of(n)].count(parts, keys, 1)
        joins += [(n, key) for key in keys]
        triggers += [(sound(trigger), n) for trigger in memory.triggers]
    for scope, tally in tallies.items():
        _apply(db, scope, tally)
    _join(db, joins)
    db.executemany("INSERT OR IGNORE INTO memory_trigger VALUES (?, ?)", triggers)
    return numbers


def remove(db: sqlite3.Connection, n: int) -> None:
    """Remove a memory's row and its entries in every index."""
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


def _write(
    db: sqlite3.Connection, n: int, memory: Memory, parts: IndexedText, keys: Sequence[str]
) -> None:
    db.execute(
        f"INSERT INTO memory (n, {COLUMNS}, extra, keys) VALUES ({_MARKS})",
        (n, *to_row(memory), parts.extra, "\n".join(keys)),
    )
    db.execute(
        "INSERT INTO words (rowid, body, extra) VALUES (?, ?, ?)", (n, parts.body, parts.extra)
    )


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


def _join(db: sqlite3.Connection, joins: Iterable[tuple[int, str]]) -> None:
    db.executemany(
        "INSERT OR IGNORE INTO about SELECT no, ? FROM anchor WHERE key = ? AND scope = ?",
        [(n, key, scope_of(n)) for n, key in joins],
    )
