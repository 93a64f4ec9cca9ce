"""Words: how text is cut into terms, which of them say little, and how alike two texts are.

One tokeniser for queries, gates and relevance, so that they agree on what a word is.
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from upwell.ground.text.lexicon import shipped

_WORD = re.compile(r"[^\W_]+(?:['’][^\W\d_]+)?")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_ASCII_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]*[a-z0-9]+|[A-Z]+")
_SEPARATOR = re.compile(r"[\W_]+")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")

STOP_WORDS = shipped().stop_words


def fold(text: str) -> str:
    """Lower case without accents: `Cumpleaños` → `cumpleanos`."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(char for char in decomposed if not unicodedata.combining(char))


def words(text: str) -> list[str]:
    """The words of `text` in order, as written. CJK runs count one word a character."""
    found: list[str] = []
    for match in _WORD.finditer(text):
        word = match.group()
        found.extend(_CJK.findall(word) if _CJK.search(word) else [word])
    return found


def terms(text: str) -> list[str]:
    """Folded words in order, identifiers and camelCase cut into their parts as well.

    `parseConfig` gives `parseconfig parse config`; `max_chars` gives `max chars`.
    """
    found: list[str] = []
    for match in _WORD.finditer(text):
        word = match.group()
        if _CJK.search(word):
            found.extend(cjk_terms(word))
            continue
        word = word.replace("’", "'")
        word = word.removesuffix("'s")
        folded = fold(word)
        found.append(folded)
        parts = _CAMEL.split(word)
        if len(parts) > 1:
            found.extend(fold(part) for part in parts)
    return found


def cjk_terms(run: str) -> list[str]:
    """Overlapping pairs of a run without spaces; a single character stands for itself."""
    folded = fold(run)
    if len(folded) < 2:
        return [folded]
    return [folded[i : i + 2] for i in range(len(folded) - 1)]


@lru_cache(maxsize=1)
def _folded_stop_words() -> frozenset[str]:
    return frozenset(fold(word) for word in STOP_WORDS)


def informative(found: Iterable[str]) -> list[str]:
    """`found` without stop words, single letters and repeats, in order."""
    stop = _folded_stop_words()
    seen: dict[str, None] = {}
    for term in found:
        if (len(term) > 1 and term not in stop) or _CJK.search(term):
            seen.setdefault(term)
    return list(seen)


def split_identifier(name: str) -> list[str]:
    """`parse_HTTPHeader` → `parse http header`."""
    if name.isascii():  # the same parts in a third of the time; nearly every name is ASCII
        parts: list[str] = _ASCII_PART.findall(name)
        return parts if name.islower() else [part.lower() for part in parts]
    return [fold(part) for chunk in _SEPARATOR.split(name) for part in _CAMEL.split(chunk) if part]


def path_words(path: str) -> list[str]:
    """The parts of a path that say something: separators split, the extension dropped."""
    parts = [part for part in re.split(r"[\\/]+", path) if part not in ("", ".", "..", "~")]
    if parts:
        stem, _, extension = parts[-1].rpartition(".")
        if stem and len(extension) <= 5:
            parts[-1] = stem
    return [word for part in parts for word in split_identifier(part)]


def jaccard(left: Iterable[str], right: Iterable[str]) -> float:
    """Shared over all: 1.0 for the same set, 0.0 for nothing in common or two empty ones."""
    a, b = set(left), set(right)
    union = len(a | b)
    return len(a & b) / union if union else 0.0
