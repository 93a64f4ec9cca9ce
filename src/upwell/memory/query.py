"""Reading a query: which of its words to look up, how rare each is where the query may look, and
the full-text expression that finds candidates at a bounded cost.

FTS5 scores every row that matches, so the cost of a query is the sum of its words' document
frequencies (532 ms for 30 words at 100 000 memories). Rare words go in alone while a budget of
rows lasts; common ones only in pairs that must both be there.
"""

import math
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from upwell.memory.everyday import EVERYDAY_WORDS
from upwell.memory.terms import names_in, query_words, stemmer

MAX_WORDS = 96
"""Words of a query that are looked at; a pasted file says what it is about before that."""
MAX_NAMED_CHARS = 4_000
ROW_BUDGET = 1_000
"""Rows a full-text search may read, 2 to 6 µs of CPU each."""
MAX_PAIRS, MAX_PAIRED = 2, 20_000
"""Pairs of common words that are looked up, and how common the rarer of them may be."""
ONLY_NEWEST_BEYOND = 60_000
LEAST_MEMORIES = 500
COMMON_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Corpus:
    """The scopes a query may see, and their size."""

    scopes: tuple[int, ...]
    memories: int
    words: int

    @property
    def mean_words(self) -> float:
        return max(1.0, self.words / self.memories) if self.memories else 1.0

    @property
    def rarest(self) -> float:
        """The idf of what one memory holds."""
        return self.idf(1)

    def idf(self, holding: int, *, common: bool = False) -> float:
        """Rarity of what `holding` memories hold (Robertson/Sparck Jones, never negative).

        A store of a few memories does not know which words are rare: it is filled up to
        `LEAST_MEMORIES` with memories unseen, of which one in twenty holds a `common` word.
        """
        size = max(self.memories, LEAST_MEMORIES)
        held = holding + (COMMON_SHARE * (size - self.memories) if common else 0.0)
        return _idf(size, held)


@lru_cache(maxsize=1024)
def _idf(size: int, held: float) -> float:
    return math.log(1.0 + (max(0.0, size - held) + 0.5) / (held + 0.5))


@dataclass(frozen=True, slots=True)
class Clause:
    """A part of a full-text expression: a word, or two that must both be there, with their
    stems."""

    expression: str
    stems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """A query text, read against a corpus.

    `idf` holds every stem of the query, also those that no memory has, `mass` is its sum;
    `holding` how many memories hold each; `telling` are those that are no everyday words, `names`
    those that look like names; `in_vocabulary` is the share that some memory holds; memories that
    hold any of `clauses` are candidates.
    """

    text: str
    words: tuple[str, ...]
    stems: tuple[str, ...]
    idf: dict[str, float]
    holding: dict[str, int]
    telling: frozenset[str]
    names: frozenset[str]
    mass: float
    in_vocabulary: float
    clauses: tuple[Clause, ...]
    newest_only: bool

    @property
    def match(self) -> str:
        """The clauses as one FTS5 expression."""
        return " OR ".join(clause.expression for clause in self.clauses)


def corpus(db: sqlite3.Connection, scopes: Sequence[int]) -> Corpus:
    """How much there is in these scopes."""
    marks = ",".join("?" * len(scopes))
    memories, words = db.execute(
        "SELECT coalesce(sum(memories), 0), coalesce(sum(words), 0) "
        f"FROM scope WHERE no IN ({marks})",
        tuple(scopes),
    ).fetchone()
    return Corpus(tuple(scopes), int(memories), int(words))


def read(db: sqlite3.Connection, text: str, within: Corpus) -> Reading:
    """`text` against `within`."""
    words = query_words(text)[:MAX_WORDS]
    names = names_in(text[:MAX_NAMED_CHARS])
    by_stem: dict[str, str] = {}
    for word, stem in zip(words, stemmer().stems(words), strict=True):
        by_stem.setdefault(stem, word)
    holding = _holding(db, tuple(by_stem), within.scopes)
    clauses, newest_only = _clauses(by_stem, holding, within.memories)
    idf = {
        stem: within.idf(holding[stem], common=word in EVERYDAY_WORDS)
        for stem, word in by_stem.items()
    }
    return Reading(
        text=text,
        words=tuple(by_stem.values()),
        stems=tuple(by_stem),
        idf=idf,
        holding=holding,
        telling=frozenset(stem for stem, word in by_stem.items() if word not in EVERYDAY_WORDS),
        names=frozenset(stem for stem, word in by_stem.items() if word in names),
        mass=sum(idf.values()),
        in_vocabulary=sum(map(bool, holding.values())) / len(by_stem) if by_stem else 0.0,
        clauses=tuple(clauses),
        newest_only=newest_only,
    )


def _holding(db: sqlite3.Connection, stems: Sequence[str], scopes: Sequence[int]) -> dict[str, int]:
    if not stems or not scopes:
        return dict.fromkeys(stems, 0)
    stem_marks, scope_marks = (",".join("?" * len(part)) for part in (stems, scopes))
    rows = db.execute(
        f"SELECT stem, sum(memories) FROM term WHERE stem IN ({stem_marks}) "
        f"AND scope IN ({scope_marks}) GROUP BY stem",
        (*stems, *scopes),
    )
    return dict.fromkeys(stems, 0) | {stem: int(count) for stem, count in rows}


def _clauses(
    by_stem: dict[str, str], holding: dict[str, int], memories: int
) -> tuple[list[Clause], bool]:
    """What to look up, and whether it matches so much that only the newest are looked at."""
    known = sorted((stem for stem in by_stem if holding[stem]), key=lambda stem: holding[stem])
    budget = ROW_BUDGET
    clauses: list[Clause] = []
    while known and holding[known[0]] <= budget:
        stem = known.pop(0)
        budget -= holding[stem]
        clauses.append(Clause(quoted(by_stem[stem]), (stem,)))
    for left, right in list(pairwise(known))[:MAX_PAIRS]:
        both = holding[left] * holding[right] / max(1, memories)
        if both > budget or holding[left] > MAX_PAIRED:
            break
        budget -= int(both)
        both_words = f"({quoted(by_stem[left])} AND {quoted(by_stem[right])})"
        clauses.append(Clause(both_words, (left, right)))
    if not clauses and known:
        rarest = known[0]
        return [Clause(quoted(by_stem[rarest]), (rarest,))], holding[rarest] > ONLY_NEWEST_BEYOND
    return clauses, False


def quoted(word: str) -> str:
    """A word as an FTS5 string: nothing of it can be syntax."""
    return '"' + word.replace('"', '""') + '"'
