"""Words as the index sees them: what is indexed of a memory, and stems that agree with SQLite's.

SQLite's own tokenizer gives the stems (a scratch FTS5 table in memory, read back through
fts5vocab), so that counting, scoring and matching never disagree about a word.
"""

import re
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from upwell.ground.text.words import cjk_terms, fold, informative, path_words, split_identifier
from upwell.ground.types import Memory
from upwell.memory.everyday import EVERYDAY_WORDS
from upwell.memory.schema import TOKENIZER

_STATES, _FEW = frozenset({"down", "off", "out"}), 2
"""What a service or a switch can be: said of so few other words, it is half of what was asked."""
MAX_CACHED_STEMS = 200_000
MAX_WORD_CHARS = 64
"""Longer runs (hashes, base64) are no words; they are left to the exact text."""

_WORD = re.compile(r"[^\W_]+")
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_CAMEL = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
_SURROGATES = re.compile("[\ud800-\udfff]")
_SPEAKER = re.compile(r"\s*([^\W\d_][\w'’.-]*(?: [^\W\d_][\w'’.-]*){0,2}):\s")
_NAME_LIKE = re.compile(r"\b(?:[^\W\d_]+\d[^\W_]*|[A-Z][^\W\d_]+|[A-Z]{2,})\b")
_OPENING = " \t\"'(“‘¿¡"
_LABELS = frozenset(
    """
    api author bugfix build chore ci cli co-authored-by debug deps doc docs feat fix fixes hotfix
    hint http info memory note perf ref refactor result signed-off-by style tests todo ui url warn
    """.split()
)


class Stemmer:
    """Folded word → stem, by SQLite's porter tokenizer. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stems: dict[str, str] = {}
        self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._db.execute(f"CREATE VIRTUAL TABLE scratch USING fts5 (t, tokenize = '{TOKENIZER}')")
        self._db.execute("CREATE VIRTUAL TABLE seen USING fts5vocab (scratch, instance)")

    def stems(self, words: Iterable[str]) -> list[str]:
        """The stem of each word, in order; words of letters and digits only."""
        listed = list(words)
        known = self._stems
        try:
            return [known[word] for word in listed]
        except KeyError:
            learned = self._learn({word for word in listed if word not in known})
            return [learned.get(word) or known.get(word) or fold(word) for word in listed]

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
        """What SQLite makes of these words; the words as they are where it cuts them otherwise."""
        if not words:
            return {}
        with self._lock:
            self._db.execute("BEGIN")
            self._db.execute("INSERT INTO scratch VALUES (?)", (" ".join(words),))
            by_place = dict(self._db.execute("SELECT offset, term FROM seen").fetchall())
            self._db.execute("ROLLBACK")
        agrees = len(by_place) == len(words)
        return {word: by_place[place] if agrees else fold(word) for place, word in enumerate(words)}


def _is_own_stem(word: str) -> bool:
    """What ends in a digit has no ending that a stem could be without (Porter 1980)."""
    return word.isascii() and word[-1:].isdigit()


@lru_cache(maxsize=1)
def stemmer() -> Stemmer:
    """The one stemmer of this process: what it learns is true for every store."""
    return Stemmer()


@dataclass(frozen=True, slots=True)
class Indexed:
    """What is indexed of a memory: its `body`, and `extra` words that its form hides: parts of
    identifiers and paths, tags, pairs of CJK characters; and words from around it."""

    body: str
    extra: str


def indexed(memory: Memory, around: str = "") -> Indexed:
    """A function of the memory and of the words `around` it."""
    body = sound(memory.text)
    extra: list[str] = []
    for match in _IDENTIFIER.finditer(body):
        if _CAMEL.search(match.group()):
            extra += split_identifier(match.group())
    for match in _CJK.finditer(body):
        extra += cjk_terms(match.group())
    for path in memory.paths:
        extra += path_words(sound(path))
    for name in (*memory.symbols, *memory.tags):
        extra += split_identifier(sound(name))
    extra += word_list(sound(around))
    return Indexed(body, " ".join(dict.fromkeys(extra)))


def sound(text: str) -> str:
    """Text that SQLite can take: lone surrogates replaced, NUL a space."""
    if "\0" in text:
        text = text.replace("\0", " ")
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def word_list(text: str) -> list[str]:
    """Every word in order, folded, as the index cuts them."""
    if text.isascii():
        return [word for word in _WORD.findall(text.lower()) if len(word) <= MAX_WORD_CHARS]
    return [
        word if word.isascii() else fold(word)
        for word in _WORD.findall(text.lower())
        if len(word) <= MAX_WORD_CHARS
    ]


def counted(text: str) -> Counter[str]:
    """How often each stem occurs in a text."""
    return Counter(stemmer().stems(word_list(text)))


def query_words(text: str) -> list[str]:
    """The words of a query that say something, in order: stop words out, identifiers and CJK
    runs cut as in the index. Where few are left, those that say how something is (`down`) count as
    well; where nothing is left, the stop words themselves."""
    clean = sound(text)
    found = word_list(clean)
    for match in _IDENTIFIER.finditer(clean):
        if _CAMEL.search(match.group()):
            found += split_identifier(match.group())
    for match in _CJK.finditer(clean):
        found += cjk_terms(match.group())
    said = informative(found)
    if 0 < len(said) <= _FEW:
        kept = {*said, *_STATES}
        return list(dict.fromkeys(word for word in found if word in kept))
    return said or list(dict.fromkeys(found))


def names_in(text: str) -> set[str]:
    """Words of a query that look like names: `JC`, `urllib3`, a capital inside a sentence."""
    found: set[str] = set()
    clean = sound(text)
    for match in _NAME_LIKE.finditer(clean):
        before = clean[: match.start()].rstrip(_OPENING)
        begins = not before or before[-1] in ".!?:\n"
        if not (begins and match.group()[1:].islower()):
            found.add(fold(match.group()))
    return found


def speaker(text: str) -> str:
    """Who says it, folded, where a text begins like `Ana: …`; else empty. A name begins with a
    capital and is no everyday word: `Fix: …` is a label."""
    match = _SPEAKER.match(text)
    if not match or not match.group(1)[0].isupper():
        return ""
    name = fold(match.group(1))
    first = name.split()[0]
    return "" if first in _LABELS or first in EVERYDAY_WORDS else name
