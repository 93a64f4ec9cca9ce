"""Score a pool of candidates and return hits, most relevant first. All stores share this code.

A memory that shares a trigger with the query gets the precision of that kind of trigger (the part
before the colon): the share of surfaced memories that were useful. Two readers judged the memories
that `upwell replay` showed for real sessions (`benchmarks/RESULTS.md`); the figures combine both.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from upwell.ground.types.memory import Hit, Query
from upwell.memory.ranking.calibrate import (
    NullScores,
    asked_probability,
    probability,
    relevance,
    usual,
)
from upwell.memory.ranking.signals import (
    Candidate,
    Join,
    Likeness,
    QueryPart,
    frequencies,
    join_signals,
    matches,
    meaning_signals,
    query_signals,
    word_signals,
)
from upwell.memory.ranking.terms import Corpus, QueryReading

USUAL = 0.6
"""The precision assumed for kinds that were not measured."""
PRECISIONS: Mapping[str, float] = {
    "fails": 0.61,
    "file": 0.73,
    "below": 0.73,
    "symbol": 0.84,
    "ticket": 0.8,
}


def precision_of(trigger: str) -> float:
    """Return the precision of this kind of trigger, in 0..1."""
    return PRECISIONS.get(trigger.partition(":")[0], USUAL)


SUPERSEDED = "superseded"
"""The signal of a hit that a newer memory replaces. Such a hit never surfaces."""
STEP = 1e-6
"""Hits of equal probability get scores that differ by this step, so that the scores show the
order."""
MIN_ASSESSED = 10
"""At least this many hits are scored, even if the limit is lower, because a hit can raise the
scores of the hits above it."""
TRIGGER = "trigger"
"""The signal of a hit that shares a trigger with the query."""
SPEAKING = ("matched_words", "window", "path_join", "symbol_join", "meaning", TRIGGER)
"""A candidate needs at least one of these signals to become a hit, unless it supersedes a hit."""
BACKGROUND_FROM, BACKGROUND_TO = 5, 15
"""The margin of a hit is the difference between its BM25 and the mean BM25 at these ranks."""


class Successor(Struct, frozen=True):
    """The newest existing memory in a chain where each memory supersedes the one before.
    `candidate` is None if the query may not see it."""

    id: str
    candidate: Candidate | None


class Pool(Struct, frozen=True):
    """The candidates of one query, by number, and everything needed to rank them.

    `joins` maps join keys to exact matches. `likeness` is None without an embedder. `triggered`
    maps the numbers of candidates to the trigger that they share with the query. `successors` maps
    the ids of superseded candidates to their replacements.
    """

    candidates: Mapping[int, Candidate]
    joins: Mapping[str, Join]
    readings: Sequence[QueryReading]
    corpus: Corpus
    null_scores: NullScores
    likeness: Likeness | None = None
    triggered: Mapping[int, str] = field(default_factory=dict)
    successors: Mapping[str, Successor] = field(default_factory=dict)


NOTHING = Pool({}, {}, (), Corpus((), 0, 0), usual(Corpus((), 0, 0)))
"""The pool of a query without candidates."""


class Assessed(Struct, frozen=True):
    """A candidate with its relevance, its signals, and the trigger that it shares with the query
    ("" if there is none)."""

    candidate: Candidate
    relevance: float
    signals: Mapping[str, float]
    trigger: str = ""


def rank(pool: Pool, query: Query) -> list[Hit]:
    """Return the hits of `query`, most relevant first, at most `query.limit`."""
    assessed = sorted(assess(pool), key=lambda entry: (-entry.relevance, -entry.candidate.n))
    related = [entry for entry in assessed if not entry.trigger]
    triggered = [entry for entry in assessed if entry.trigger]
    # The score of a triggered hit depends on the kind of its trigger only, not on its words.
    hits = [_hit(entry, precision_of(entry.trigger), pool.readings) for entry in triggered]
    hits += scored(related, pool.readings, query)
    hits.sort(key=lambda hit: -hit.score)
    return newest_first(hits, pool.successors)[: query.limit]


def assess(pool: Pool) -> list[Assessed]:
    """Return the candidates that have at least one of the `SPEAKING` signals, in no particular
    order."""
    by_reading = [_word_signals(pool, reading) for reading in _widest(pool.readings)]
    assessed = []
    for n, candidate in pool.candidates.items():
        best = max(
            [signals[n] for signals in by_reading], key=lambda signals: signals["bm25"], default={}
        )
        signals = {**best, **join_signals(pool.joins, pool.corpus, candidate)}
        if pool.likeness:
            signals |= meaning_signals(pool.likeness, n, bool(candidate.speaker))
        if trigger := pool.triggered.get(n, ""):
            signals[TRIGGER] = 1.0
        if any(signals.get(name) for name in SPEAKING):
            assessed.append(Assessed(candidate, relevance(signals), signals, trigger))
    return assessed


def scored(
    assessed: Sequence[Assessed], readings: Sequence[QueryReading], query: Query
) -> list[Hit]:
    """Turn the first candidates into hits. The score of a hit is never below that of a later
    hit."""
    hits: list[Hit] = []
    score = 0.0
    estimate = asked_probability if query.awaited else probability
    for entry in reversed(assessed[: max(query.limit, MIN_ASSESSED)]):
        score = min(1.0, max(score + STEP, estimate(entry.signals)))
        hits.append(_hit(entry, score, readings))
    return hits[::-1][: query.limit]


def _hit(entry: Assessed, score: float, readings: Sequence[QueryReading]) -> Hit:
    return Hit(
        memory=entry.candidate.load(),
        score=score,
        signals=entry.signals,
        matched=tuple(reading.text for reading in readings if matches(entry.candidate, reading)),
        trigger=entry.trigger,
    )


def newest_first(hits: Sequence[Hit], successors: Mapping[str, Successor]) -> list[Hit]:
    """Put each successor that the query may see before the memory that it supersedes, even if the
    query did not find the successor. The successor gets at least the score of the superseded
    memory, and the superseded memory is marked `SUPERSEDED`."""
    if not successors:
        return list(hits)
    hit_of = {hit.memory.id: hit for hit in hits}
    placed: dict[str, Hit] = {}
    for hit in hits:
        successor = successors.get(hit.memory.id)
        if successor is None:
            placed.setdefault(hit.memory.id, hit)
            continue
        first = hit_of.get(successor.id)
        if first is None and successor.candidate is not None:
            first = replace(hit, memory=successor.candidate.load())
        if first is not None and successor.id not in placed:
            placed[successor.id] = replace(first, score=max(first.score, hit.score))
        placed[hit.memory.id] = replace(hit, signals={**hit.signals, SUPERSEDED: 1.0})
    return list(placed.values())


def _widest(readings: Sequence[QueryReading]) -> list[QueryReading]:
    """Leave out each reading whose stems all occur in an earlier reading. More query words never
    lower the BM25, so such a reading cannot win."""
    widest: list[QueryReading] = []
    for reading in readings:
        if not any(reading.idf.keys() <= wider.idf.keys() for wider in widest):
            widest.append(reading)
    return widest


def _word_signals(pool: Pool, reading: QueryReading) -> dict[int, dict[str, float]]:
    shared = query_signals(reading, pool.corpus, pool.null_scores)
    parts = {
        n: QueryPart(candidate, frequencies(reading, candidate))
        for n, candidate in pool.candidates.items()
    }
    signals = {
        n: shared | word_signals(reading, pool.corpus, part, _neighbours(parts, n))
        for n, part in parts.items()
    }
    ranked = sorted((figures["bm25"] for figures in signals.values()), reverse=True)
    others = ranked[BACKGROUND_FROM:BACKGROUND_TO]
    background = sum(others) / len(others) if others else 0.0
    for figures in signals.values():
        figures["margin"] = figures["bm25"] - background
    return signals


def _neighbours(parts: Mapping[int, QueryPart], n: int) -> list[QueryPart]:
    turn = parts[n].candidate
    if not turn.speaker:
        return []
    neighbours = [part for other in (n - 1, n + 1) if (part := parts.get(other))]
    return [
        part
        for part in neighbours
        if part.candidate.speaker and part.candidate.namespace == turn.namespace
    ]
