"""Look up the memories that a query could mean, before any of them is judged.

FTS5 scores every row that matches, so a query costs the sum of its words' document frequencies
(532 ms for 30 words at 100 000 memories). Rare words are therefore looked up alone while a budget
of rows lasts, and common ones only in pairs that must both occur.
"""

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from upwell.ground.types.memory import Scope
from upwell.memory.ranking.joins import Join, JoinKey
from upwell.memory.ranking.query import MAX_WORDS, Corpus, Reading, reading_of
from upwell.memory.ranking.signals import MAX_COUNTED_CHARS, Candidate, Part, bm25, frequencies
from upwell.memory.ranking.terms import Worded, query_words, sound, word_list, words_of
from upwell.memory.sqlite.rows import (
    COLUMNS,
    chunks,
    from_row,
    marks,
    ranges,
    scope_of,
    text_of,
    visible_scopes,
)
from upwell.memory.sqlite.stems import stem_counts, stemmer

ROW_BUDGET = 1_000
"""Rows that a full-text search may read, at 2 to 6 µs of CPU each."""
MAX_PAIRS, MAX_PAIRED = 2, 20_000
"""How many pairs of common words are looked up, and how common the rarer word may be."""
ONLY_NEWEST_BEYOND = 2_000
"""A single word that occurs in more memories finds only the newest of them, because ordering them
by BM25 would read the length of each.
"""
PER_TEXT = 40
FEW_CLAUSES = 3
PER_ANCHOR = 60
PER_TRIGGER = 8
MAX_JOINED = 160
"""How many of the newest memories that share a file or symbol become candidates, for each key and
in total.
"""
_ID, _NAMESPACE, _TEXT, _EXPIRES, _PINNED = (
    COLUMNS.split(", ").index(name) for name in ("id", "namespace", "text", "expires_at", "pinned")
)


@dataclass(frozen=True, slots=True)
class Clause:
    """A part of a full-text expression: a word, or two that must both occur, with their stems."""

    expression: str
    stems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lookup:
    """The full-text search for a reading: memories that match any of `clauses` are candidates.
    With `newest_only` a single common word matches so many memories that only the newest become
    candidates."""

    reading: Reading
    clauses: tuple[Clause, ...]
    newest_only: bool

    @property
    def match(self) -> str:
        """Return the clauses as one FTS5 expression."""
        return " OR ".join(clause.expression for clause in self.clauses)


@dataclass(frozen=True, slots=True)
class Filter:
    """The memories of a scope that a search may return: memories of its namespaces that have not
    expired at `now`. Standing rules are excluded because they have a channel of their own.
    `condition` is the SQL for a row `m`, with `values`."""

    namespaces: tuple[str, ...]
    now: float
    condition: str
    values: tuple[object, ...]

    def joined(self, n: str) -> str:
        """Return the SQL that joins memory `n`, if the condition needs its row."""
        return f"JOIN memory m ON m.n = {n}" if self.condition else ""

    @property
    def also(self) -> str:
        return f"AND {self.condition}" if self.condition else ""

    def passes(self, row: Sequence[Any]) -> bool:
        """Return whether a row of `COLUMNS` meets the condition."""
        if row[_PINNED] or (self.namespaces and row[_NAMESPACE] not in self.namespaces):
            return False
        return row[_EXPIRES] is None or row[_EXPIRES] > self.now


def filter_of(db: sqlite3.Connection, namespaces: tuple[str, ...] = (), now: float = 0.0) -> Filter:
    """Return the filter of a search, with only the conditions that some memory of the file
    fails."""
    conditions: list[str] = []
    values: list[object] = []
    if namespaces:
        conditions.append(f"m.namespace IN ({marks(namespaces)})")
        values += namespaces
    expired = "SELECT 1 FROM memory WHERE expires_at <= ? LIMIT 1"
    if db.execute(expired, (now,)).fetchone():
        conditions.append("(m.expires_at IS NULL OR m.expires_at > ?)")
        values.append(now)
    if db.execute("SELECT 1 FROM memory WHERE pinned LIMIT 1").fetchone():
        conditions.append("NOT m.pinned")
    return Filter(namespaces, now, " AND ".join(conditions), tuple(values))


def corpus_of(db: sqlite3.Connection, scopes: Sequence[int]) -> Corpus:
    """Return the size of these scopes."""
    memories, words = db.execute(
        "SELECT coalesce(sum(memories), 0), coalesce(sum(words), 0) "
        f"FROM scope WHERE no IN ({marks(scopes)})",
        tuple(scopes),
    ).fetchone()
    return Corpus(tuple(scopes), int(memories), int(words))


def corpus_seen_by(db: sqlite3.Connection, scope: Scope) -> Corpus:
    """Return the memories that a query of this scope may see."""
    return corpus_of(db, visible_scopes(db, scope))


def read(db: sqlite3.Connection, text: str, corpus: Corpus) -> Lookup:
    """Read a query text against `corpus`, and plan its full-text search."""
    words = query_words(text)[:MAX_WORDS]
    word_of: dict[str, str] = {}
    for word, stem in zip(words, stemmer().stems(words), strict=True):
        word_of.setdefault(stem, word)
    holding = memories_with(db, tuple(word_of), corpus.scopes)
    clauses, newest_only = _clauses(word_of, holding, corpus.memories)
    return Lookup(reading_of(text, word_of, holding, corpus), tuple(clauses), newest_only)


def memories_with(
    db: sqlite3.Connection, stems: Sequence[str], scopes: Sequence[int]
) -> dict[str, int]:
    """Count the memories of these scopes that have each stem."""
    if not stems or not scopes:
        return dict.fromkeys(stems, 0)
    rows = db.execute(
        f"SELECT stem, sum(memories) FROM term WHERE stem IN ({marks(stems)}) "
        f"AND scope IN ({marks(scopes)}) GROUP BY stem",
        (*stems, *scopes),
    )
    return dict.fromkeys(stems, 0) | {stem: int(count) for stem, count in rows}


def _clauses(
    word_of: Mapping[str, str], holding: Mapping[str, int], memories: int
) -> tuple[list[Clause], bool]:
    """Return the clauses to look up, and whether they match so many memories that only the
    newest are candidates."""
    known = sorted((stem for stem in word_of if holding[stem]), key=lambda stem: holding[stem])
    budget = ROW_BUDGET
    clauses: list[Clause] = []
    while known and holding[known[0]] <= budget:
        stem = known.pop(0)
        budget -= holding[stem]
        clauses.append(Clause(quoted(word_of[stem]), (stem,)))
    for left, right in list(pairwise(known))[:MAX_PAIRS]:
        both = holding[left] * holding[right] / max(1, memories)
        if both > budget or holding[left] > MAX_PAIRED:
            break
        budget -= int(both)
        both_words = f"({quoted(word_of[left])} AND {quoted(word_of[right])})"
        clauses.append(Clause(both_words, (left, right)))
    if not clauses and known:
        rarest = known[0]
        return [Clause(quoted(word_of[rarest]), (rarest,))], holding[rarest] > ONLY_NEWEST_BEYOND
    return clauses, False


def quoted(word: str) -> str:
    """Quote a word as an FTS5 string, so that no character is read as syntax."""
    return '"' + word.replace('"', '""') + '"'


def by_words(
    db: sqlite3.Connection, lookup: Lookup, corpus: Corpus, keep: Filter, limit: int = PER_TEXT
) -> list[int]:
    """Return the numbers of the memories that match best, best first.

    If there are few clauses, many memories match equally well, so the index's own BM25 decides.
    Otherwise the rarity of the words in each memory decides: this finds the same memories at a
    third of the cost, since BM25 looks up the length of every memory.
    """
    if not lookup.clauses:
        return []
    if len(lookup.clauses) > FEW_CLAUSES:
        return _by_rarity(db, lookup, corpus, keep)[:limit]
    order = "w.rowid DESC" if lookup.newest_only else "w.rank"
    sql = _match_sql(keep, "w.rank, w.rowid", f"ORDER BY {order} LIMIT {limit:d}")
    rows: list[tuple[float, int]] = []
    for span in ranges(corpus.scopes):
        rows += db.execute(sql, (lookup.match, *span, *keep.values)).fetchall()
    return [n for _, n in sorted(rows)[:limit]]


def _by_rarity(db: sqlite3.Connection, lookup: Lookup, corpus: Corpus, keep: Filter) -> list[int]:
    sql = _match_sql(keep, "w.rowid")
    total: dict[int, float] = {}
    for clause in lookup.clauses:
        rarity = sum(lookup.reading.idf[stem] for stem in clause.stems)
        for span in ranges(corpus.scopes):
            for (n,) in db.execute(sql, (clause.expression, *span, *keep.values)):
                total[n] = total.get(n, 0.0) + rarity
    return [n for _, n in sorted(((rarity, n) for n, rarity in total.items()), reverse=True)]


def _match_sql(keep: Filter, columns: str, rest: str = "") -> str:
    """Return the statement that selects the matches of an expression in a range of numbers."""
    return (
        f"SELECT {columns} FROM words w {keep.joined('w.rowid')} "
        f"WHERE w.words MATCH ? AND w.rowid BETWEEN ? AND ? {keep.also} {rest}"
    )


def existing_joins(
    db: sqlite3.Connection, keys: Mapping[str, JoinKey], corpus: Corpus
) -> dict[str, Join]:
    """Return the keys under which memories exist, as joins."""
    if not keys or not corpus.scopes:
        return {}
    rows = db.execute(
        f"SELECT key, sum(memories) FROM anchor WHERE key IN ({marks(tuple(keys))}) "
        f"AND scope IN ({marks(corpus.scopes)}) GROUP BY key",
        (*keys, *corpus.scopes),
    )
    return {key: _join(keys[key], int(count)) for key, count in rows}


def _join(key: JoinKey, holding: int) -> Join:
    stems = () if key.symbol else tuple(stemmer().stems(word_list(key.name)))
    return Join(key.strength, key.symbol, holding, stems)


def by_anchors(
    db: sqlite3.Connection, joins: Mapping[str, Join], corpus: Corpus, keep: Filter
) -> list[int]:
    """Return the numbers of the newest memories under these keys, strictest keys first."""
    numbers: dict[int, None] = {}
    for key in sorted(joins, key=lambda key: (-joins[key].strength, joins[key].holding)):
        for scope in corpus.scopes:
            numbers.update(dict.fromkeys(_about(db, key, scope, keep)))
        if len(numbers) >= MAX_JOINED:
            break
    return list(numbers)[:MAX_JOINED]


def _about(db: sqlite3.Connection, key: str, scope: int, keep: Filter) -> list[int]:
    rows = db.execute(
        "SELECT a.n FROM anchor k JOIN about a ON a.anchor = k.no "
        f"{keep.joined('a.n')} WHERE k.key = ? AND k.scope = ? {keep.also} "
        "ORDER BY a.n DESC LIMIT ?",
        (key, scope, *keep.values, PER_ANCHOR),
    )
    return [row[0] for row in rows]


def by_triggers(
    db: sqlite3.Connection, triggers: Sequence[str], corpus: Corpus, keep: Filter
) -> dict[int, str]:
    """Map the numbers of the newest memories with one of these triggers to that trigger; the first
    trigger wins."""
    numbers: dict[int, str] = {}
    for trigger in triggers:
        for low, high in ranges(corpus.scopes):
            rows = db.execute(
                f"SELECT t.n FROM memory_trigger t {keep.joined('t.n')} "
                f"WHERE t.trigger = ? AND t.n BETWEEN ? AND ? {keep.also} "
                "ORDER BY t.n DESC LIMIT ?",
                (sound(trigger), low, high, *keep.values, PER_TRIGGER),
            )
            for (n,) in rows:
                numbers.setdefault(n, trigger)
    return numbers


def neighbours(numbers: Iterable[int]) -> set[int]:
    """Return the numbers directly before and after these, in the same scope."""
    near: set[int] = set()
    for n in numbers:
        near |= {other for other in (n - 1, n + 1) if scope_of(other) == scope_of(n)}
    return near


def candidates(
    db: sqlite3.Connection,
    numbers: Iterable[int],
    stems: Collection[str] = (),
    keep: Filter | None = None,
) -> dict[int, Candidate]:
    """Load the memories with these numbers, with the counts of `stems` in them. Deleted
    memories, and memories that fail `keep`, are left out."""
    rows: list[Sequence[Any]] = []
    for chunk in chunks(numbers):
        rows += db.execute(
            f"SELECT n, extra, keys, {COLUMNS} FROM memory WHERE n IN ({marks(chunk)})", chunk
        ).fetchall()
    if keep is not None:
        rows = [row for row in rows if keep.passes(row[3:])]
    texts = [words_of(text_of(row[3 + _TEXT])[:MAX_COUNTED_CHARS]) for row in rows]
    bodies = stem_counts(texts, stems)
    extras = stem_counts([words_of(row[1]) for row in rows], stems)
    parts = zip(rows, texts, bodies, extras, strict=True)
    return {row[0]: _candidate(row, text, body, extra) for row, text, body, extra in parts}


def _candidate(
    row: Sequence[Any], text: Worded, body: Mapping[str, int], extra: Mapping[str, int]
) -> Candidate:
    n, _, keys, *columns = row
    return Candidate(
        n=n,
        id=columns[_ID],
        namespace=columns[_NAMESPACE],
        body=body,
        words=len(text.words),
        extra=extra,
        keys=tuple(keys.split("\n")) if keys else (),
        speaker="" if keys else text.speaker,
        load=partial(from_row, columns),
    )


def best_bm25(
    db: sqlite3.Connection, reading: Reading, corpus: Corpus, numbers: Sequence[int]
) -> float:
    """Return the best BM25 of these memories for a reading, or 0 if there are no memories."""
    matches = candidates(db, numbers, reading.idf.keys()).values()
    parts = [Part(candidate, frequencies(reading, candidate)) for candidate in matches]
    return max((bm25(reading, corpus, [part]) for part in parts), default=0.0)
