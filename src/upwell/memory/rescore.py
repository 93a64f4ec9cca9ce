"""Hits of a place without calibrated scores, judged from their text by our own signals.

What such a place calls a score says how its hits compare, not whether one is relevant (DESIGN 4.4).
So the texts are read into a store of a moment's life and searched there; what nothing of ours
speaks for comes last, with the score 0, and is never said unasked.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from upwell.ground.limits import Deadline
from upwell.ground.project import is_seen
from upwell.ground.types import Hit, Memory, Query
from upwell.memory.index import insert
from upwell.memory.rows import stamped
from upwell.memory.schema import OWNER
from upwell.memory.search import search


def rescored(memories: Sequence[Memory], query: Query, now: float, deadline: Deadline) -> list[Hit]:
    """These memories, each with an id of its own, as hits of `query`, most probable first. Those
    that its scope does not see are left out."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for step in OWNER.migrations:
            step(db)
        tenant = query.scope.tenant
        memories = [stamped(replace(memory, tenant=tenant), now) for memory in memories]
        insert(db, memories)
        judged = search(db, replace(query, limit=max(1, len(memories))), now, deadline)
    finally:
        db.close()
    known = {hit.memory.id for hit in judged}
    rest = [
        Hit(memory=memory, score=0.0)
        for memory in memories
        if memory.id not in known and _is_seen(memory, query)
    ]
    return [*judged, *rest][: query.limit]


def _is_seen(memory: Memory, query: Query) -> bool:
    scope = query.scope
    if scope.namespaces and memory.namespace not in scope.namespaces:
        return False
    return is_seen(memory.project, scope.project)
