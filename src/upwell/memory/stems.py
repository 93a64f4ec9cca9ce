"""Stem words exactly as SQLite does.

SQLite's own tokenizer computes the stems: words are inserted into an in-memory FTS5 table, and
fts5vocab returns their stems. Counting, scoring and matching therefore agree on the stem of a word.
"""

import sqlite3
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

from msgspec import Struct, field

from upwell.ground.text.words import fold
from upwell.memory.ranking.terms import IndexedText, Worded, word_list

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
        learned = {word: word for word in words if _is_own_stem(word)}
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


def _is_own_stem(word: str) -> bool:
    """A word that ends in a digit has no suffix to remove (Porter 1980)."""
    return word.isascii() and word[-1:].isdigit()


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
