"""Words of candidates: only those that may have one of the stems are stemmed, and no word is
missed."""

import random
from string import ascii_lowercase

from upwell.memory.lookups import beginnings, stem_counts, stemmer
from upwell.memory.ranking.terms import EVERYDAY_WORDS, word_list, words_of

ENDINGS = ("", "s", "es", "ies", "ed", "ing", "y", "ly", "ation", "ness", "ement", "izer", "eed")


def test_every_word_of_a_stem_is_counted() -> None:
    text = "The caches cached what caching 7 caches; Übersicht, 東京 and urllib3 are no cache"
    expected = set(stemmer().stems(["cache", "ubersicht", "urllib3", "7", "missing"]))
    [result] = stem_counts([words_of(text)], expected)
    assert result == {"cach": 5, "ubersicht": 1, "urllib3": 1, "7": 1}


def test_every_word_begins_as_its_stem_says() -> None:
    rng = random.Random(3)
    made = {"".join(rng.choices(ascii_lowercase, k=rng.randint(1, 4))) for _ in range(4_000)}
    words = sorted({stem + rng.choice(ENDINGS) for stem in made} | set(EVERYDAY_WORDS))
    words = [word for word in words if word_list(word) == [word]]
    for word, stem in zip(words, stemmer().stems(words), strict=True):
        begin = beginnings([stem])
        assert word[:2] in begin or word[:1] in begin, (word, stem)
        assert stem_counts([words_of(word)], [stem]) == [{stem: 1}], (word, stem)
