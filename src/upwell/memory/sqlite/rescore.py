"""Score the hits of a recall source that has no calibrated scores, using upwell's own signals.

The scores of such a source order its hits but do not show whether a hit is relevant
(docs/decisions.md, 4). The text of the hits is therefore loaded into a temporary store and searched
there. Texts without any of upwell's signals come last, with the score 0, which is too low for
automatic searches. In explicit searches, a hit gets the source's own score if that is higher,
because the source may have found the hit by meaning.
"""

import sqlite3
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from upwell.ground.clock import Deadline
from upwell.ground.project import is_seen
from upwell.ground.types.memory import Hit, Memory, Query
from upwell.ground.types.rpc import is_visible
from upwell.memory.ranking.scoring import rank
from upwell.memory.records import stamped
from upwell.memory.sqlite import schema
from upwell.memory.sqlite.store import pool_of
from upwell.memory.sqlite.writing import insert

UNSCORED = 0.2
"""In explicit searches, a text to which the source gives no score gets at least this score."""


def rescored(
    memories: Sequence[Memory],
    query: Query,
    now: float,
    deadline: Deadline,
    own_scores: Mapping[str, float] | None = None,
) -> list[Hit]:
    """Return these memories as hits of `query`, most relevant first. Their ids must be unique.
    Memories outside the query's scope are left out. `own_scores` maps ids to the source's own
    scores, or is None if these must not count. Scores outside 0..1 never count."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for migration in schema.MIGRATIONS:
            migration(db)
        tenant = query.scope.tenant
        memories = [stamped(replace(memory, tenant=tenant), now) for memory in memories]
        insert(db, memories)
        unlimited = replace(query, limit=max(1, len(memories)))
        hits = rank(pool_of(db, unlimited, now, deadline), unlimited)
    finally:
        db.close()
    hit_ids = {hit.memory.id for hit in hits}
    others = [
        Hit(memory=memory, score=0.0)
        for memory in memories
        if memory.id not in hit_ids and _is_seen(memory, query)
    ]
    all_hits = [*hits, *others]
    if query.awaited and own_scores is not None:
        all_hits = [_with_own_score(hit, own_scores) for hit in all_hits]
        all_hits.sort(key=lambda hit: -hit.score)
    return all_hits[: query.limit]


def _with_own_score(hit: Hit, own_scores: Mapping[str, float]) -> Hit:
    own = own_scores.get(hit.memory.id, UNSCORED)
    return replace(hit, score=max(hit.score, own)) if 0.0 <= own <= 1.0 else hit


def _is_seen(memory: Memory, query: Query) -> bool:
    scope = query.scope
    if not is_visible(memory.namespace, scope.namespaces):
        return False
    return is_seen(memory.project, scope.project)
