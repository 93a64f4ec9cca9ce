"""For all stores: plan the lookups of a query, turn rows into candidates, and recognise duplicates.

Scoring every memory that contains any word of a query would be slow: FTS5 takes 532 ms for 30 words
and 100,000 memories. The cost grows with the sum of the words' document frequencies. Words are
therefore looked up one by one, rarest first, until a budget of rows is used up. Commoner words are
looked up only in pairs: a memory must contain both words.

SQLite's own tokenizer computes the stems of words, for every store: words are inserted into an
in-memory FTS5 table, and fts5vocab returns their stems. Counting, scoring and matching therefore
agree on the stem of a word.
"""

import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

from msgspec import Struct, field

from upwell.ground.text.words import fold
from upwell.ground.types.memory import Memory
from upwell.memory.ranking.signals import MAX_COUNTED_CHARS, Candidate, Join, JoinKey
from upwell.memory.ranking.terms import (
    MAX_WORDS,
    Corpus,
    IndexedText,
    QueryReading,
    Worded,
    query_words,
    reading_of,
    sound,
    word_list,
    words_of,
)

TOKENIZER = "porter unicode61 remove_diacritics 2"
"""The tokenizer of SQLite's full-text index, whose stems every store uses."""
MAX_CACHED_STEMS = 200_000
_SHARED_CHARS = 2
"""How many leading characters a word shares with its stem (Porter 1980). `beginnings()` handles the
exceptions."""


class Stemmer:
    """Maps folded words to their stems with SQLite's Porter tokenizer. Safe to share between
    threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stems: dict[str, str] = {}
        self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._db.execute(f"CREATE VIRTUAL TABLE scratch USING fts5 (t, tokenize = '{TOKENIZER}')")
        self._db.execute("CREATE VIRTUAL TABLE seen USING fts5vocab (scratch, instance)")

    def stems(self, words: Iterable[str]) -> list[str]:
        """Return the stem of each word, in the same order. Words must consist of letters and
        digits."""
        listed = list(words)
        cached = self._stems
        try:
            return [cached[word] for word in listed]
        except KeyError:
            learned = self._learn({word for word in listed if word not in cached})
            return [learned.get(word) or cached.get(word) or fold(word) for word in listed]

    def close(self) -> None:
        self._db.close()

    def _learn(self, words: set[str]) -> dict[str, str]:
        # A word that ends in a digit has no suffix to remove (Porter 1980).
        learned = {word: word for word in words if word.isascii() and word[-1:].isdigit()}
        learned |= self._tokenized(sorted(words - learned.keys()))
        with self._lock:
            if len(self._stems) > MAX_CACHED_STEMS:
                self._stems = {}
            self._stems.update(learned)
        return learned

    def _tokenized(self, words: Sequence[str]) -> dict[str, str]:
        """Return the stem of each word from SQLite. If SQLite splits a word, its tokens no longer
        match the words by position, so every word is returned without stemming."""
        if not words:
            return {}
        with self._lock:
            self._db.execute("BEGIN")
            self._db.execute("INSERT INTO scratch VALUES (?)", (" ".join(words),))
            by_place = dict(self._db.execute("SELECT offset, term FROM seen").fetchall())
            self._db.execute("ROLLBACK")
        agrees = len(by_place) == len(words)
        return {word: by_place[index] if agrees else fold(word) for index, word in enumerate(words)}


@lru_cache(maxsize=1)
def stemmer() -> Stemmer:
    return Stemmer()


def counted(text: str) -> Counter[str]:
    return Counter(stemmer().stems(word_list(text)))


class Tally(Struct):
    """The changes that a batch of writes makes to the counts of one scope. `words` is the length of
    the texts, and `tokens` that of the texts and the extra words."""

    memories: int = 0
    words: int = 0
    tokens: int = 0
    stems: Counter[str] = field(default_factory=Counter)
    anchors: Counter[str] = field(default_factory=Counter)

    def count(
        self, parts: IndexedText, keys: Iterable[str], sign: int
    ) -> tuple[Counter[str], Counter[str]]:
        """Add a memory (`sign` 1), or subtract it (-1). Returns the counts of the stems in its text
        and in its extra words."""
        body, extra = counted(parts.body), counted(parts.extra)
        self.memories += sign
        self.words += sign * body.total()
        self.tokens += sign * (body.total() + extra.total())
        for stem in body.keys() | extra.keys():
            self.stems[stem] += sign
        for key in keys:
            self.anchors[key] += sign
        return body, extra


def stem_counts(texts: Sequence[Worded], stems: Collection[str]) -> list[Counter[str]]:
    """Count these `stems` in each text; absent stems are left out. To save time, only words that
    begin like one of the stems are stemmed, and the words of all texts are stemmed at once."""
    stem_of = _stems_of(set().union(*(text.words for text in texts)), stems)
    return [Counter([stem_of[word] for word in text.words if word in stem_of]) for text in texts]


def beginnings(stems: Iterable[str]) -> set[str]:
    """Return the possible beginnings of words with these stems: the first two characters of the
    stem, or the whole stem if it has only one (`aed` has the stem `a`). A `y` in the word can
    become an `i` in the stem (`aying` has the stem `ai`)."""
    starts: set[str] = set()
    for stem in stems:
        starts.add(stem[:_SHARED_CHARS])
        if stem[1:_SHARED_CHARS] == "i":
            starts.add(stem[0] + "y")
    return starts


def _stems_of(words: Collection[str], stems: Collection[str]) -> dict[str, str]:
    starts = beginnings(stems)
    likely = [word for word in words if word[:_SHARED_CHARS] in starts]
    if short := {start for start in starts if len(start) < _SHARED_CHARS}:
        likely += [
            word for word in words if word[:1] in short and word[:_SHARED_CHARS] not in starts
        ]
    pairs = zip(likely, stemmer().stems(likely), strict=True)
    return {word: stem for word, stem in pairs if stem in stems}


NEARLY_THE_SAME = 0.8
"""Two memories that share at least this fraction of their stems (Jaccard) are near duplicates."""
MAX_CHECKED = 200
"""The largest batch that is checked for near duplicates. A larger batch is an import, for which
only exact duplicates are reported."""
MAX_REPORTED = 5
MAX_HOLDING = 2_000
"""If even the rarest word of a text occurs in more memories than this, the text is not checked for
near duplicates."""
COMPARED = 8


def rarest_stems(stems: Sequence[str], holding: Mapping[str, int]) -> list[str]:
    """Return the stems by which to look up near duplicates of a text, rarest first. `stems` are all
    stems of the text. Two texts that share 80 % of their words also share at least one of the
    rarest fifth, so only that fifth is looked up (prefix filtering, Chaudhuri et al. 2006)."""
    known = sorted((stem for stem in stems if holding.get(stem)), key=lambda stem: holding[stem])
    if not known or holding[known[0]] > MAX_HOLDING:
        return []
    return known[: len(stems) // 5 + 1]


def duplicates_of(
    memories: Sequence[Memory],
    exact: Mapping[str, Sequence[str]],
    near: Mapping[str, Sequence[str]],
) -> list[tuple[str, ...]]:
    """Return the ids of up to `MAX_REPORTED` duplicates of each memory: the exact ones in the
    store, the first of `memories` that has the same text, and the near ones in the store. A memory
    with the same id does not count. `exact` and `near` are by the ids of `memories`."""
    earlier: dict[tuple[str | None, str], str] = {}
    groups = []
    for memory in memories:
        first = earlier.setdefault((memory.project, memory.content_hash), memory.id)
        same = dict.fromkeys([*exact.get(memory.id, ()), first, *near.get(memory.id, ())])
        groups.append(tuple(id for id in same if id != memory.id)[:MAX_REPORTED])
    return groups


def are_alike(text: str, other: str) -> bool:
    left, right = set(counted(sound(text))), set(counted(sound(other)))
    return bool(left | right) and len(left & right) / len(left | right) >= NEARLY_THE_SAME


SEQUENCE_BITS = 34
"""The low bits of a memory's number are its position in its project. The bits above them are the
number of the project's scope, so the memories of a scope form a range."""
SHUFFLE_FACTOR, SHUFFLE_PRIME = 1_103_515_245, 2**31 - 1
"""Searches by meaning draw samples of memories in the order of `number % prime * factor % prime`.
This order has nothing to do with the memories' content, and is the same in every store."""
ROW_BUDGET = 1_000
"""The number of rows that a lookup of words should find at most. A lookup exceeds it if even its
rarest word is commoner and no pair fits. With FTS5, each row costs 2 to 6 µs of CPU."""
MAX_PAIRS, MAX_PAIRED = 2, 20_000
"""The maximum number of pairs of common words, and the maximum number of memories that may contain
the rarer word of a pair."""
ONLY_NEWEST_BEYOND = 2_000
"""If a lookup has only one word, and more memories than this contain it, only the newest of them
are found. Ordering them by BM25 would require reading the length of each."""
PER_TEXT = 40
FEW_CLAUSES = 3
"""With one clause, or up to this many single words, many memories match equally well, so the
matches are ordered by BM25. Otherwise, they are ordered by the rarity of the words in each memory,
which finds the same memories at a lower cost."""
PER_ANCHOR = 60
PER_TRIGGER = 8
MAX_JOINED = 160
"""How many memories become candidates: the newest of each scope for each file or symbol, the newest
of each range of scopes for each trigger, and in total for all files and symbols."""


class Clause(Struct, frozen=True):
    """A part of a lookup: one word, or two words that must both occur, and their stems."""

    words: tuple[str, ...]
    stems: tuple[str, ...]


class Lookup(Struct, frozen=True):
    """Memories that match any of `clauses` are candidates. If `newest_only`, the only clause is a
    very common word, and only the newest memories with this word become candidates."""

    reading: QueryReading
    clauses: tuple[Clause, ...]
    newest_only: bool

    def rarity(self, clause: Clause) -> float:
        """Return the sum of the rarities of the clause's words."""
        return sum(self.reading.idf[stem] for stem in clause.stems)

    @property
    def needs_bm25(self) -> bool:
        """Whether matches are ordered by BM25 rather than by the rarity of their words."""
        has_pair = any(len(clause.words) > 1 for clause in self.clauses)
        return len(self.clauses) <= (1 if has_pair else FEW_CLAUSES)


class MemoryRow(Struct, frozen=True):
    """A memory's row in a store. `extra` has the additional words to index
    (`memory/ranking/terms.py`). `keys` has the join keys, one on each line."""

    n: int
    id: str
    namespace: str
    text: str
    extra: str
    keys: str
    load: Callable[[], Memory]


def words_by_stem(text: str) -> dict[str, str]:
    """Map each stem in a query to the first word that has this stem, in the order of the text."""
    words = query_words(text)[:MAX_WORDS]
    word_of: dict[str, str] = {}
    for word, stem in zip(words, stemmer().stems(words), strict=True):
        word_of.setdefault(stem, word)
    return word_of


def planned(
    text: str, word_of: Mapping[str, str], holding: Mapping[str, int], corpus: Corpus
) -> Lookup:
    """Plan the lookup for a text. `word_of` is the result of `words_by_stem()` for the text.
    `holding` maps each stem to the number of memories in `corpus` that contain it."""
    known = sorted((stem for stem in word_of if holding[stem]), key=lambda stem: holding[stem])
    budget = ROW_BUDGET
    clauses: list[Clause] = []
    newest_only = False
    while known and holding[known[0]] <= budget:
        stem = known.pop(0)
        budget -= holding[stem]
        clauses.append(Clause((word_of[stem],), (stem,)))
    for left, right in list(pairwise(known))[:MAX_PAIRS]:
        both = holding[left] * holding[right] / max(1, corpus.memories)
        if both > budget or holding[left] > MAX_PAIRED:
            break
        budget -= int(both)
        clauses.append(Clause((word_of[left], word_of[right]), (left, right)))
    if not clauses and known:
        clauses.append(Clause((word_of[known[0]],), (known[0],)))
        newest_only = holding[known[0]] > ONLY_NEWEST_BEYOND
    return Lookup(reading_of(text, word_of, holding, corpus), tuple(clauses), newest_only)


def worthwhile(lookups: Sequence[Lookup]) -> Sequence[Lookup]:
    """Leave out each lookup if another text contains all of its words. The other lookup finds the
    memories that match these words and more, which rank higher."""
    widest: list[Lookup] = []
    for lookup in sorted(lookups, key=lambda lookup: -len(lookup.reading.idf)):
        if not any(lookup.reading.idf.keys() <= wider.reading.idf.keys() for wider in widest):
            widest.append(lookup)
    return widest


def join_of(key: JoinKey, holding: int) -> Join:
    """Return the join for a key under which `holding` memories are stored."""
    stems = () if key.symbol else tuple(stemmer().stems(word_list(key.name)))
    return Join(key.strength, key.symbol, holding, stems)


def strictest_first(joins: Mapping[str, Join]) -> list[str]:
    """Return the keys of these joins, strongest first. Of equally strong joins, those with the
    fewest memories come first."""
    return sorted(joins, key=lambda key: (-joins[key].strength, joins[key].holding))


def stems_to_count(readings: Iterable[QueryReading], joins: Mapping[str, Join]) -> set[str]:
    """Return all stems whose occurrences in the candidates must be counted."""
    names = {stem for join in joins.values() for stem in join.stems}
    return names.union(*(reading.idf.keys() for reading in readings))


def scope_of(n: int) -> int:
    return n >> SEQUENCE_BITS


def ranges(scopes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of memory numbers in these scopes, in order. Adjacent ranges are joined."""
    start: int | None = None
    for index, number in enumerate(scopes):
        start = number if start is None else start
        if index + 1 == len(scopes) or scopes[index + 1] != number + 1:
            yield start << SEQUENCE_BITS, ((number + 1) << SEQUENCE_BITS) - 1
            start = None


def neighbours(numbers: Iterable[int]) -> set[int]:
    near: set[int] = set()
    for n in numbers:
        near |= {other for other in (n - 1, n + 1) if scope_of(other) == scope_of(n)}
    return near


def candidates_from(rows: Sequence[MemoryRow], stems: Collection[str]) -> dict[int, Candidate]:
    """Turn rows into candidates with the counts of `stems`, and map each memory's number to its
    candidate."""
    texts = [words_of(row.text[:MAX_COUNTED_CHARS]) for row in rows]
    bodies = stem_counts(texts, stems)
    extras = stem_counts([words_of(row.extra) for row in rows], stems)
    return {
        row.n: Candidate(
            n=row.n,
            id=row.id,
            namespace=row.namespace,
            body=body,
            words=len(text.words),
            extra=extra,
            keys=tuple(row.keys.split("\n")) if row.keys else (),
            speaker="" if row.keys else text.speaker,
            load=row.load,
        )
        for row, text, body, extra in zip(rows, texts, bodies, extras, strict=True)
    }


def last_successor(direct: Mapping[str, str], start: str) -> str:
    """Return the end of the chain of successors that begins at `start`. If the chain is a cycle,
    return the last memory before it repeats. `direct` maps each superseded id to the id of its
    direct successor."""
    visited = {start}
    last = direct[start]
    while last in direct and direct[last] not in visited:
        visited.add(last)
        last = direct[last]
    return last
