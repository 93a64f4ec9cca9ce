"""How often texts hold the stems that somebody asks for. The texts that were looked at last are
remembered, since the same few are candidates again and again."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from upwell.memory.terms import sound, speaker, stemmer, word_list

MAX_REMEMBERED, MAX_REMEMBERED_CHARS = 4_096, 2_000
_BEGINNING = 2
"""Characters that a word shares with its stem (Porter 1980), but for what `beginnings` names."""


@dataclass(frozen=True, slots=True)
class Worded:
    """The words of a text in order, folded but whole, and who says it, if anybody."""

    words: Sequence[str]
    speaker: str


_remembered: dict[str, Worded] = {}


def words_of(text: str) -> Worded:
    """The words of `text`."""
    known = _remembered.get(text)
    if known is not None:
        return known
    found = Worded(word_list(sound(text)), speaker(text[:100]))
    if len(text) <= MAX_REMEMBERED_CHARS:
        if len(_remembered) >= MAX_REMEMBERED:
            _remembered.clear()
        _remembered[text] = found
    return found


def held(texts: Sequence[Worded], wanted: Collection[str]) -> list[Counter[str]]:
    """Of each text, how often it holds each stem of `wanted` that it holds. Only words that begin
    like one of them are stemmed, those of all texts at once."""
    stem_of = _stems_of(set().union(*(text.words for text in texts)), wanted)
    return [Counter([stem_of[word] for word in text.words if word in stem_of]) for text in texts]


def beginnings(stems: Iterable[str]) -> set[str]:
    """How words begin that have one of these stems, in two characters, or in one where no more of
    a word is sure to be left: `aed` has the stem `a`, `aying` has `ai`."""
    found: set[str] = set()
    for stem in stems:
        found.add(stem[:_BEGINNING])
        if stem[1:_BEGINNING] == "i":
            found.add(stem[0] + "y")
    return found


def _stems_of(words: Collection[str], wanted: Collection[str]) -> dict[str, str]:
    begin = beginnings(wanted)
    likely = [word for word in words if word[:_BEGINNING] in begin]
    if short := {one for one in begin if len(one) < _BEGINNING}:
        likely += [word for word in words if word[:1] in short and word[:_BEGINNING] not in begin]
    pairs = zip(likely, stemmer().stems(likely), strict=True)
    return {word: stem for word, stem in pairs if stem in wanted}
