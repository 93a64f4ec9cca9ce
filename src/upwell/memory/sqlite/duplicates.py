"""Duplicates of added memories: reported, never merged."""

import sqlite3
from collections.abc import Sequence

from upwell.ground.types.memory import Memory
from upwell.memory.lookups import ranges
from upwell.memory.ranking.terms import sound
from upwell.memory.sqlite.lookup import corpus_of, quoted, read
from upwell.memory.sqlite.rows import by_number, scope_number
from upwell.memory.stems import counted

NEARLY_THE_SAME = 0.8
"""The share of common stems (Jaccard) from which two memories are near duplicates."""
MAX_CHECKED = 200
"""In larger batches, which are imports, only exact duplicates are reported."""
MAX_REPORTED = 5
MAX_HOLDING = 2_000
"""A memory whose rarest word is more common than this is not compared."""
_COMPARED = 8


def find_duplicates(db: sqlite3.Connection, memories: Sequence[Memory]) -> list[tuple[str, ...]]:
    """Return, for each memory, the ids of its exact and near duplicates in the same project, in
    the store or earlier in the batch. The memory that it replaces does not count."""
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
    """Find near duplicates. Two sets that share 80 % of their words share one of their rarest
    fifth, so only those words are looked up (prefix filtering, Chaudhuri et al. 2006)."""
    scope = scope_number(db, memory.tenant, memory.project)
    reading = read(db, memory.text, corpus_of(db, [scope])).reading
    known = [
        pair for pair in zip(reading.stems, reading.words, strict=True) if reading.holding[pair[0]]
    ]
    known.sort(key=lambda pair: reading.holding[pair[0]])
    prefix = known[: len(reading.stems) // 5 + 1]
    if not prefix or reading.holding[prefix[0][0]] > MAX_HOLDING:
        return []
    match = " OR ".join(quoted(word) for _, word in prefix)
    low, high = next(ranges([scope]))
    rows = db.execute(
        "SELECT rowid FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ? "
        "ORDER BY rank LIMIT ?",
        (match, low, high, _COMPARED),
    )
    own = set(counted(sound(memory.text)))
    return [
        other.id
        for other in by_number(db, [row[0] for row in rows]).values()
        if _likeness(own, set(counted(sound(other.text)))) >= NEARLY_THE_SAME
    ]


def _likeness(left: set[str], right: set[str]) -> float:
    return len(left & right) / len(left | right) if left or right else 0.0
