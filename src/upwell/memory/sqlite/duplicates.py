"""Find duplicates of added memories. They are reported, but never merged."""

import sqlite3
from collections.abc import Sequence

from upwell.ground.types.memory import Memory
from upwell.memory.lookups import (
    COMPARED,
    MAX_CHECKED,
    MAX_REPORTED,
    are_alike,
    duplicates_of,
    ranges,
    rarest_stems,
)
from upwell.memory.sqlite.lookup import corpus_of, quoted, read
from upwell.memory.sqlite.rows import by_number, scope_number


def find_duplicates(db: sqlite3.Connection, memories: Sequence[Memory]) -> list[tuple[str, ...]]:
    """Return the ids of a few duplicates of each memory in the same project. If the batch has more
    than `MAX_CHECKED` memories, near duplicates in the store are not found."""
    exact: dict[str, list[str]] = {}
    for memory in memories:
        rows = db.execute(
            "SELECT id FROM memory WHERE content_hash = ? AND tenant = ? AND project = ? "
            "ORDER BY n LIMIT ?",
            (memory.content_hash, memory.tenant, memory.project or "", MAX_REPORTED + 1),
        )
        exact[memory.id] = [row[0] for row in rows]
    few = memories if len(memories) <= MAX_CHECKED else ()
    return duplicates_of(memories, exact, {memory.id: _near(db, memory) for memory in few})


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
