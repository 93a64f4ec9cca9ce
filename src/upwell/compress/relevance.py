"""What a question asks for, and where a text speaks of it.

Terms are looked for where they stand (`str.find`), so only what matches costs anything. A term
counts from the beginning of a word: `creat` finds `created_at` and `CreationDate`, `port` does
not find `report`.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from upwell.compress.lexicon import related, stem
from upwell.ground.text.words import fold, informative, split_identifier, terms

_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_CHUNK = re.compile(r"""[^\s"'`?!,;()\[\]{}<>]+""")
_QUOTED = re.compile(r"""["'`“]([^"'`”\n]{2,80})["'`”]""")
_SYNONYM_WEIGHT = 0.3
_EXACT_WEIGHT = 1.6
_MAX_TERMS = 24
_PREFIX = 4
_MAX_HITS = 20_000
"""A term that stands in more places than this tells nothing apart."""

_ASKING_WORDS = ("when", "where", "who", "many", "much", "long")
_ASKING = re.compile(rf"\b(?:{'|'.join(_ASKING_WORDS)})\b", re.I)
"""Words too common to look for that still say what kind of thing would answer."""
_EXPECTS = (
    (re.compile(r"\bwhen\b|\bwhat (?:date|time|day)\b|\bhow recent", re.I), "time"),
    (
        re.compile(r"\bhow (?:many|much|long|big|large|often|old|far)\b|\bnumber of\b", re.I),
        "number",
    ),
    (re.compile(r"\bwhere\b|\bwhich (?:file|url|path|host|directory|folder)", re.I), "place"),
)


@dataclass(frozen=True, slots=True)
class Term:
    """Something to look for, folded. `exact` ones (ids, versions, addresses) count as they are."""

    text: str
    weight: float
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """A query, ready to be looked for. `expects`: time, number, place or "" — what kind of
    answer it asks for."""

    terms: tuple[Term, ...]
    expects: str = ""

    def __bool__(self) -> bool:
        return bool(self.terms)


@lru_cache(maxsize=64)
def ask(query: str) -> Question:
    """What `query` looks for: its words, its identifiers as they stand, and related words."""
    if not query.strip():
        return Question(())
    found: dict[str, Term] = {}
    for chunk in _exact_chunks(query):
        found.setdefault(chunk, Term(chunk, _EXACT_WEIGHT, exact=True))
    plain = [stem(word) for word in informative(terms(query))]
    for word in plain:
        found.setdefault(word, Term(word, 1.0, exact=word.isdigit()))
    asking = {word.lower() for word in _ASKING.findall(query)}
    for word in [*plain, *(word for word in _ASKING_WORDS if word in asking)]:
        for other in related(word):
            found.setdefault(other, Term(other, _SYNONYM_WEIGHT))
    expects = next((kind for pattern, kind in _EXPECTS if pattern.search(query)), "")
    kept = sorted(found.values(), key=lambda term: -term.weight)[: _MAX_TERMS * 2]
    return Question(tuple(kept), expects)


def _exact_chunks(query: str) -> Iterable[str]:
    """Tokens that look like names or numbers, and quoted phrases."""
    for match in _QUOTED.finditer(query):
        yield fold(match.group(1))
    for match in _CHUNK.finditer(query):
        chunk = match.group().strip(".:-_/\\*=")
        if len(chunk) > 2 and re.search(r"[\d_./:@#\\-]|[a-z][A-Z]", chunk):
            yield fold(chunk)


def lowered(text: str) -> str:
    """`text` in lower case, every character at its old place."""
    low = text.lower()
    if len(low) == len(text):
        return low
    return "".join(char.lower() if len(char.lower()) == 1 else char for char in text)


def places(term: Term, low: str, text: str) -> list[int]:
    """Where `term` begins a word in `text` (`low` is the same in lower case)."""
    wanted = term.text
    cjk = bool(_CJK.match(wanted))
    if len(wanted) < 2 and not cjk:
        return []
    found: list[int] = []
    width, left = len(wanted), _MAX_HITS
    may_go_on = width > 3 and not wanted[-1].isdigit()
    at = low.find(wanted)
    while at >= 0:
        if not left:
            return []
        left -= 1
        end = at + width
        # Most hits are plain and decided without a call; at 0 `_stands_alone` sets right what the
        # last character says.
        plain = not low[at - 1].isalnum() and (may_go_on or not low[end : end + 1].isalnum())
        if plain or cjk or _stands_alone(term, low, text, at, end):
            found.append(at)
        at = low.find(wanted, end)
    return found


def _stands_alone(term: Term, low: str, text: str, start: int, end: int) -> bool:
    """Does the match begin a word, and is it not a piece of a longer number or short word?"""
    first = low[start]
    if start and low[start - 1].isalnum() and first.isalnum():
        camel = text[start].isupper() and text[start - 1].islower()
        edge = first.isdigit() != low[start - 1].isdigit() and not term.exact
        if not camel and not edge:
            return False
    if end >= len(low) or not low[end].isalnum():
        return True
    if low[end - 1].isdigit():
        return not low[end].isdigit() and not term.exact
    return len(term.text) > 3 or text[end].isupper() or low[end] == "s"


def rarity(units: int, holding: int) -> float:
    """Inverse document frequency as in BM25 (Robertson and Spärck Jones), never negative."""
    return math.log(1.0 + (units - holding + 0.5) / (holding + 0.5))


@lru_cache(maxsize=65_536)
def name_stems(name: str) -> tuple[str, ...]:
    """The stems of an identifier or key: `createdAt` → `creat at`."""
    return tuple(stem(part) for part in split_identifier(name)) or ((fold(name),) if name else ())


class Finder:
    """Finds the terms of a question in names, each part of a name looked up but once.

    A term and a part agree when one is the beginning of the other and both have four letters or
    more, or when they are the same.
    """

    def __init__(self, question: Question) -> None:
        self._asked = [term.weight >= 1.0 for term in question.terms]
        self._exact: dict[str, list[int]] = {}
        self._begins: dict[str, list[int]] = {}
        for number, term in enumerate(question.terms):
            self._exact.setdefault(term.text, []).append(number)
            for size in range(_PREFIX, len(term.text)):
                self._begins.setdefault(term.text[:size], []).append(number)
        self._initials = {text[:1] for text in self._exact}
        self._sizes = sorted({len(text) for text in self._exact if len(text) >= _PREFIX})
        self._memo: dict[str, tuple[int, ...]] = {}

    def match(self, stems: tuple[str, ...], whole: str) -> tuple[dict[int, float], float]:
        """Which terms the name holds (each worth 1), and the share of the name that was asked;
        what only a related word asks for counts half."""
        matched: dict[int, float] = {}
        covered = 0.0
        for part in stems:
            found = self._memo.get(part)
            if found is None:
                found = self._memo[part] = self._terms_in(part)
            if found:
                matched.update(dict.fromkeys(found, 1.0))
                covered += 1.0 if any(self._asked[term] for term in found) else 0.5
        for term in self._exact.get(whole, ()):
            matched[term] = 1.0
            covered = float(len(stems))
        return matched, covered / len(stems) if stems else 0.0

    def _terms_in(self, part: str) -> tuple[int, ...]:
        if part[:1] not in self._initials:
            return ()
        found = [*self._exact.get(part, ()), *self._begins.get(part, ())]
        for size in self._sizes:
            if size >= len(part):
                break
            found.extend(self._exact.get(part[:size], ()))
        return tuple(found)
