"""Search: candidates by words and by exact joins, looked at closely, judged, ordered."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from upwell.ground.limits import Deadline
from upwell.ground.types import Hit, Query
from upwell.memory.background import Background, load
from upwell.memory.calibrate import probability, relevance
from upwell.memory.candidates import (
    Filter,
    Join,
    by_anchors,
    by_words,
    keeping,
    neighbours,
    wanted_joins,
)
from upwell.memory.meaning import Meaning
from upwell.memory.query import Corpus, Reading, corpus, read
from upwell.memory.rows import visible_scopes
from upwell.memory.signals import (
    Candidate,
    Part,
    candidates,
    frequencies,
    holds,
    join_signals,
    meaning_signals,
    name_stems,
    query_signals,
    word_signals,
)
from upwell.memory.successors import newest_first

if TYPE_CHECKING:
    from upwell.ground.embed import Vector
    from upwell.memory.nearness import Likeness

MAX_TEXTS = 3
STEP = 1e-6
"""Between hits that are equally probable, so that their order shows in their scores."""
LOOKED_AT = 10
"""Places whose probability counts for those above them, whatever the limit."""
SPEAKING = ("matched_words", "window", "path_join", "symbol_join", "meaning")
"""The signals of which one at least must speak for a hit."""
BACKGROUND_FROM, BACKGROUND_TO = 5, 15
"""Ranks whose mean BM25 is the background that the margin is measured from."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a query means, and where memories are compared with it."""

    vector: "Vector"
    meaning: Meaning


@dataclass(frozen=True, slots=True)
class Pool:
    """The candidates of one query, by number, and what they are judged against. `likeness` is
    None where no model tells what texts mean."""

    candidates: Mapping[int, Candidate]
    joins: Mapping[str, Join]
    readings: Sequence[Reading]
    within: Corpus
    background: Background
    likeness: "Likeness | None" = None


def search(
    db: sqlite3.Connection,
    query: Query,
    now: float,
    deadline: Deadline,
    asked: Asked | None = None,
) -> list[Hit]:
    """The hits of `query`, most probable first. Past the deadline, none."""
    within = corpus(db, visible_scopes(db, query.scope))
    if not within.memories:
        return []
    keep = keeping(db, query.scope.namespaces, now)
    pool = gather(db, query, within, keep, deadline, asked)
    if deadline.passed():
        return []
    judged = sorted(judge(pool), key=lambda found: (-found.relevance, -found.candidate.n))
    found = hits(judged, pool.readings, query.limit)
    return newest_first(db, found, within, keep)[: query.limit]


def gather(
    db: sqlite3.Connection,
    query: Query,
    within: Corpus,
    keep: Filter,
    deadline: Deadline,
    asked: Asked | None = None,
) -> Pool:
    """Everything the query could mean, with the neighbours of conversational turns."""
    readings = [read(db, text, within) for text in query.texts[:MAX_TEXTS] if text.strip()]
    numbers: dict[int, None] = {}
    for reading in readings:
        if not deadline.passed():
            numbers.update(dict.fromkeys(by_words(db, reading, within, keep)))
    joins = wanted_joins(db, query.paths, query.symbols, within, query.scope.project)
    numbers.update(dict.fromkeys(by_anchors(db, joins, within, keep)))
    likeness = _alike(db, asked, within, keep, numbers) if asked else None
    wanted = _wanted(readings, joins)
    found = candidates(db, numbers, wanted)
    if likeness:
        found |= _seen(candidates(db, likeness.cosines.keys() - numbers.keys(), wanted), keep)
    turns = [n for n, candidate in found.items() if candidate.speaker]
    if turns:
        near = neighbours(turns) - found.keys()
        found |= _seen(candidates(db, near, wanted), keep)
    background = load(db, query.scope, within)
    return Pool(found, joins, readings, within, background, likeness)


def _wanted(readings: Iterable[Reading], joins: Mapping[str, Join]) -> set[str]:
    """The stems that are looked for in candidates."""
    names = {join.name for join in joins.values() if not join.symbol}
    asked = {stem for reading in readings for stem in reading.idf}
    return asked.union(*map(name_stems, names))


def _alike(
    db: sqlite3.Connection, asked: Asked, within: Corpus, keep: Filter, found: Iterable[int]
) -> "Likeness | None":
    others = set(found)
    others |= neighbours(others)
    return asked.meaning.look(db, asked.vector, within.scopes, keep.namespaces, others)


def _seen(found: Mapping[int, Candidate], keep: Filter) -> dict[int, Candidate]:
    return {n: one for n, one in found.items() if one.may_be_seen(keep.namespaces, keep.now)}


@dataclass(frozen=True, slots=True)
class Judged:
    """A candidate, what it is ordered by, and its signals."""

    candidate: Candidate
    relevance: float
    signals: Mapping[str, float]


def hits(judged: Sequence[Judged], readings: Sequence[Reading], limit: int) -> list[Hit]:
    """The first of them as hits. What stands above a probable one is at least as probable."""
    made: list[Hit] = []
    score = 0.0
    for found in reversed(judged[: max(limit, LOOKED_AT)]):
        score = min(1.0, max(score + STEP, probability(found.signals)))
        made.append(
            Hit(
                memory=found.candidate.memory,
                score=score,
                signals=found.signals,
                matched=tuple(one.text for one in readings if holds(found.candidate, one)),
            )
        )
    return made[::-1][:limit]


def judge(pool: Pool) -> list[Judged]:
    """The candidates that something speaks for."""
    by_words = [_words(pool, reading) for reading in _widest(pool.readings)]
    judged = []
    for n, candidate in pool.candidates.items():
        best = max(
            [signals[n] for signals in by_words], key=lambda signals: signals["bm25"], default={}
        )
        signals = {**best, **join_signals(pool.joins, pool.within, candidate)}
        if pool.likeness:
            signals |= meaning_signals(pool.likeness, n, bool(candidate.speaker))
        if any(signals.get(name) for name in SPEAKING):
            judged.append(Judged(candidate, relevance(signals), signals))
    return judged


def _widest(readings: Sequence[Reading]) -> list[Reading]:
    """Those whose stems are not all in an earlier one: with more of its words found, no text gets
    less BM25."""
    kept: list[Reading] = []
    for reading in readings:
        if not any(reading.idf.keys() <= other.idf.keys() for other in kept):
            kept.append(reading)
    return kept


def _words(pool: Pool, reading: Reading) -> dict[int, dict[str, float]]:
    """The word signals of every candidate for one text, the margin among them."""
    shared = query_signals(reading, pool.within, pool.background)
    parts = {n: Part(one, frequencies(reading, one)) for n, one in pool.candidates.items()}
    signals = {
        n: shared | word_signals(reading, pool.within, part, _near(parts, n))
        for n, part in parts.items()
    }
    ranked = sorted((figures["bm25"] for figures in signals.values()), reverse=True)
    others = ranked[BACKGROUND_FROM:BACKGROUND_TO]
    background = sum(others) / len(others) if others else 0.0
    for figures in signals.values():
        figures["margin"] = figures["bm25"] - background
    return signals


def _near(parts: Mapping[int, Part], n: int) -> list[Part]:
    """The turns before and after a turn of a conversation."""
    turn = parts[n].candidate
    if not turn.speaker:
        return []
    around = [part for other in (n - 1, n + 1) if (part := parts.get(other))]
    return [
        part
        for part in around
        if part.candidate.speaker and part.candidate.namespace == turn.namespace
    ]
