"""Look up the memories that might match a query, before any of them is scored.

In the same way, find duplicates of added memories, which are reported but never merged, and look up
random queries, to measure the null scores of each scope (`memory/ranking/calibrate.py`).
"""

import random
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import batched
from typing import Any

from msgspec import Struct

from upwell.ground.project import owners_of
from upwell.ground.sqlite.database import Database
from upwell.ground.types.memory import Memory, Scope
from upwell.ground.types.rpc import is_visible
from upwell.memory.lookups import (
    COMPARED,
    MAX_CHECKED,
    MAX_JOINED,
    MAX_REPORTED,
    PER_ANCHOR,
    PER_TEXT,
    PER_TRIGGER,
    SEQUENCE_BITS,
    Clause,
    Lookup,
    MemoryRow,
    are_alike,
    candidates_from,
    duplicates_of,
    join_of,
    last_successor,
    planned,
    ranges,
    rarest_stems,
    strictest_first,
    words_by_stem,
)
from upwell.memory.ranking.calibrate import (
    BEST_OF,
    MAX_SAMPLE_CHARS,
    SAMPLES,
    SIZES,
    NullScores,
    is_due,
    mean_and_spread,
    random_queries,
    usual,
)
from upwell.memory.ranking.signals import (
    Candidate,
    Join,
    JoinKey,
    best_bm25,
    exact_keys,
)
from upwell.memory.ranking.terms import Corpus, query_words, sound
from upwell.memory.sqlite.rows import (
    CHUNK,
    COLUMNS,
    PROJECT_BITS,
    by_number,
    from_row,
    marks,
    scope_number,
    seen_by,
    text_of,
    within,
)

_ID, _NAMESPACE, _TEXT, _EXPIRES, _PINNED = (
    COLUMNS.split(", ").index(name) for name in ("id", "namespace", "text", "expires_at", "pinned")
)


_LONGEST_CHAIN = 100


class SqliteFilter(Struct, frozen=True):
    """Selects the memories that a search may return: those that are in `namespaces` (an empty tuple
    means any namespace) and have not expired at `now`. Standing rules are excluded, because they
    are delivered separately. `condition` is an SQL condition on a row `m`, and `values` are the
    values of its placeholders."""

    namespaces: tuple[str, ...]
    now: float
    condition: str
    values: tuple[object, ...]

    def joined(self, n: str) -> str:
        """Return the SQL that joins the row of memory `n` as `m`, or "" without a condition."""
        return f"JOIN memory m ON m.n = {n}" if self.condition else ""

    @property
    def also(self) -> str:
        return f"AND {self.condition}" if self.condition else ""

    def passes(self, row: Sequence[Any]) -> bool:
        if row[_PINNED] or not is_visible(row[_NAMESPACE], self.namespaces):
            return False
        return row[_EXPIRES] is None or row[_EXPIRES] > self.now


def filter_of(
    db: sqlite3.Connection, namespaces: tuple[str, ...] = (), now: float = 0.0
) -> SqliteFilter:
    """Return the filter for a search. It checks for expired memories and standing rules only if the
    file contains any."""
    conditions: list[str] = []
    values: list[object] = []
    if namespaces:
        condition, names = within("m.namespace", namespaces)
        conditions.append(condition)
        values += names
    expired = "SELECT 1 FROM memory WHERE expires_at <= ? LIMIT 1"
    if db.execute(expired, (now,)).fetchone():
        conditions.append("(m.expires_at IS NULL OR m.expires_at > ?)")
        values.append(now)
    if db.execute("SELECT 1 FROM memory WHERE pinned LIMIT 1").fetchone():
        conditions.append("NOT m.pinned")
    return SqliteFilter(namespaces, now, " AND ".join(conditions), tuple(values))


def corpus_of(db: sqlite3.Connection, number: int) -> Corpus:
    return _corpus(db.execute("SELECT no, memories, words FROM scope WHERE no = ?", (number,)))


def corpus_seen_by(db: sqlite3.Connection, scope: Scope) -> Corpus:
    condition, values = seen_by(scope)
    return _corpus(
        db.execute(f"SELECT no, memories, words FROM scope WHERE {condition} ORDER BY no", values)
    )


def _corpus(rows: Iterable[tuple[int, int, int]]) -> Corpus:
    numbers, memories, words = tuple(zip(*rows, strict=True)) or ((), (), ())
    if not all(type(count) is int for count in (*memories, *words)):
        # A count is damaged. After this error, the database repairs the file and reads again.
        raise ValueError(f"{memories!r:.40} memories with {words!r:.40} words")
    return Corpus(numbers, sum(memories), sum(words))


def read(db: sqlite3.Connection, text: str, corpus: Corpus) -> Lookup:
    word_of = words_by_stem(text)
    return planned(text, word_of, memories_with(db, tuple(word_of), corpus.scopes), corpus)


def memories_with(
    db: sqlite3.Connection, stems: Sequence[str], scopes: Sequence[int]
) -> dict[str, int]:
    if not stems or not scopes:
        return dict.fromkeys(stems, 0)
    rows = db.execute(
        f"SELECT stem, sum(memories) FROM term WHERE stem IN ({marks(stems)}) "
        f"AND scope IN ({marks(scopes)}) GROUP BY stem",
        (*stems, *scopes),
    )
    return dict.fromkeys(stems, 0) | {stem: int(count) for stem, count in rows}


def quoted(word: str) -> str:
    """Quote a word as an FTS5 string, so that FTS5 does not read it as syntax."""
    return '"' + word.replace('"', '""') + '"'


def matching(clause: Clause) -> str:
    """Return a clause as an FTS5 expression."""
    words = " AND ".join(map(quoted, clause.words))
    return f"({words})" if len(clause.words) > 1 else words


def by_words(
    db: sqlite3.Connection,
    lookup: Lookup,
    corpus: Corpus,
    keep: SqliteFilter,
    limit: int = PER_TEXT,
) -> list[int]:
    """Return the numbers of the best matching memories, best first. Without `needs_bm25`, they are
    ordered by the rarity of the words that match. This takes a third as long as BM25, for which
    FTS5 counts all memories with each word, and looks up the length of every match."""
    if not lookup.clauses:
        return []
    if not lookup.needs_bm25:
        return _by_rarity(db, lookup, corpus, keep)[:limit]
    rank, order = ("-w.rowid", "w.rowid DESC") if lookup.newest_only else ("w.rank", "w.rank")
    sql = _match_sql(keep, f"{rank}, w.rowid", f"ORDER BY {order} LIMIT {limit:d}")
    match = " OR ".join(map(matching, lookup.clauses))
    rows: list[tuple[float, int]] = []
    for span in ranges(corpus.scopes):
        rows += db.execute(sql, (match, *span, *keep.values)).fetchall()
    return [n for _, n in sorted(rows)[:limit]]


def _by_rarity(
    db: sqlite3.Connection, lookup: Lookup, corpus: Corpus, keep: SqliteFilter
) -> list[int]:
    sql = _match_sql(keep, "w.rowid")
    total: dict[int, float] = {}
    for clause in lookup.clauses:
        rarity = lookup.rarity(clause)
        for span in ranges(corpus.scopes):
            for (n,) in db.execute(sql, (matching(clause), *span, *keep.values)):
                total[n] = total.get(n, 0.0) + rarity
    return [n for _, n in sorted(zip(total.values(), total, strict=True), reverse=True)]


def _match_sql(keep: SqliteFilter, columns: str, rest: str = "") -> str:
    return (
        f"SELECT {columns} FROM words w {keep.joined('w.rowid')} "
        f"WHERE w.words MATCH ? AND w.rowid BETWEEN ? AND ? {keep.also} {rest}"
    )


def existing_joins(
    db: sqlite3.Connection, keys: Mapping[str, JoinKey], corpus: Corpus
) -> dict[str, Join]:
    """Return the joins for those keys under which memories are stored."""
    if not keys or not corpus.scopes:
        return {}
    rows = db.execute(
        f"SELECT key, sum(memories) FROM anchor WHERE key IN ({marks(tuple(keys))}) "
        f"AND scope IN ({marks(corpus.scopes)}) GROUP BY key",
        (*keys, *corpus.scopes),
    )
    return {key: join_of(keys[key], int(count)) for key, count in rows}


def has_memory_about(db: sqlite3.Connection, file: str, scope: Scope) -> bool:
    """Return whether a query with this scope may see a memory about exactly this file. The result
    may also be True if there is only a memory about a file with a similar path."""
    keys = exact_keys(file)
    condition, values = seen_by(scope)
    rows = db.execute(
        f"SELECT 1 FROM anchor k JOIN scope s ON s.no = k.scope WHERE {condition} "
        f"AND k.key IN ({marks(keys)}) AND k.memories > 0 LIMIT 1",
        (*values, *keys),
    )
    return rows.fetchone() is not None


def by_anchors(
    db: sqlite3.Connection, joins: Mapping[str, Join], corpus: Corpus, keep: SqliteFilter
) -> list[int]:
    """Return the numbers of the newest memories under these keys, strictest keys first."""
    numbers: dict[int, None] = {}
    about = (
        "SELECT a.n FROM anchor k JOIN about a ON a.anchor = k.no "
        f"{keep.joined('a.n')} WHERE k.key = ? AND k.scope = ? {keep.also} "
        "ORDER BY a.n DESC LIMIT ?"
    )
    for key in strictest_first(joins):
        for scope in corpus.scopes:
            rows = db.execute(about, (key, scope, *keep.values, PER_ANCHOR))
            numbers.update(dict.fromkeys(row[0] for row in rows))
        if len(numbers) >= MAX_JOINED:
            break
    return list(numbers)[:MAX_JOINED]


def by_triggers(
    db: sqlite3.Connection, triggers: Sequence[str], corpus: Corpus, keep: SqliteFilter
) -> dict[int, str]:
    """Find the newest memories with each of these triggers, and map their numbers to the trigger. A
    memory with several of the triggers is mapped to the first."""
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


def candidates(
    db: sqlite3.Connection,
    numbers: Iterable[int],
    stems: Collection[str] = (),
    keep: SqliteFilter | None = None,
) -> dict[int, Candidate]:
    """Load the memories with these numbers, and count the occurrences of `stems` in them. Deleted
    memories are left out, as are memories that do not pass the filter `keep`."""
    rows: list[Sequence[Any]] = []
    for chunk in batched(numbers, CHUNK):
        rows += db.execute(
            f"SELECT n, extra, keys, {COLUMNS} FROM memory WHERE n IN ({marks(chunk)})", chunk
        ).fetchall()
    if keep is not None:
        rows = [row for row in rows if keep.passes(row[3:])]
    return candidates_from([_row(row) for row in rows], stems)


def _row(values: Sequence[Any]) -> MemoryRow:
    n, extra, keys, *columns = values
    text = text_of(columns[_TEXT])
    load = partial(from_row, columns)
    return MemoryRow(n, columns[_ID], columns[_NAMESPACE], text, extra, keys, load)


class Head(Struct, frozen=True):
    """The id and number of a memory that supersedes another."""

    id: str
    n: int


def successors(
    db: sqlite3.Connection, ids: Iterable[str], scopes: Sequence[int], now: float
) -> dict[str, Head]:
    """Map each id that was superseded within `scopes` to the newest existing memory in its chain of
    successors. The chains are read from the rows each time, so that a memory becomes current again
    when its successor is deleted or expires."""
    listed = list(dict.fromkeys(ids))
    superseding = "SELECT 1 FROM memory WHERE supersedes IS NOT NULL LIMIT 1"
    if not listed or db.execute(superseding).fetchone() is None:
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


def _direct(
    db: sqlite3.Connection, ids: Sequence[str], scopes: Sequence[int], now: float
) -> dict[str, Head]:
    heads: dict[str, Head] = {}
    spans = list(ranges(scopes))
    within = " OR ".join("n BETWEEN ? AND ?" for _ in spans)
    for chunk in batched(ids if spans else (), CHUNK):
        rows = db.execute(
            f"SELECT supersedes, id, n FROM memory WHERE supersedes IN ({marks(chunk)}) "
            f"AND (expires_at IS NULL OR expires_at > ?) AND ({within}) ORDER BY created_at, n",
            (*chunk, now, *(edge for span in spans for edge in span)),
        )
        heads.update((old, Head(new, n)) for old, new, n in rows if old != new)
    return heads


def find_duplicates(db: sqlite3.Connection, memories: Sequence[Memory]) -> list[tuple[str, ...]]:
    """Return the ids of a few duplicates of each memory in the same project. If the batch has more
    than `MAX_CHECKED` memories, near duplicates in the store are not found."""
    exact: dict[str, list[str]] = {}
    for memory in memories:
        rows = db.execute(
            "SELECT id FROM memory WHERE content_hash = ? AND tenant = ? AND project = ? "
            "ORDER BY n LIMIT ?",
            (memory.content_hash, memory.tenant, memory.project or "", MAX_REPORTED + 1),
        )
        exact[memory.id] = [row[0] for row in rows]
    few = memories if len(memories) <= MAX_CHECKED else ()
    return duplicates_of(memories, exact, {memory.id: _near(db, memory) for memory in few})


def _near(db: sqlite3.Connection, memory: Memory) -> list[str]:
    scope = scope_number(db, memory.tenant, memory.project)
    reading = read(db, memory.text, corpus_of(db, scope)).reading
    word_of = dict(zip(reading.stems, reading.words, strict=True))
    prefix = rarest_stems(reading.stems, reading.holding)
    if not prefix:
        return []
    match = " OR ".join(quoted(word_of[stem]) for stem in prefix)
    low, high = next(ranges([scope]))
    rows = db.execute(
        "SELECT rowid FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ? "
        "ORDER BY rank LIMIT ?",
        (match, low, high, COMPARED),
    )
    return [
        other.id
        for other in by_number(db, [row[0] for row in rows]).values()
        if are_alike(memory.text, other.text)
    ]


def key_of(db: sqlite3.Connection, scope: Scope, corpus: Corpus) -> int | None:
    """Return the key under which the null scores of `scope` are stored, or None if the corpus is
    empty. `corpus` describes the memories that the scope sees. The key is the number of the scope's
    project, or of the global project while the scope's project has no memories. For a whole tenant,
    the key is a negative number."""
    if not corpus.scopes:
        return None
    if scope.project is None:
        return -1 - (corpus.scopes[0] >> PROJECT_BITS)
    if len(corpus.scopes) == 1:
        return corpus.scopes[0]
    rows: dict[str, int] = dict(
        db.execute(
            f"SELECT project, no FROM scope WHERE no IN ({marks(corpus.scopes)})", corpus.scopes
        ).fetchall()
    )
    return next((rows[name] for name in owners_of(scope.project) if name in rows), None)


def null_scores_of(db: sqlite3.Connection, scope: Scope, corpus: Corpus) -> NullScores:
    """Load the null scores that were measured for this scope, or return the usual ones if none have
    been measured."""
    rows = db.execute(
        "SELECT mean, spread FROM background WHERE key = ? ORDER BY words",
        (key_of(db, scope, corpus),),
    ).fetchall()
    if len(rows) != len(SIZES):
        return usual(corpus)
    return NullScores(tuple(float(row[0]) for row in rows), tuple(float(row[1]) for row in rows))


def due_for_measuring(db: sqlite3.Connection, scopes: Iterable[Scope]) -> list[Scope]:
    """Return the scopes to measure: those that have enough memories, and that were never measured
    or have grown by more than the factor `GROWTH` since the last measurement."""
    found = []
    for scope in scopes:
        corpus = corpus_seen_by(db, scope)
        sql = "SELECT max(memories) FROM background WHERE key = ?"
        (before,) = db.execute(sql, (key_of(db, scope, corpus),)).fetchone()
        if is_due(corpus.memories, before):
            found.append(scope)
    return found


async def measure_null_scores(database: Database, scope: Scope) -> None:
    """Measure and store the null scores for the memories that this scope sees. Each size of query
    is measured in a separate read, so that searches can run in between."""

    def draw(db: sqlite3.Connection) -> tuple[Corpus, list[list[str]]]:
        corpus = corpus_seen_by(db, scope)
        return corpus, sample_words(db, corpus, random.Random(corpus.memories))

    corpus, samples = await database.read(draw)
    if not samples:
        return
    figures = [
        await database.read(partial(by_chance, corpus=corpus, samples=samples, words=words))
        for words in SIZES
    ]
    measured = NullScores(*zip(*figures, strict=True))

    def store(db: sqlite3.Connection) -> None:
        key = key_of(db, scope, corpus)
        db.execute("DELETE FROM background WHERE key = ?", (key,))
        db.executemany(
            "INSERT INTO background VALUES (?, ?, ?, ?, ?)",
            [
                (key, words, mean, spread, corpus.memories)
                for words, mean, spread in zip(SIZES, measured.mean, measured.spread, strict=True)
            ],
        )

    await database.write(store)


def sample_words(db: sqlite3.Connection, corpus: Corpus, rng: random.Random) -> list[list[str]]:
    """Draw random memories from the corpus, and return the words of each."""
    sizes = db.execute(
        f"SELECT no, last, memories FROM scope WHERE no IN ({marks(corpus.scopes)}) "
        "AND memories > 0",
        corpus.scopes,
    ).fetchall()
    samples: list[list[str]] = []
    for number, last, _ in rng.choices(sizes, [size[2] for size in sizes], k=4 * SAMPLES):
        low = number << SEQUENCE_BITS
        row = db.execute(
            "SELECT text FROM memory WHERE n BETWEEN ? AND ? ORDER BY n LIMIT 1",
            (low | rng.randint(1, last), low | last),
        ).fetchone()
        words = query_words(sound(text_of(row[0]))[:MAX_SAMPLE_CHARS]) if row else []
        if words:
            samples.append(words)
    return samples


def by_chance(
    db: sqlite3.Connection, corpus: Corpus, samples: Sequence[list[str]], words: int
) -> tuple[float, float]:
    """Return the mean and spread of the best scores of random queries, each with this number of
    words."""
    scores: list[float] = []
    for text in random_queries(samples, words):
        lookup = read(db, text, corpus)
        numbers = by_words(db, lookup, corpus, filter_of(db), BEST_OF)
        found = candidates(db, numbers, lookup.reading.idf.keys())
        scores.append(best_bm25(lookup.reading, corpus, found.values()))
    return mean_and_spread(scores)
