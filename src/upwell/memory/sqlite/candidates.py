"""Build the pool of a query: candidates by words, by exact joins and by meaning, with everything
that ranking needs to score them."""

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from upwell.ground.clock import Deadline
from upwell.ground.types.memory import Query
from upwell.memory.lookups import (
    last_successor,
    neighbours,
    ranges,
    stems_to_count,
    worthwhile,
)
from upwell.memory.ranking.joins import join_keys
from upwell.memory.ranking.null_scores import usual
from upwell.memory.ranking.query import MAX_TEXTS, Corpus
from upwell.memory.ranking.scoring import Pool, Successor
from upwell.memory.ranking.signals import Candidate, Likeness
from upwell.memory.sqlite import null_scores
from upwell.memory.sqlite.lookup import (
    Filter,
    by_anchors,
    by_triggers,
    by_words,
    candidates,
    corpus_seen_by,
    existing_joins,
    filter_of,
    read,
)
from upwell.memory.sqlite.rows import chunks, marks
from upwell.memory.sqlite.vectors import VectorTable

if TYPE_CHECKING:
    from upwell.ground.embed import Vector

_LONGEST_CHAIN = 100


@dataclass(frozen=True, slots=True)
class Question:
    """The vector of a query's text, and the vectors that it is compared with."""

    vector: "Vector"
    vectors: VectorTable


def pool_of(
    db: sqlite3.Connection,
    query: Query,
    now: float,
    deadline: Deadline,
    question: Question | None = None,
) -> Pool:
    """Return the candidates of `query`, or none if the query sees no memory or the deadline has
    passed."""
    corpus = corpus_seen_by(db, query.scope)
    if not corpus.memories:
        return _no_candidates(corpus)
    keep = filter_of(db, query.scope.namespaces, now)
    pool = gather(db, query, corpus, keep, deadline, question)
    return _no_candidates(corpus) if deadline.passed() else pool


def _no_candidates(corpus: Corpus) -> Pool:
    return Pool({}, {}, (), corpus, usual(corpus))


def gather(
    db: sqlite3.Connection,
    query: Query,
    corpus: Corpus,
    keep: Filter,
    deadline: Deadline,
    question: Question | None = None,
) -> Pool:
    """Return the candidates of `query` in `corpus`, with the neighbours of conversational turns."""
    lookups = [read(db, text, corpus) for text in query.texts[:MAX_TEXTS] if text.strip()]
    numbers: dict[int, None] = {}
    for lookup in worthwhile(lookups):
        if not deadline.passed():
            numbers.update(dict.fromkeys(by_words(db, lookup, corpus, keep)))
    keys = join_keys(query.paths, query.symbols, query.scope.project)
    joins = existing_joins(db, keys, corpus)
    numbers.update(dict.fromkeys(by_anchors(db, joins, corpus, keep)))
    triggered = by_triggers(db, query.triggers, corpus, keep)
    numbers.update(dict.fromkeys(triggered))
    readings = [lookup.reading for lookup in lookups]
    stems = stems_to_count(readings, joins)
    likeness = _likeness(db, question, corpus, keep, numbers) if question else None
    gathered = candidates(db, numbers, stems)
    if likeness:
        gathered |= candidates(db, likeness.cosines.keys() - numbers.keys(), stems, keep)
    turns = [n for n, candidate in gathered.items() if candidate.speaker]
    if turns:
        gathered |= candidates(db, neighbours(turns) - gathered.keys(), stems, keep)
    return Pool(
        candidates=gathered,
        joins=joins,
        triggered=triggered,
        readings=readings,
        corpus=corpus,
        null_scores=null_scores.load(db, query.scope, corpus),
        likeness=likeness,
        successors=_replacements(db, gathered.values(), corpus, keep),
    )


def _likeness(
    db: sqlite3.Connection, question: Question, corpus: Corpus, keep: Filter, numbers: Iterable[int]
) -> Likeness | None:
    others = set(numbers)
    others |= neighbours(others)
    return question.vectors.look(db, question.vector, corpus.scopes, keep.namespaces, others)


def _replacements(
    db: sqlite3.Connection, replaceable: Iterable[Candidate], corpus: Corpus, keep: Filter
) -> dict[str, Successor]:
    """Map each superseded candidate to the memory that replaces it now."""
    heads = successors(db, [candidate.id for candidate in replaceable], corpus.scopes, keep.now)
    if not heads:
        return {}
    loaded = candidates(db, {head.n for head in heads.values()}, (), keep)
    return {old: Successor(head.id, loaded.get(head.n)) for old, head in heads.items()}


@dataclass(frozen=True, slots=True)
class Head:
    """The newest living memory in a chain of superseding ones: its id, and its number."""

    id: str
    n: int


def successors(
    db: sqlite3.Connection, ids: Iterable[str], scopes: Sequence[int], now: float
) -> dict[str, Head]:
    """Map each of these memories that was superseded within `scopes` to the newest living memory
    of its chain. Chains are read from the rows each time, so that a memory is current again when
    its successor is deleted or expires."""
    listed = list(dict.fromkeys(ids))
    if not listed or not _any_superseding(db):
        return {}
    direct: dict[str, Head] = {}
    pending = listed
    for _ in range(_LONGEST_CHAIN):
        heads = _direct(db, [old for old in pending if old not in direct], scopes, now)
        if not heads:
            break
        direct |= heads
        pending = [head.id for head in heads.values()]
    next_id = {old: head.id for old, head in direct.items()}
    head_of = {head.id: head for head in direct.values()}
    return {old: head_of[last_successor(next_id, old)] for old in listed if old in direct}


def _any_superseding(db: sqlite3.Connection) -> bool:
    row = db.execute("SELECT 1 FROM memory WHERE supersedes IS NOT NULL LIMIT 1").fetchone()
    return row is not None


def _direct(
    db: sqlite3.Connection, ids: Sequence[str], scopes: Sequence[int], now: float
) -> dict[str, Head]:
    heads: dict[str, Head] = {}
    spans = list(ranges(scopes))
    within = " OR ".join("n BETWEEN ? AND ?" for _ in spans)
    for chunk in chunks(ids if spans else ()):
        rows = db.execute(
            f"SELECT supersedes, id, n FROM memory WHERE supersedes IN ({marks(chunk)}) "
            f"AND (expires_at IS NULL OR expires_at > ?) AND ({within}) ORDER BY created_at, n",
            (*chunk, now, *(edge for span in spans for edge in span)),
        )
        heads.update((old, Head(new, n)) for old, new, n in rows if old != new)
    return heads
