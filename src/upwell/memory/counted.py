"""The words of texts, counted; the texts that were looked at last are remembered, since the same
few are candidates again and again."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from upwell.memory.terms import sound, speaker, stemmer, word_list

MAX_REMEMBERED, MAX_REMEMBERED_CHARS = 4_096, 2_000


@dataclass(frozen=True, slots=True)
class Counted:
    """How often each stem stands in a text, how many words it has, and who says it, if anybody."""

    stems: Mapping[str, int]
    words: int
    speaker: str


_remembered: dict[str, Counted] = {}


def count_all(texts: Iterable[str]) -> Mapping[str, Counted]:
    """Each of these texts, counted. All their words are stemmed at once: to ask for the stems of
    one text after the other costs as much as the rest of a search."""
    known = {text: _remembered.get(text) for text in texts}
    new = {text: word_list(sound(text)) for text, one in known.items() if one is None}
    stems = stemmer().stems([word for words in new.values() for word in words])
    counted = {text: one for text, one in known.items() if one is not None}
    at = 0
    for text, words in new.items():
        body = Counter(stems[at : at + len(words)])
        at += len(words)
        counted[text] = Counted(body, len(words), speaker(text[:100]))
    _remember(new, counted)
    return counted


def _remember(texts: Iterable[str], counted: Mapping[str, Counted]) -> None:
    if len(_remembered) > MAX_REMEMBERED:
        _remembered.clear()
    for text in texts:
        if len(text) <= MAX_REMEMBERED_CHARS:
            _remembered[text] = counted[text]
