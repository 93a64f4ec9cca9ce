"""Turn a question into search terms, and find the places in a text that match them.

Terms are found with `str.find`, so the time depends on the number of matches, not on the number of
words. A term matches at the beginning of a word: `creat` finds `created_at` and `CreationDate`, but
`port` does not find `report`. If an embedder is configured, `Meaning` also finds units that answer
the question in other words.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from statistics import fmean, pstdev

from msgspec import Struct

from upwell.ground.errors import LlmError
from upwell.ground.llm import Embedder, Vector, cosine
from upwell.ground.text.words import fold, informative, split_identifier, terms

_GROUPS = """
when date time timestamp created updated published at released landed
created creation made born started opened creat
updated modified changed edited last touched
deleted removed dropped destroyed erased thrown
closed finished ended completed done resolved
duration took elapsed seconds long runtime finished in time need
size bytes length big large weight kb mb content-length
count total number many amount quantity sum
limit max maximum cap ceiling quota most
min minimum least floor
memory ram heap allocatable
disk storage volume filesystem drive ebs
cpu core processor vcpu
machine host node server instance vm box
network subnet vpc nic eni interface card
address ip addr endpoint
port listen socket
url link href uri page website homepage site
path route file location directory folder where filename
name title label called named display
description summary about explains purpose doc does
owner author user login creator maintainer who assignee writer person people reporter reported
member team group organization org company
email mail contact
key id identifier secret kms arn code
token credential password secret auth authentication
encrypted encryption cipher tls ssl security
permission role policy access allowed grant privilege acl
status state phase condition health healthy
active enabled running on ready up alive
inactive disabled stopped off terminated paused
error failure failed fail exception fault broken crash panic blow problem wrong
warning warn deprecated obsolete outdated
ignored skipped skip executed disabled not run
passed ok success succeed succeeded green
test case spec check suite
expected want wanted right left actual mismatch assertion compare
version release tag build revision
branch default_branch line development trunk main master head
commit sha revision hash change
fork copy clone mirror
copies replicas replica instances desired unavailable rollout update strategy
image container docker picture
namespace scope prefix short service
type kind category class sort
language lang written
license licence
topic keyword tag subject label
distribution os operating system osimage platform linux
kernel core
architecture arch amd64
region zone location datacenter availability
default fallback initial preset blank
value setting parameter option config configuration
variable env environment
timeout deadline wait expire expiry ttl
retry attempt again
queue job task worker
message text body comment note says
request call query invoke
response reply answer result return
truncated more next pagination page everything complete rest hasmore marker
public visibility visible private open
price cost amount fee charge
currency money
country nation
city town
phone telephone number msisdn
method verb get post
function method def procedure routine
class struct type object
parameter argument arg param
return returns gives yield
dependency depends requirement package library module
install setup
compile build built compiling
cache cached caching
log logging logs statement general_log
sort order collation sorting
database db table schema
restart reboot respawn
start begin boot launch
throttle rate limit capacity slow
reason cause why because
usage use used example
"""
"""Synonyms that link the words in questions to the keys in tool responses (time, size, place,
people, state, machines, code). A question that contains a word of a line also finds the others on
it, with a lower weight. Only an embedder finds other synonyms."""


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """Remove a common ending, so that `creating` and `created` share a stem."""
    if len(word) <= 3 or not word.isalpha() or not word.isascii():
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    for ending in ("ation", "ions", "ion", "ing", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            return word[: -len(ending)]
    return word


@lru_cache(maxsize=1)
def _index() -> dict[str, tuple[str, ...]]:
    index: dict[str, dict[str, None]] = {}
    for line in _GROUPS.strip().splitlines():
        group = [stem(word) for word in line.split()]
        for word in group:
            index.setdefault(word, {}).update(dict.fromkeys(group))
    return {word: tuple(other for other in group if other != word) for word, group in index.items()}


def related(word: str) -> tuple[str, ...]:
    """Return the stems of the synonyms of `word`, which is itself a stem."""
    return _index().get(word, ())


_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_CHUNK = re.compile(r"""[^\s"'`?!,;()\[\]{}<>]+""")
_QUOTED = re.compile(r"""["'`“]([^"'`”\n]{2,80})["'`”]""")
_SYNONYM_WEIGHT = 0.3
_EXACT_WEIGHT = 1.6
_MAX_TERMS = 24
_PREFIX = 4
_MAX_HITS = 20_000
"""A term with more matches than this is ignored, because it distinguishes nothing."""

_ASKING_WORDS = ("when", "where", "who", "many", "much", "long")
_ASKING = re.compile(rf"\b(?:{'|'.join(_ASKING_WORDS)})\b", re.I)
"""Question words whose synonyms are searched for, such as `created` for `when`, even if the word
itself is too common to be a term."""
_EXPECTS = (
    (re.compile(r"\bwhen\b|\bwhat (?:date|time|day)\b|\bhow recent", re.I), "time"),
    (
        re.compile(r"\bhow (?:many|much|long|big|large|often|old|far)\b|\bnumber of\b", re.I),
        "number",
    ),
    (re.compile(r"\bwhere\b|\bwhich (?:file|url|path|host|directory|folder)", re.I), "place"),
)


class Term(Struct, frozen=True):
    """A search term: its folded `text` and its `weight`.

    `exact` terms (ids, versions, addresses, quotations) are not reduced to stems. If one ends in a
    digit, no letter or digit may follow its match.
    """

    text: str
    weight: float
    exact: bool = False


class RelevanceQuestion(Struct, frozen=True):
    """The `terms` of a query. `expects` is the type of its answer: time, number, place or ""."""

    terms: tuple[Term, ...]
    expects: str = ""

    def __bool__(self) -> bool:
        return bool(self.terms)


NO_QUESTION = RelevanceQuestion(())


@lru_cache(maxsize=64)
def ask(query: str) -> RelevanceQuestion:
    """Parse `query` into its words, its identifiers as written, and synonyms."""
    if not query.strip():
        return NO_QUESTION
    by_text: dict[str, Term] = {}
    for token in _exact_chunks(query):
        by_text.setdefault(token, Term(token, _EXACT_WEIGHT, exact=True))
    stems = [stem(word) for word in informative(terms(query))]
    for word in stems:
        by_text.setdefault(word, Term(word, 1.0, exact=word.isdigit()))
    asking_words = {word.lower() for word in _ASKING.findall(query)}
    for word in [*stems, *(word for word in _ASKING_WORDS if word in asking_words)]:
        for synonym in related(word):
            by_text.setdefault(synonym, Term(synonym, _SYNONYM_WEIGHT))
    expects = next((kind for pattern, kind in _EXPECTS if pattern.search(query)), "")
    heaviest = sorted(by_text.values(), key=lambda term: -term.weight)[: _MAX_TERMS * 2]
    return RelevanceQuestion(tuple(heaviest), expects)


def _exact_chunks(query: str) -> Iterable[str]:
    for match in _QUOTED.finditer(query):
        yield fold(match.group(1))
    for match in _CHUNK.finditer(query):
        token = match.group().strip(".:-_/\\*=")
        if len(token) > 2 and re.search(r"[\d_./:@#\\-]|[a-z][A-Z]", token):
            yield fold(token)


def lowered(text: str) -> str:
    """Return `text` in lower case. Every character keeps its offset."""
    lowercase = text.lower()
    if len(lowercase) == len(text):
        return lowercase
    return "".join(char.lower() if len(char.lower()) == 1 else char for char in text)


def places(term: Term, lowercase: str, text: str) -> list[int]:
    """Return the offsets in `text` at which `term` begins a word.

    `lowercase` is `lowered(text)`.
    """
    needle = term.text
    cjk = bool(_CJK.match(needle))
    if len(needle) < 2 and not cjk:
        return []
    offsets: list[int] = []
    width, left = len(needle), _MAX_HITS
    allows_suffix = width > 3 and not needle[-1].isdigit()
    offset = lowercase.find(needle)
    while offset >= 0:
        if not left:
            return []
        left -= 1
        end = offset + width
        # This test decides most matches without a call. At offset 0, index -1 is the last character
        # of the text, which can at worst cost a needless call.
        is_plain = not lowercase[offset - 1].isalnum() and (
            allows_suffix or not lowercase[end : end + 1].isalnum()
        )
        if is_plain or cjk or _stands_alone(term, lowercase, text, offset, end):
            offsets.append(offset)
        offset = lowercase.find(needle, end)
    return offsets


def _stands_alone(term: Term, lowercase: str, text: str, start: int, end: int) -> bool:
    """Return whether the match begins a word. It must not be part of a longer number, and a short
    match must not be part of a longer word."""
    first = lowercase[start]
    if start and lowercase[start - 1].isalnum() and first.isalnum():
        camel = text[start].isupper() and text[start - 1].islower()
        edge = first.isdigit() != lowercase[start - 1].isdigit() and not term.exact
        if not camel and not edge:
            return False
    if end >= len(lowercase) or not lowercase[end].isalnum():
        return True
    if lowercase[end - 1].isdigit():
        return not lowercase[end].isdigit() and not term.exact
    return len(term.text) > 3 or text[end].isupper() or lowercase[end] == "s"


def rarity(units: int, holding: int) -> float:
    """Return the inverse document frequency of BM25 (Robertson and Spärck Jones), at least 0.

    `holding` of the `units` contain the term.
    """
    return math.log(1.0 + (units - holding + 0.5) / (holding + 0.5))


@lru_cache(maxsize=65_536)
def name_stems(name: str) -> tuple[str, ...]:
    """Return the stems of an identifier or key: `createdAt` → `creat at`."""
    return tuple(stem(part) for part in split_identifier(name)) or ((fold(name),) if name else ())


class Finder:
    """Finds the terms of a question in names (keys, identifiers).

    A term matches a part of a name if they are equal, or if one begins with the other and both have
    at least four letters.
    """

    def __init__(self, question: RelevanceQuestion) -> None:
        self._is_own_word = [term.weight >= 1.0 for term in question.terms]
        self._exact: dict[str, list[int]] = {}
        self._begins: dict[str, list[int]] = {}
        for number, term in enumerate(question.terms):
            self._exact.setdefault(term.text, []).append(number)
            for size in range(_PREFIX, len(term.text)):
                self._begins.setdefault(term.text[:size], []).append(number)
        self._initials = {text[:1] for text in self._exact}
        self._sizes = sorted({len(text) for text in self._exact if len(text) >= _PREFIX})
        self._memo: dict[str, tuple[int, ...]] = {}

    def match(self, stems: tuple[str, ...], name: str) -> tuple[dict[int, float], float]:
        """Return the numbers of the terms in a name, each with credit 1, and the share of the parts
        of the name that match. A part that matches only a synonym counts half."""
        credits: dict[int, float] = {}
        coverage = 0.0
        for part in stems:
            matched = self._memo.get(part)
            if matched is None:
                matched = self._memo[part] = self._terms_in(part)
            if matched:
                credits.update(dict.fromkeys(matched, 1.0))
                coverage += 1.0 if any(self._is_own_word[term] for term in matched) else 0.5
        for term in self._exact.get(name, ()):
            credits[term] = 1.0
            coverage = float(len(stems))
        return credits, coverage / len(stems) if stems else 0.0

    def _terms_in(self, part: str) -> tuple[int, ...]:
        if part[:1] not in self._initials:
            return ()
        matched = [*self._exact.get(part, ()), *self._begins.get(part, ())]
        for size in self._sizes:
            if size >= len(part):
                break
            matched.extend(self._exact.get(part[:size], ()))
        return tuple(matched)


MAX_UNITS = 1_500
"""At most this many of the most salient units, and at most this many of the best matches by words,
are compared with the question."""
_UNIT_CHARS = 400
_STANDS_OUT = 1.0
_WEIGHT = 0.5
"""A unit counts if its similarity is more than `_STANDS_OUT` standard deviations above the mean.
The best match by meaning gets `_WEIGHT` times the score of the best match by words."""


class Meaning(Struct, frozen=True):
    """The `vector` that `embedder` returned for a question."""

    vector: Vector
    embedder: Embedder

    def add_to(
        self,
        relevances: dict[int, float],
        saliences: Sequence[float],
        text_of: Callable[[int], str],
    ) -> None:
        """Raise the `relevances` of units whose meaning is close to the question's.

        If the embedder fails, nothing changes.
        """
        units = sorted(range(len(saliences)), key=saliences.__getitem__, reverse=True)[:MAX_UNITS]
        units = sorted(
            set(units) | set(sorted(relevances, key=lambda u: -relevances[u])[:MAX_UNITS])
        )
        try:
            vectors = self.embedder.embed([text_of(unit)[:_UNIT_CHARS] for unit in units])
        except LlmError:
            return
        similarities = [cosine(self.vector, vector) for vector in vectors]
        mean, deviation = fmean(similarities), pstdev(similarities)
        if not deviation:
            return
        excesses = [
            max(0.0, (similarity - mean) / deviation - _STANDS_OUT) for similarity in similarities
        ]
        best = max(excesses)
        top = max(relevances.values(), default=1.0)
        for unit, excess in zip(units, excesses, strict=True):
            if excess > 0.0:
                relevances[unit] = relevances.get(unit, 0.0) + _WEIGHT * top * excess / best


def meaning_of(query: str, embedder: Embedder | None) -> Meaning | None:
    """Embed `query`. Returns None if there is no query or the embedder fails."""
    if embedder is None or not query.strip():
        return None
    try:
        return Meaning(embedder.embed([query])[0], embedder)
    except LlmError:
        return None
