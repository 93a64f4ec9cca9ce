"""Ranks sessions by the relevance of their turns to a question. A turn is a prompt with the work
that follows.

A session is ranked by the score of its best turn. An answer may be spread over several turns.
Therefore a share of a second score is added, in which each term counts once, with its highest
weight in any turn of the session. Terms that occur in few turns are worth more (`Corpus.idf`).
Recent sessions, and those of the project in which the question is asked, get a bonus. The bonus is
small, so it only decides between sessions that match about equally well.
"""

import math
from array import array
from collections.abc import Collection, Mapping, Sequence
from heapq import nsmallest

from msgspec import Struct, field

from upwell.memory.ranking.terms import Corpus
from upwell.sessions.tables import TURN_BITS, SessionRow
from upwell.sessions.terms import MAX_IMPACT

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


def with_priors(score: float, session: SessionRow, *, now: float, project: str | None) -> float:
    """The score with the bonuses for a recent session and for a session of `project`."""
    age_days = max(0.0, now - session.ended) / _DAY_SECONDS
    factor = 1.0 + NEW_BONUS * math.exp2(-age_days / HALF_LIFE_DAYS)
    if project is not None and session.project == project:
        factor += PROJECT_BONUS
    return score * factor
