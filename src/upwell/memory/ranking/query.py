"""Read a query against a corpus: find its words, their stems, and how rare each stem is in the
corpus."""

import math
from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from upwell.memory.ranking.terms import EVERYDAY_WORDS, names_in

MAX_TEXTS = 3
"""How many of a query's texts are searched (seed 003, tests/NAMES.md)."""
MAX_WORDS = 96
"""Only this many words of a text are looked up. That is enough to show what a pasted file is
about."""
MAX_NAMED_CHARS = 4_000
LEAST_MEMORIES = 500
COMMON_SHARE = 0.05


class Corpus(Struct, frozen=True):
    """The memories that a query may see: the numbers of their scopes, the number of memories, and
    the total number of words."""

    scopes: tuple[int, ...]
    memories: int
    words: int

    @property
    def mean_words(self) -> float:
        return max(1.0, self.words / self.memories) if self.memories else 1.0

    @property
    def rarest(self) -> float:
        """The idf of a word that only one memory contains."""
        return self.idf(1)

    def idf(self, holding: int, *, common: bool = False) -> float:
        """Return the rarity of a word that `holding` memories contain (Robertson/Sparck Jones idf,
        never negative).

        A few memories do not show which words are rare, so a small store is treated as if imaginary
        memories filled it up to `LEAST_MEMORIES`. If the word is `common`, one in twenty of these
        is assumed to contain it.
        """
        size = max(self.memories, LEAST_MEMORIES)
        total = holding + (COMMON_SHARE * (size - self.memories) if common else 0.0)
        return _idf(size, total)


@lru_cache(maxsize=1024)
def _idf(size: int, holding: float) -> float:
    return math.log(1.0 + (max(0.0, size - holding) + 0.5) / (holding + 0.5))


class QueryReading(Struct, frozen=True):
    """A query text, read against a corpus.

    `idf` contains every stem of the text, even if no memory has it, and `mass` is the sum of `idf`.
    `holding` maps each stem to the number of memories that have it. `telling` contains the stems
    of words that are not everyday words. `names` contains the stems of words that look like names.
    `in_vocabulary` is the share of stems that occur in some memory.
    """

    text: str
    words: tuple[str, ...]
    stems: tuple[str, ...]
    idf: Mapping[str, float]
    holding: Mapping[str, int]
    telling: frozenset[str]
    names: frozenset[str]
    mass: float
    in_vocabulary: float


def reading_of(
    text: str, word_of: Mapping[str, str], holding: Mapping[str, int], corpus: Corpus
) -> QueryReading:
    """Read `text` against `corpus`. `word_of` maps each stem of the text to the first word with
    that stem. `holding` is as in `QueryReading`."""
    names = names_in(text[:MAX_NAMED_CHARS])
    idf = {
        stem: corpus.idf(holding[stem], common=word in EVERYDAY_WORDS)
        for stem, word in word_of.items()
    }
    return QueryReading(
        text=text,
        words=tuple(word_of.values()),
        stems=tuple(word_of),
        idf=idf,
        holding=holding,
        telling=frozenset(stem for stem, word in word_of.items() if word not in EVERYDAY_WORDS),
        names=frozenset(stem for stem, word in word_of.items() if word in names),
        mass=sum(idf.values()),
        in_vocabulary=sum(map(bool, holding.values())) / len(word_of) if word_of else 0.0,
    )
