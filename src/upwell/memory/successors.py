"""What was superseded: the newer memory is shown first, the older one stays and is marked.

Which is newer is read from the rows at each search, so an older memory is current again when its
successor is deleted or expires.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from upwell.ground.types import Hit
from upwell.memory.candidates import Filter
from upwell.memory.query import Corpus
from upwell.memory.rows import ranges
from upwell.memory.signals import Candidate, candidates

SUPERSEDED = "superseded"
"""The signal of a hit that a newer one replaces; surfacing leaves it out."""
_LONGEST_CHAIN = 100


@dataclass(frozen=True, slots=True)
class Successor:
    """The newest living memory in a chain: its id, and its number."""

    id: str
    n: int


def successors(
    db: sqlite3.Connection, ids: Iterable[str], scopes: Sequence[int], now: float
) -> dict[str, Successor]:
    """For each of these memories that was superseded within `scopes`, what stands for it now."""
    direct: dict[str, Successor] = {}
    asked = list(dict.fromkeys(ids))
    for _ in range(_LONGEST_CHAIN):
        found = _direct(db, [one for one in asked if one not in direct], scopes, now)
        if not found:
            break
        direct |= found
        asked = [successor.id for successor in found.values()]
    return {old: _last(direct, old) for old in dict.fromkeys(ids) if old in direct}


def newest_first(
    db: sqlite3.Connection, hits: list[Hit], within: Corpus, keep: Filter
) -> list[Hit]:
    """`hits` with each successor before what it supersedes, found by words or not: it inherits
    the score of what it stands for. The superseded are marked."""
    newer = successors(db, [hit.memory.id for hit in hits], within.scopes, keep.now)
    if not newer:
        return hits
    known = {hit.memory.id: hit for hit in hits}
    heads = candidates(db, [s.n for s in newer.values() if s.id not in known])
    placed: dict[str, Hit] = {}
    for hit in hits:
        head = newer.get(hit.memory.id)
        if head is None:
            placed.setdefault(hit.memory.id, hit)
            continue
        first = known.get(head.id) or _standing_in(heads.get(head.n), hit, keep)
        if first is not None and head.id not in placed:
            placed[head.id] = replace(first, score=max(first.score, hit.score))
        placed[hit.memory.id] = replace(hit, signals={**hit.signals, SUPERSEDED: 1.0})
    return list(placed.values())


def _standing_in(candidate: Candidate | None, hit: Hit, keep: Filter) -> Hit | None:
    if candidate is None or not candidate.may_be_seen(keep.namespaces, keep.now):
        return None
    return replace(hit, memory=candidate.memory)


def _direct(
    db: sqlite3.Connection, ids: Sequence[str], scopes: Sequence[int], now: float
) -> dict[str, Successor]:
    found: dict[str, Successor] = {}
    spans = list(ranges(scopes))
    within = " OR ".join("n BETWEEN ? AND ?" for _ in spans)
    for start in range(0, len(ids) if spans else 0, 500):
        chunk = ids[start : start + 500]
        rows = db.execute(
            f"SELECT supersedes, id, n FROM memory WHERE supersedes IN ({_marks(chunk)}) "
            f"AND (expires_at IS NULL OR expires_at > ?) AND ({within}) ORDER BY created_at, n",
            (*chunk, now, *(edge for span in spans for edge in span)),
        )
        found.update((old, Successor(new, n)) for old, new, n in rows if old != new)
    return found


def _last(direct: Mapping[str, Successor], start: str) -> Successor:
    """The end of the chain; where it bites its own tail, the last before that."""
    seen = {start}
    at = direct[start]
    while at.id in direct and direct[at.id].id not in seen:
        seen.add(at.id)
        at = direct[at.id]
    return at


def _marks(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))
