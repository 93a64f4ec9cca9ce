"""The raw figures of a hit: what calibration judges by, before any fusion.

Words: BM25 (Robertson and Zaragoza 2009) over the body and, at half weight, the words its form
hides; the share and the mass of the query's rarity that a memory covers; how far it stands above
the other candidates. Turns of a conversation count with their neighbours as well. Files and
symbols: the strictest join, damped by how many memories share it.
"""

import math
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from upwell.ground.types import Memory
from upwell.memory.background import Background
from upwell.memory.candidates import Join
from upwell.memory.counted import Worded, held, words_of
from upwell.memory.query import Corpus, Reading, read
from upwell.memory.rows import COLUMNS, from_row, text_of
from upwell.memory.terms import stemmer, word_list

if TYPE_CHECKING:
    from upwell.memory.nearness import Likeness

K1 = 1.2
B = 0.75
EXTRA_WEIGHT = 0.5
MAX_COUNTED_CHARS = 20_000
"""Of a longer memory only the beginning is looked at closely."""
_TEXT, _NAMESPACE, _EXPIRES, _PINNED = (
    COLUMNS.split(", ").index(name) for name in ("text", "namespace", "expires_at", "pinned")
)

SIGNALS = (
    "bm25",
    "bm25_per_term",
    "margin",
    "idf_coverage",
    "coverage_mass",
    "in_vocabulary",
    "informative_words",
    "matched_words",
    "telling_words",
    "name_rarity",
    "memories",
    "rarest",
    "chance",
    "chance_spread",
    "turn",
    "window",
    "speaker",
    "path_join",
    "path_rarity",
    "path_named",
    "path_focus",
    "symbol_join",
    "symbol_rarity",
)
NO_JOIN: Mapping[str, float] = dict.fromkeys(
    ("path_join", "path_rarity", "path_named", "path_focus", "symbol_join", "symbol_rarity"), 0.0
)
MEANING_SIGNALS = ("cosine", "meaning", "meaning_margin", "meaning_near")
"""The names that stand in `Hit.signals`: the first always, the others where a model tells what
texts mean; `superseded` may be beside them (`successors.py`)."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A memory that was found, with the stems counted that are asked for. `row` is the whole of
    it. One that says who speaks and is about no file is a turn of a conversation."""

    n: int
    row: Sequence[Any]
    namespace: str
    expires_at: float | None
    body: Mapping[str, int]
    words: int
    extra: Mapping[str, int]
    keys: tuple[str, ...]
    speaker: str

    def frequency(self, stem: str) -> float:
        return self.body.get(stem, 0) + EXTRA_WEIGHT * self.extra.get(stem, 0)

    @property
    def memory(self) -> Memory:
        return from_row(self.row)

    def may_be_seen(self, namespaces: Sequence[str], now: float) -> bool:
        """Does the search that asks for these namespaces at this time see it?"""
        if self.row[_PINNED] or (namespaces and self.namespace not in namespaces):
            return False
        return self.expires_at is None or self.expires_at > now


def candidates(
    db: sqlite3.Connection, numbers: Iterable[int], wanted: Collection[str] = ()
) -> dict[int, Candidate]:
    """The memories with these numbers, their `wanted` stems counted; those that are gone are left
    out."""
    listed = list(numbers)
    rows: list[Sequence[Any]] = []
    for start in range(0, len(listed), 500):
        chunk = listed[start : start + 500]
        marks = ",".join("?" * len(chunk))
        rows += db.execute(
            f"SELECT n, extra, keys, {COLUMNS} FROM memory WHERE n IN ({marks})", chunk
        ).fetchall()
    texts = [words_of(text_of(row[3 + _TEXT])[:MAX_COUNTED_CHARS]) for row in rows]
    bodies = held(texts, wanted)
    extras = held([words_of(row[1]) for row in rows], wanted)
    parts = zip(rows, texts, bodies, extras, strict=True)
    return {row[0]: _candidate(row, text, body, extra) for row, text, body, extra in parts}


def _candidate(
    row: Sequence[Any], text: Worded, body: Mapping[str, int], extra: Mapping[str, int]
) -> Candidate:
    n, _, keys, *columns = row
    return Candidate(
        n=n,
        row=columns,
        namespace=columns[_NAMESPACE],
        expires_at=columns[_EXPIRES],
        body=body,
        words=len(text.words),
        extra=extra,
        keys=tuple(keys.split("\n")) if keys else (),
        speaker="" if keys else text.speaker,
    )


def frequencies(reading: Reading, candidate: Candidate) -> dict[str, float]:
    """How often each stem of the query stands in a candidate, those left out that do not."""
    body, extra = candidate.body, candidate.extra
    found: dict[str, float] = {stem: body[stem] for stem in reading.idf.keys() & body.keys()}
    for stem in reading.idf.keys() & extra.keys() if extra else ():
        found[stem] = found.get(stem, 0.0) + EXTRA_WEIGHT * extra[stem]
    return found


def holds(candidate: Candidate, reading: Reading) -> bool:
    """Does any word of the query stand in the candidate?"""
    stems = reading.idf.keys()
    return not (stems.isdisjoint(candidate.body) and stems.isdisjoint(candidate.extra))


@dataclass(frozen=True, slots=True)
class Part:
    """A candidate, and how often it holds each stem of one query."""

    candidate: Candidate
    held: Mapping[str, float]


def bm25(reading: Reading, within: Corpus, parts: Sequence[Part]) -> float:
    """BM25 of the query over these parts read as one text."""
    norm = _norm(within, parts)
    summed = dict(parts[0].held)
    for part in parts[1:]:
        for stem, times in part.held.items():
            summed[stem] = summed.get(stem, 0.0) + times
    return sum([_term(reading.idf[stem], times, norm) for stem, times in sorted(summed.items())])


def _term(idf: float, frequency: float, norm: float) -> float:
    return idf * frequency * (K1 + 1.0) / (frequency + norm)


def _norm(within: Corpus, parts: Sequence[Part]) -> float:
    words = sum([part.candidate.words for part in parts])
    return K1 * (1.0 - B + B * words / (within.mean_words * len(parts)))


def query_signals(reading: Reading, within: Corpus, background: Background) -> dict[str, float]:
    """What is the same for every candidate of one query."""
    chance, spread = background.at(reading.in_vocabulary * len(reading.stems))
    return {
        "in_vocabulary": reading.in_vocabulary,
        "informative_words": float(len(reading.stems)),
        "chance": chance,
        "chance_spread": spread,
        "memories": float(within.memories),
    }


def word_signals(
    reading: Reading, within: Corpus, part: Part, near: Sequence[Part]
) -> dict[str, float]:
    """What the words of one query say about one candidate; `near` are the turns around it."""
    candidate, held = part.candidate, sorted(part.held)
    rare = [reading.idf[stem] for stem in held]
    own = bm25(reading, within, [part])
    covered = sum(rare)
    rarest = max(rare, default=0.0)
    named = max([reading.idf[stem] for stem in held if stem in reading.names], default=0.0)
    return {
        "bm25": own,
        "bm25_per_term": own / len(reading.stems) if reading.stems else 0.0,
        "idf_coverage": covered / reading.mass if reading.mass else 0.0,
        "coverage_mass": covered,
        "matched_words": float(len(held)),
        "telling_words": float(sum([stem in reading.telling for stem in held])),
        "name_rarity": named / within.rarest,
        "rarest": rarest / within.rarest,
        "turn": float(bool(candidate.speaker)),
        "window": bm25(reading, within, [part, *near]) if near else own,
        "speaker": float(bool(candidate.speaker) and _names(reading, candidate.speaker)),
    }


def best_bm25(db: sqlite3.Connection, text: str, within: Corpus, numbers: Sequence[int]) -> float:
    """The best BM25 that a query text gets from these memories; 0 where there are none."""
    reading = read(db, text, within)
    found = candidates(db, numbers, reading.idf.keys()).values()
    parts = [Part(candidate, frequencies(reading, candidate)) for candidate in found]
    return max((bm25(reading, within, [part]) for part in parts), default=0.0)


def join_signals(
    joins: Mapping[str, Join], within: Corpus, candidate: Candidate
) -> Mapping[str, float]:
    """What the exact joins say about one candidate: of files and of symbols the best each."""
    if not joins:
        return NO_JOIN
    signals = dict(NO_JOIN)
    for key in candidate.keys:
        join = joins.get(key)
        if join is None:
            continue
        kind = "symbol" if join.symbol else "path"
        rarity = damped(join.holding, within.memories)
        if join.strength * rarity > signals[f"{kind}_join"] * signals[f"{kind}_rarity"]:
            signals[f"{kind}_join"], signals[f"{kind}_rarity"] = join.strength, rarity
            if not join.symbol:
                signals["path_named"] = _named(join.name, candidate)
                signals["path_focus"] = 1.0 / math.sqrt(_files(candidate))
    return signals


def meaning_signals(likeness: "Likeness", n: int, turn: bool) -> dict[str, float]:
    """What a memory means beside the question: its cosine, and how far it stands above the store
    and above the next best, in deviations; of a turn also the better one of its neighbours."""
    near = [found for other in (n - 1, n + 1) if turn and (found := likeness.deviations(other))]
    own = likeness.deviations(n)
    return {
        "cosine": likeness.cosines.get(n, 0.0),
        "meaning": own or 0.0,
        "meaning_margin": likeness.margin(n) if own is not None else 0.0,
        "meaning_near": max(near, default=0.0),
    }


def damped(holding: int, memories: int) -> float:
    """1 for what only one memory is about, towards 0 for what all are about."""
    return math.log1p(memories / max(1, holding)) / math.log1p(max(1, memories))


def name_stems(name: str) -> list[str]:
    """The stems of a file's name or a symbol."""
    return stemmer().stems(word_list(name))


def _named(name: str, candidate: Candidate) -> float:
    """Share of the words of a file's stem that stand in the text."""
    stems = name_stems(name)
    if not stems:
        return 0.0
    return sum(1 for stem in stems if candidate.frequency(stem)) / len(stems)


def _files(candidate: Candidate) -> int:
    return max(1, sum(1 for key in candidate.keys if key.startswith("f:")))


def _names(reading: Reading, who: str) -> bool:
    return any(part in reading.words for part in _name_words(who))


@lru_cache(maxsize=512)
def _name_words(who: str) -> tuple[str, ...]:
    """In a conversation the same few speak again and again."""
    return tuple(word_list(who))
