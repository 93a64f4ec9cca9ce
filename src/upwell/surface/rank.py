"""In which order: what depends on the cue orders, and never gates (seeds 003, 004).

The order is by score × namespace weight × recency × a boost for several queries.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from upwell.ground.text.words import jaccard, terms
from upwell.ground.types import Hit, Intent, Memory
from upwell.surface.options import Options

_DAY_SECONDS = 86_400.0
_NEAR_IDENTICAL = 0.9
SHARE_OF_A_SOURCE = 3
"""One source has at most every third place while others have something to say (ours)."""
_DATED = re.compile(r"(?:^|/)(\d{4})-(\d{2})-(\d{2})[.-][^/]*$")


def ranked(hits: Sequence[Hit], intent: Intent, options: Options, now: float) -> list[Hit]:
    """`hits` in the order in which they should be said, near-identical texts once."""
    ordered = sorted(hits, key=lambda hit: (-_weight(hit, intent, options, now), hit.memory.id))
    return spread(distinct(ordered))


def spread(hits: Sequence[Hit]) -> list[Hit]:
    """`hits` with those of one source held back while it already has a third of the places so
    far and others are waiting: the best of every file before the many of one. What stands in no
    file is a source of its own."""
    waiting, said = list(hits), list[Hit]()
    taken: Counter[str] = Counter()
    while waiting:
        place = next((at for at, hit in enumerate(waiting) if _has_room(hit, taken, len(said))), 0)
        hit = waiting.pop(place)
        taken[_source(hit)] += 1
        said.append(hit)
    return said


def _has_room(hit: Hit, taken: Mapping[str, int], said: int) -> bool:
    return taken.get(_source(hit), 0) < max(1, -(-(said + 1) // SHARE_OF_A_SOURCE))


def _source(hit: Hit) -> str:
    """The file that a memory stands in; its id where it stands in none."""
    return hit.memory.source if hit.memory.lines else hit.memory.id


def distinct(hits: Sequence[Hit]) -> list[Hit]:
    """`hits` in their order, those left out that say nearly the same as one before."""
    kept: list[tuple[Hit, frozenset[str]]] = []
    for hit in hits:
        words = frozenset(terms(hit.memory.text))
        if all(jaccard(words, other) < _NEAR_IDENTICAL for _, other in kept):
            kept.append((hit, words))
    return [hit for hit, _ in kept]


def _weight(hit: Hit, intent: Intent, options: Options, now: float) -> float:
    weight = hit.score
    weight *= options.surface.namespace_weights.get(intent.kind, {}).get(hit.memory.namespace, 1.0)
    if options.memory_context.include_recency:
        weight *= recency(hit.memory, now, options.memory_context.half_life_days)
    if len(hit.matched) >= 2:
        weight *= options.surface.multi_match_boost
    return weight


def recency(memory: Memory, now: float, half_life_days: float) -> float:
    """Half-life decay on dated paths only (`memory/2026-04-09.md`); 1.0 for everything else."""
    match = _DATED.search(memory.source)
    if match is None:
        return 1.0
    try:
        day = datetime.strptime("-".join(match.groups()), "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return 1.0
    age_days = (now - day.timestamp()) / _DAY_SECONDS
    return float(0.5 ** (age_days / half_life_days)) if age_days > 0 else 1.0
