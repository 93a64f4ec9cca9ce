"""Phrases in a text: the little language of `lexicon.toml`, read in one pass over the words.

Every phrase is looked for only where its first word stands, and a gap ends with its sentence, so
the work grows with the length of the text and with nothing else. A word that the lexicon does not
know and that is one slip of the keyboard away from a word of a phrase counts as that word.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from upwell.ground.text.words import fold

MAX_GAP = 14
"""Words that `...` may stand for."""
MAX_SLIP_CHARS = 14
_TOKEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*|[.?!;:\n¿¡]")
_ENDS = frozenset(".?!;:\n¿¡")
_APOSTROPHES = str.maketrans("", "", "'’")
GAP = "..."


@dataclass(frozen=True, slots=True)
class Element:
    """One place of a phrase: whole words, beginnings and endings that may stand there."""

    words: frozenset[str]
    beginnings: tuple[str, ...]
    endings: tuple[str, ...]

    def fits(self, token: str) -> bool:
        return (
            token in self.words
            or (bool(self.beginnings) and token.startswith(self.beginnings))
            or (bool(self.endings) and token.endswith(self.endings))
        )


@dataclass(frozen=True, slots=True)
class Phrase:
    """`elements` with `None` for a gap; `initial`: only where a sentence begins."""

    elements: tuple[Element | None, ...]
    initial: bool


def parsed(phrase: str) -> Phrase:
    """`^which|what ... fail*` as a phrase."""
    initial = phrase.startswith("^")
    places = [fold(place) for place in phrase.removeprefix("^").split()]
    return Phrase(tuple(None if place == GAP else _element(place) for place in places), initial)


def _element(place: str) -> Element:
    parts = [part.translate(_APOSTROPHES) for part in place.split("|")]
    return Element(
        words=frozenset(part for part in parts if "*" not in part),
        beginnings=tuple(part[:-1] for part in parts if part.endswith("*")),
        endings=tuple(part[1:] for part in parts if part.startswith("*")),
    )


class Phrases:
    """Many phrases, looked for at once. `openings` are what a sentence may begin with before it
    really begins; `known` are words that are no slips of another."""

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
        spoken = {word for words in self._openings for word in words}
        self._slips = Slips(self._vocabulary(), {*map(fold, known), *spoken})

    def found_in(self, text: str) -> dict[int, int]:
        """The numbers of the phrases that stand in `text`, each with the place of its first word
        there."""
        tokens = [self._slips.meant(token) for token in _tokens(text)]
        initial = self._beginnings(tokens)
        found: dict[int, int] = {}
        for at, token in enumerate(tokens):
            for number in self._begin_with(token):
                phrase = self._phrases[number]
                if number in found or (phrase.initial and at not in initial):
                    continue
                if _follows(tokens, at + 1, phrase.elements, 1):
                    found[number] = at
        return found

    def _begin_with(self, token: str) -> list[int]:
        affixed = [number for element, number in self._by_affix if element.fits(token)]
        return [*self._by_word.get(token, ()), *affixed]

    def _beginnings(self, tokens: Sequence[str]) -> set[int]:
        """Where sentences begin: at their first word, and behind polite openings."""
        places: set[int] = set()
        for at, token in enumerate(tokens):
            if token in _ENDS or (at and tokens[at - 1] not in _ENDS):
                continue
            while at not in places:
                places.add(at)
                at += self._opening_at(tokens, at)
        return places

    def _opening_at(self, tokens: Sequence[str], at: int) -> int:
        return next(
            (
                len(words)
                for words in self._openings
                if tuple(tokens[at : at + len(words)]) == words
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
    tokens: Sequence[str], at: int, elements: Sequence[Element | None], place: int
) -> bool:
    """Do the tokens from `at` on continue a phrase at `place`? Gaps end with the sentence."""
    while place < len(elements):
        element = elements[place]
        if element is None:
            wanted = elements[place + 1]
            assert wanted is not None
            for reach in range(at, min(len(tokens), at + MAX_GAP + 1)):
                if tokens[reach] in _ENDS:
                    return False
                if wanted.fits(tokens[reach]):
                    return _follows(tokens, reach + 1, elements, place + 2)
            return False
        if at >= len(tokens) or not element.fits(tokens[at]):
            return False
        at, place = at + 1, place + 1
    return True


def _tokens(text: str) -> list[str]:
    return [token.translate(_APOSTROPHES) for token in _TOKEN.findall(fold(text))]


class Slips:
    """Words that were meant: of the words of `vocabulary` one that differs by a letter, or by two
    letters that changed places; of short words only the latter. `known` words are left alone."""

    def __init__(self, vocabulary: Iterable[str], known: Iterable[str]) -> None:
        self._vocabulary = {word for word in vocabulary if len(word) >= 3 and word.isalpha()}
        self._known = {*vocabulary, *known}
        self._by_rest: dict[str, set[str]] = {}
        for word in self._vocabulary:
            for rest in _one_left_out(word):
                self._by_rest.setdefault(rest, set()).add(word)

    def meant(self, token: str) -> str:
        """`token`, or the word it is a slip of."""
        if not 3 <= len(token) <= MAX_SLIP_CHARS or token in self._known or not token.isalpha():
            return token
        rests = _one_left_out(token)
        near = self._by_rest.get(token, set()) | (self._vocabulary & rests)
        near = near.union(*(self._by_rest.get(rest, ()) for rest in rests))
        return min((word for word in near if _one_slip(token, word)), default=token)


def _one_left_out(word: str) -> set[str]:
    return {word[:at] + word[at + 1 :] for at in range(len(word))}


def _one_slip(token: str, word: str) -> bool:
    """Is `token` what a slip makes of `word`?"""
    if len(token) == len(word):
        wrong = [at for at in range(len(word)) if token[at] != word[at]]
        if len(wrong) == 2 and wrong[1] == wrong[0] + 1:
            return token[wrong[0]] == word[wrong[1]] and token[wrong[1]] == word[wrong[0]]
        return len(wrong) == 1 and wrong[0] > 0 and len(word) >= 6
    return token[0] == word[0] and len(word) >= (4 if len(token) < len(word) else 5)
