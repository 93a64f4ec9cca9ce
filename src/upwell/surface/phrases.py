"""Matches phrases, written in the small language of `lexicon.toml`, in one pass over the words of a
text.

A match is attempted only where a phrase's first word occurs, and a gap (`...`) never crosses the
end of a sentence. So the time is linear in the length of the text. A word that is not in the
lexicon but is one typo away from a word in a phrase counts as that word.
"""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from upwell.ground.text.words import fold

MAX_GAP = 14
"""The maximum number of words that `...` may match."""
MAX_SLIP_CHARS = 14
_TOKEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*|[.?!;:\n¿¡]")
_ENDS = frozenset(".?!;:\n¿¡")
_APOSTROPHES = str.maketrans("", "", "'’")
GAP = "..."


class Element(Struct, frozen=True):
    """One position of a phrase: the words, prefixes and suffixes that match there."""

    words: frozenset[str]
    beginnings: tuple[str, ...]
    endings: tuple[str, ...]

    def fits(self, token: str) -> bool:
        return (
            token in self.words
            or (bool(self.beginnings) and token.startswith(self.beginnings))
            or (bool(self.endings) and token.endswith(self.endings))
        )


class Phrase(Struct, frozen=True):
    """A parsed phrase. In `elements`, None stands for a gap. An `initial` phrase matches only at
    the start of a sentence."""

    elements: tuple[Element | None, ...]
    initial: bool


def parsed(phrase: str) -> Phrase:
    """Parse a phrase like `^which|what ... fail*`."""
    initial = phrase.startswith("^")
    places = [fold(word) for word in phrase.removeprefix("^").split()]
    return Phrase(tuple(None if word == GAP else _element(word) for word in places), initial)


def _element(word: str) -> Element:
    parts = [part.translate(_APOSTROPHES) for part in word.split("|")]
    return Element(
        words=frozenset(part for part in parts if "*" not in part),
        beginnings=tuple(part[:-1] for part in parts if part.endswith("*")),
        endings=tuple(part[1:] for part in parts if part.startswith("*")),
    )


class Phrases:
    """Matches many phrases at once. `openings` are polite words; the word after them also counts as
    the start of a sentence. Words in `known` are never treated as typos."""

    def __init__(
        self, phrases: Sequence[str], openings: Iterable[str], known: Iterable[str]
    ) -> None:
        self._phrases = [parsed(phrase) for phrase in phrases]
        self._by_word: dict[str, list[int]] = {}
        self._by_affix: list[tuple[Element, int]] = []
        for number, phrase in enumerate(self._phrases):
            first = phrase.elements[0]
            if first is not None:
                for word in first.words:
                    self._by_word.setdefault(word, []).append(number)
                if first.beginnings or first.endings:
                    self._by_affix.append((first, number))
        self._openings = sorted(
            (tuple(_tokens(opening)) for opening in openings), key=len, reverse=True
        )
        opening_words = {word for words in self._openings for word in words}
        self._slips = Slips(self._vocabulary(), {*map(fold, known), *opening_words})

    def found_in(self, text: str) -> dict[int, int]:
        """Maps the index of each matching phrase to the position of its first word in the text."""
        tokens = [self._slips.corrected(token) for token in _tokens(text)]
        initial = self._beginnings(tokens)
        positions: dict[int, int] = {}
        for position, token in enumerate(tokens):
            for number in self._begin_with(token):
                phrase = self._phrases[number]
                if number in positions or (phrase.initial and position not in initial):
                    continue
                if _follows(tokens, position + 1, phrase.elements, 1):
                    positions[number] = position
        return positions

    def _begin_with(self, token: str) -> list[int]:
        affixed = [number for element, number in self._by_affix if element.fits(token)]
        return [*self._by_word.get(token, ()), *affixed]

    def _beginnings(self, tokens: Sequence[str]) -> set[int]:
        """The indexes of words that may start a sentence: its first word, and the word after polite
        openings."""
        starts: set[int] = set()
        for position, token in enumerate(tokens):
            if token in _ENDS or (position and tokens[position - 1] not in _ENDS):
                continue
            while position not in starts:
                starts.add(position)
                position += self._opening_at(tokens, position)
        return starts

    def _opening_at(self, tokens: Sequence[str], position: int) -> int:
        return next(
            (
                len(words)
                for words in self._openings
                if tuple(tokens[position : position + len(words)]) == words
            ),
            0,
        )

    def _vocabulary(self) -> set[str]:
        return {
            word
            for phrase in self._phrases
            for element in phrase.elements
            if element is not None
            for word in element.words
        }


def _follows(
    tokens: Sequence[str], position: int, elements: Sequence[Element | None], index: int
) -> bool:
    """True if the tokens from `position` on match the phrase from element `index` on. A gap ends
    with its sentence."""
    while index < len(elements):
        element = elements[index]
        if element is None:
            after_gap = elements[index + 1]
            assert after_gap is not None
            for reach in range(position, min(len(tokens), position + MAX_GAP + 1)):
                if tokens[reach] in _ENDS:
                    return False
                if after_gap.fits(tokens[reach]):
                    return _follows(tokens, reach + 1, elements, index + 2)
            return False
        if position >= len(tokens) or not element.fits(tokens[position]):
            return False
        position, index = position + 1, index + 1
    return True


def _tokens(text: str) -> list[str]:
    return [token.translate(_APOSTROPHES) for token in _TOKEN.findall(fold(text))]


class Slips:
    """Corrects typos in the words of `vocabulary`: one letter that is wrong, missing or extra, or
    two adjacent letters that are swapped. In short words, not all of these are corrected, and at
    the first letter only swaps. It never changes words in `known`."""

    def __init__(self, vocabulary: Iterable[str], known: Iterable[str]) -> None:
        self._vocabulary = {word for word in vocabulary if len(word) >= 3 and word.isalpha()}
        self._known = {*vocabulary, *known}
        self._by_rest: dict[str, set[str]] = {}
        for word in self._vocabulary:
            for rest in _one_left_out(word):
                self._by_rest.setdefault(rest, set()).add(word)

    def corrected(self, token: str) -> str:
        """`token`, or the correct word if `token` is a typo."""
        if not 3 <= len(token) <= MAX_SLIP_CHARS or token in self._known or not token.isalpha():
            return token
        rests = _one_left_out(token)
        near = self._by_rest.get(token, set()) | (self._vocabulary & rests)
        near = near.union(*(self._by_rest.get(rest, ()) for rest in rests))
        return min((word for word in near if _one_slip(token, word)), default=token)


def _one_left_out(word: str) -> set[str]:
    return {word[:position] + word[position + 1 :] for position in range(len(word))}


def _one_slip(token: str, word: str) -> bool:
    if len(token) == len(word):
        wrong = [position for position in range(len(word)) if token[position] != word[position]]
        if len(wrong) == 2 and wrong[1] == wrong[0] + 1:
            return token[wrong[0]] == word[wrong[1]] and token[wrong[1]] == word[wrong[0]]
        return len(wrong) == 1 and wrong[0] > 0 and len(word) >= 6
    return token[0] == word[0] and len(word) >= (4 if len(token) < len(word) else 5)
