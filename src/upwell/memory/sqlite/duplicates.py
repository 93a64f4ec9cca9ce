"""Find duplicates of added memories. They are reported, but never merged."""

import sqlite3
from collections.abc import Sequence

from upwell.ground.types.memory import Memory
from upwell.memory.lookups import (
    COMPARED,
    MAX_CHECKED,
    MAX_REPORTED,
    are_alike,
    ranges,
    rarest_stems,
)
from upwell.memory.sqlite.lookup import corpus_of, quoted, read
from upwell.memory.sqlite.rows import by_number, scope_number


def find_duplicates(db: sqlite3.Connection, memories: Sequence[Memory]) -> list[tuple[str, ...]]:
    """Return, for each memory, the ids of up to `MAX_REPORTED` duplicates in the same project:
    exact duplicates in the store or earlier in the batch, and near duplicates in the store. A
    stored memory with the same id does not count. If the batch has more than `MAX_CHECKED`
    memories, only exact duplicates are found."""
    groups: list[tuple[str, ...]] = []
    earlier: dict[tuple[str, str | None, str], str] = {}
    for memory in memories:
        same = dict.fromkeys(_exact(db, memory))
        key = (memory.tenant, memory.project, memory.content_hash)
        if key in earlier:
            same.setdefault(earlier[key])
        earlier.setdefault(key, memory.id)
        if len(memories) <= MAX_CHECKED:
            same |= dict.fromkeys(_near(db, memory))
        same.pop(memory.id, None)
        groups.append(tuple(same)[:MAX_REPORTED])
    return groups


def _exact(db: sqlite3.Connection, memory: Memory) -> list[str]:
    rows = db.execute(
        "SELECT id FROM memory WHERE content_hash = ? AND tenant = ? AND project = ? "
        "ORDER BY n LIMIT ?",
        (memory.content_hash, memory.tenant, memory.project or "", MAX_REPORTED + 1),
    )
    return [row[0] for row in rows]


def _near(db: sqlite3.Connection, memory: Memory) -> list[str]:
    scope = scope_number(db, memory.tenant, memory.project)
    reading = read(db, memory.text, corpus_of(db, scope)).reading
    word_of = dict(zip(reading.stems, reading.words, strict=True))
    prefix = rarest_stems(reading.stems, reading.holding)
    if not prefix:
        return []
    match = " OR ".join(quoted(word_of[stem]) for stem in prefix)
    low, high = next(ranges([scope]))
    rows = db.execute(
        "SELECT rowid FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ? "
        "ORDER BY rank LIMIT ?",
        (match, low, high, COMPARED),
    )
    return [
        other.id
        for other in by_number(db, [row[0] for row in rows]).values()
        if are_alike(memory.text, other.text)
    ]
