"""Ranks sessions by the relevance of their turns to a question. A turn is a prompt with the work
that follows.

A session is ranked by the score of its best turn. An answer may be spread over several turns.
Therefore a share of a second score is added, in which each term counts once, with its highest
weight in any turn of the session. Terms that occur in few turns are worth more (`Corpus.idf`).
Recent sessions, and those of the project in which the question is asked, get a bonus. The bonus is
small, so it only decides between sessions that match about equally well.

A term is a number: the hash of a stem, of the path of a file or of the signature of an error. Apart
from short masked excerpts and the names and folders of sessions, the index therefore contains no
text from transcripts. The weight of a term in a turn is BM25F (Robertson, Zaragoza and Taylor,
2004): the frequency in each field is divided by the field's relative length and multiplied by its
weight, and saturation applies to the sum. The mean lengths are fixed, so that the weight is known
when the turn is indexed.
"""

import math
import posixpath
import re
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from heapq import nsmallest

from msgspec import Struct, field

from upwell.episodes.signatures import signature
from upwell.ground.project import real_folder
from upwell.ground.text.words import STOP_WORDS, fold, path_words
from upwell.memory.lookups import stemmer
from upwell.memory.ranking.terms import Corpus, hidden_words, query_words, sound, word_list
from upwell.sessions.tables import TURN_BITS, SessionRow
from upwell.sessions.turns import (
    MAX_REMARK_CHARS,
    MAX_REMARKS_CHARS,
    Turn,
    error_lines,
)

SATURATION = 1.2
LENGTH_SHARE = 0.6
MIN_LENGTH = 0.4
MAX_IMPACT = 255
MIN_SIGNATURE_CHARS = 12
_HASH_BYTES = 6
_MAX_CACHED = 200_000
_TOKEN = re.compile(r"[^\W_]+")


class Field(Struct, frozen=True):
    """A part of a turn: its weight, and its usual number of words."""

    weight: float
    mean_words: int


QUESTION = Field(2.2, 40)
CONCLUSION = Field(1.5, 120)
REMARKS = Field(0.5, 150)
WORK = Field(0.7, 120)
"""The commands, files and errors. Of all fields, the question counts most, because users repeat a
question in similar words."""


def impacts_of(turn: Turn) -> dict[int, int]:
    """The terms of a turn, each with its weight from 1 to `MAX_IMPACT`."""
    remarks = "\n".join(remark[:MAX_REMARK_CHARS] for remark in turn.remarks[:-1])
    commands = "\n".join(dict.fromkeys(run.command for run in turn.runs))
    root = f"{turn.cwd}/" if turn.cwd else ""
    files = (file.removeprefix(root) for file in (*turn.changed, *turn.read))
    work = (
        commands[:MAX_REMARKS_CHARS],
        " ".join(word for file in files for word in path_words(file)),
        *turn.errors,
    )
    fields = {
        QUESTION: turn.question,
        CONCLUSION: turn.conclusion,
        REMARKS: remarks[:MAX_REMARKS_CHARS],
        WORK: "\n".join(work),
    }
    weights: dict[int, float] = {}
    for part, text in fields.items():
        tokens = Counter(_TOKEN.findall(sound(text)))
        length = 1.0 - LENGTH_SHARE + LENGTH_SHARE * tokens.total() / part.mean_words
        factor = part.weight / max(length, MIN_LENGTH)
        for token, count in tokens.items():
            for term in _terms_of(token):
                weights[term] = weights.get(term, 0.0) + factor * count
    impacts = {
        term: max(1, round(MAX_IMPACT * weight / (weight + SATURATION)))
        for term, weight in weights.items()
    }
    impacts |= dict.fromkeys(_exact_terms(turn), MAX_IMPACT)
    return impacts


def question_terms(text: str) -> list[int]:
    """The terms of the words in a question, without duplicates."""
    return list(dict.fromkeys(term for word in query_words(text) for term in _terms_of(word)))


def word_terms(text: str) -> dict[str, tuple[int, ...]]:
    """Each word of a question with its terms."""
    by_word = {word: _terms_of(word) for word in query_words(text)}
    return {word: terms for word, terms in by_word.items() if terms}


def text_terms(text: str) -> frozenset[int]:
    """The terms of all words in a text."""
    return frozenset(term for token in _TOKEN.findall(sound(text)) for term in _terms_of(token))


def error_terms(text: str) -> list[int]:
    """The terms of the errors in a text."""
    signatures = (signature(line) for line in error_lines(text))
    return [_hash("error", text) for text in signatures if len(text) >= MIN_SIGNATURE_CHARS]


def file_terms(path: str, cwd: str | None, *, changed: bool) -> list[int]:
    """The terms of a file: its absolute path, its path in the folder `cwd`, and its name."""
    kind = "changed" if changed else "read"
    absolute = posixpath.normpath(posixpath.join(cwd or "/", path))
    names = [absolute, posixpath.basename(absolute)]
    if cwd and absolute.startswith(f"{cwd}/"):
        inside = absolute[len(cwd) + 1 :]
        names += [inside, posixpath.join(_real(cwd), inside)]
    return [_hash(kind, name) for name in dict.fromkeys(names)]


@lru_cache(maxsize=256)
def _real(folder: str) -> str:
    return real_folder(folder)


def named_file(name: str, *, changed: bool) -> int:
    """The term of a file under one of its names."""
    return _hash("changed" if changed else "read", name)


def digest_of(turn: Turn) -> int:
    """A hash that identifies a turn by its question and time. It reveals copies: a host that
    resumes a session copies the earlier turns into a new transcript."""
    return _hash(f"{turn.began:.0f}", turn.question)


def _exact_terms(turn: Turn) -> Iterable[int]:
    for line in turn.errors:
        if len(text := signature(line)) >= MIN_SIGNATURE_CHARS:
            yield _hash("error", text)
    for path in turn.changed:
        yield from file_terms(path, turn.cwd, changed=True)
    for path in turn.read:
        yield from file_terms(path, turn.cwd, changed=False)


@lru_cache(maxsize=_MAX_CACHED)
def _terms_of(token: str) -> tuple[int, ...]:
    """The terms of a word: those of the word itself and, if it is an identifier, those of its
    parts."""
    words = dict.fromkeys((*word_list(token), *hidden_words(token)))
    indexed = [word for word in words if len(word) > 1 and word not in _stop_words()]
    return tuple(_hash("word", stem) for stem in stemmer().stems(indexed))


@lru_cache(maxsize=1)
def _stop_words() -> frozenset[str]:
    return frozenset(map(fold, STOP_WORDS))


def _hash(kind: str, text: str) -> int:
    encoded = f"{kind}\0{text}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(encoded, digest_size=_HASH_BYTES).digest())


WHOLE_SHARE = 0.25
"""The share of `ScoreTally.whole` that is added to the score of the session's best turn."""
NEW_BONUS, HALF_LIFE_DAYS = 0.05, 60.0
PROJECT_BONUS = 0.1
MAX_RANKED = 60
MAX_FULL_POSTINGS = 60_000
"""The index has a posting for each term and each turn that contains the term. After this many
postings have been read, the remaining, more frequent terms count only for sessions that contain a
rarer term."""
EXACT_RARITY = 1.5
"""An error that matches exactly counts this many times as much as the rarest word."""
_DAY_SECONDS = 86_400.0

Posting = tuple["array[int]", bytes]


class ScoreTally(Struct):
    """The parts of a session's score. `turns` maps the keys of its turns to their scores. `whole`
    is the sum of every term's highest weight in any turn."""

    turns: dict[int, float] = field(default_factory=dict[int, float])
    whole: float = 0.0

    @property
    def score(self) -> tuple[float, int]:
        """The score of the session, and the key of its best turn. In a tie, the last turn is
        chosen, because it is likely to contain more."""
        score, key = max(zip(self.turns.values(), self.turns, strict=True))
        return score + WHOLE_SHARE * self.whole, key


def tallies(
    words: Sequence[int],
    exact: Collection[int],
    postings: Mapping[int, Posting],
    turns: int,
    visible: Collection[int] | None,
) -> dict[int, ScoreTally]:
    """The tallies of the sessions that contain any of these terms, keyed by session number. `words`
    are the terms of the words in the question, and `exact` are the terms of its errors. `turns` is
    the total number of turns. `visible` are the sessions to consider, or None for all."""
    corpus = Corpus(scopes=(), memories=turns, words=0)
    weights = {term: corpus.idf(len(postings[term][0])) for term in words if term in postings}
    weights |= {term: EXACT_RARITY * corpus.rarest for term in exact if term in postings}
    by_session: dict[int, ScoreTally] = {}
    read = 0
    for term in sorted(weights, key=lambda term: -weights[term]):
        keys, impacts = postings[term]
        _count(
            by_session, keys, impacts, weights[term], visible, only_known=read > MAX_FULL_POSTINGS
        )
        read += len(keys)
    return by_session


def _count(
    by_session: dict[int, ScoreTally],
    keys: "array[int]",
    impacts: bytes,
    weight: float,
    visible: Collection[int] | None,
    *,
    only_known: bool,
) -> None:
    best: dict[int, int] = {}
    # A turn may have been posted several times. Its last posting counts.
    for key, impact in dict(zip(keys, impacts, strict=True)).items():
        session = key >> TURN_BITS
        tally = by_session.get(session)
        if tally is None:
            if only_known or (visible is not None and session not in visible):
                continue
            tally = by_session[session] = ScoreTally()
        tally.turns[key] = tally.turns.get(key, 0.0) + weight * impact / MAX_IMPACT
        if impact > best.get(session, 0):
            best[session] = impact
    for session, impact in best.items():
        by_session[session].whole += weight * impact / MAX_IMPACT


def ranked(
    by_session: Mapping[int, ScoreTally], most: int = MAX_RANKED
) -> list[tuple[int, float, int]]:
    """The best sessions, best first. Each row has the session's number and score, and the key of
    its best turn."""
    rows = [(no, *tally.score) for no, tally in by_session.items()]
    return nsmallest(most, rows, key=lambda row: (-row[1], -row[2]))


def with_priors(score: float, session: SessionRow, now: float, project: str | None) -> float:
    """The score with the bonuses for a recent session and for a session of `project`."""
    age_days = max(0.0, now - session.ended) / _DAY_SECONDS
    factor = 1.0 + NEW_BONUS * math.exp2(-age_days / HALF_LIFE_DAYS)
    if project is not None and session.project == project:
        factor += PROJECT_BONUS
    return score * factor
