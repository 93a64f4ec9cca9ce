"""Find duplicates of added memories. They are reported, but never merged."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from upwell.ground.postgres.connection import Postgres, Statement
from upwell.ground.types.memory import Memory
from upwell.memory.duplicates import (
    COMPARED,
    MAX_CHECKED,
    MAX_REPORTED,
    are_alike,
    rarest_stems,
)
from upwell.memory.lookups import SEQUENCE_BITS, words_by_stem
from upwell.memory.ranking.terms import Corpus

_EXACT = """
    SELECT content_hash, id FROM upwell.memory
    WHERE tenant = %(tenant)s AND project = %(project)s AND content_hash = ANY(%(hashes)s)
    ORDER BY n"""
_HOLDING = """
    SELECT s.no, s.memories, t.stem, t.memories FROM upwell.scope s
    JOIN upwell.term t ON t.tenant = s.tenant AND t.scope = s.no AND t.stem = ANY(%(stems)s)
    WHERE s.tenant = %(tenant)s AND s.project = %(project)s"""
_SHARING = """
    SELECT m.id, m.text FROM (
        SELECT p.n FROM unnest(%(stems)s::text[], %(worths)s::float8[]) AS c(stem, worth)
        JOIN upwell.posting p ON p.tenant = %(tenant)s AND p.stem = c.stem
            AND p.n BETWEEN %(low)s AND %(high)s
        GROUP BY p.n ORDER BY sum(c.worth) DESC, p.n LIMIT %(most)s) AS best
    JOIN upwell.memory m ON m.tenant = %(tenant)s AND m.n = best.n"""


async def find_duplicates(
    postgres: Postgres, tenant: str, memories: Sequence[Memory]
) -> list[tuple[str, ...]]:
    """Return the ids of a few duplicates of each memory in the same project: the stored exact and
    near duplicates, and the first of `memories` that has the same text.

    Raises:
        StoreError: the database failed.
    """
    by_project: dict[str, list[Memory]] = defaultdict(list)
    for memory in memories:
        by_project[memory.project or ""].append(memory)
    groups: dict[str, dict[str, None]] = {}
    for project, own in by_project.items():
        exact = await _exact(postgres, tenant, project, own)
        near = await _near(postgres, tenant, project, own) if len(memories) <= MAX_CHECKED else {}
        for memory in own:
            same = dict.fromkeys(exact.get(memory.content_hash, ()))
            groups[memory.id] = same | dict.fromkeys(near.get(memory.id, ()))
    earlier: dict[tuple[str | None, str], str] = {}
    duplicates = []
    for memory in memories:
        first = earlier.setdefault((memory.project, memory.content_hash), memory.id)
        same = {first: None} | groups[memory.id]
        duplicates.append(tuple(id for id in same if id != memory.id)[:MAX_REPORTED])
    return duplicates


async def _exact(
    postgres: Postgres, tenant: str, project: str, memories: Sequence[Memory]
) -> Mapping[str, list[str]]:
    hashes = [memory.content_hash for memory in memories]
    (rows,) = await postgres.ask(tenant, Statement(_EXACT, {"project": project, "hashes": hashes}))
    same: dict[str, list[str]] = defaultdict(list)
    for text_hash, memory_id in rows:
        same[text_hash].append(memory_id)
    return same


async def _near(
    postgres: Postgres, tenant: str, project: str, memories: Sequence[Memory]
) -> Mapping[str, list[str]]:
    stems = {memory.id: list(words_by_stem(memory.text)) for memory in memories}
    every = sorted(set().union(*stems.values()))
    (rows,) = await postgres.ask(tenant, Statement(_HOLDING, {"project": project, "stems": every}))
    if not rows:
        return {}
    scope, size = int(rows[0][0]), int(rows[0][1])
    holding = {stem: int(count) for _, _, stem, count in rows}
    corpus = Corpus((scope,), size, size)
    prefixes = {memory_id: rarest_stems(own, holding) for memory_id, own in stems.items()}
    looked_up = [memory for memory in memories if prefixes[memory.id]]
    found = await postgres.ask(
        tenant,
        *(
            Statement(
                _SHARING,
                {
                    "stems": prefixes[memory.id],
                    "worths": [corpus.idf(holding[stem]) for stem in prefixes[memory.id]],
                    "low": scope << SEQUENCE_BITS,
                    "high": ((scope + 1) << SEQUENCE_BITS) - 1,
                    "most": COMPARED,
                },
            )
            for memory in looked_up
        ),
    )
    return {
        memory.id: [other for other, text in near if are_alike(memory.text, text)]
        for memory, near in zip(looked_up, found, strict=True)
    }
