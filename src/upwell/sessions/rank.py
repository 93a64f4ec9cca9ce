"""Rank sessions by the turns that bear on a question.

The score of a session is that of its best turn and a part of that of the session as a whole, where
each term counts as in the turn that has it most: an answer may be spread over several turns. Terms
in a single turn of many are worth more (`Corpus.idf`). Recency and the asker's project are soft
priors: they decide between sessions that fit about equally well.
"""

import math
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest

from upwell.memory.ranking.query import Corpus
from upwell.sessions.tables import TURN_BITS, SessionRow
from upwell.sessions.terms import MAX_IMPACT

WHOLE_SHARE = 0.25
"""The part that the session as a whole adds to its best turn."""
NEW_BONUS, HALF_LIFE_DAYS = 0.05, 60.0
PROJECT_BONUS = 0.1
MAX_RANKED = 60
MAX_FULL_POSTINGS = 60_000
"""After so many postings, a more frequent term only counts for sessions that have rarer ones."""
EXACT_RARITY = 1.5
"""An error or a file that is met exactly weighs more than the rarest word by this factor."""
_DAY_SECONDS = 86_400.0

Posting = tuple["array[int]", bytes]


@dataclass(slots=True)
class Tally:
    """The score of a session: of its turns, by number, and of each term at its best."""

    turns: dict[int, float] = field(default_factory=dict[int, float])
    whole: float = 0.0

    @property
    def score(self) -> tuple[float, int]:
        """The score of the session, and the key of its best turn; of equal ones the last, which
        knows more."""
        score, key = max(zip(self.turns.values(), self.turns, strict=True))
        return score + WHOLE_SHARE * self.whole, key


def tallies(
    words: Sequence[int],
    exact: Collection[int],
    postings: Mapping[int, Posting],
    turns: int,
    visible: Collection[int] | None,
) -> dict[int, Tally]:
    """The tallies of the sessions that have some of these terms, by number. `turns` is how many
    turns there are in all, `visible` the sessions that count."""
    corpus = Corpus(scopes=(), memories=turns, words=0)
    weights = {term: corpus.idf(len(postings[term][0])) for term in words if term in postings}
    weights |= {term: EXACT_RARITY * corpus.rarest for term in exact if term in postings}
    found: dict[int, Tally] = {}
    read = 0
    for term in sorted(weights, key=lambda term: -weights[term]):
        keys, impacts = postings[term]
        _count(found, keys, impacts, weights[term], visible, only_known=read > MAX_FULL_POSTINGS)
        read += len(keys)
    return found


def _count(
    found: dict[int, Tally],
    keys: "array[int]",
    impacts: bytes,
    weight: float,
    visible: Collection[int] | None,
    *,
    only_known: bool,
) -> None:
    """Add a term to the tallies."""
    best: dict[int, int] = {}
    # A turn that grew is posted more than once.
    for key, impact in dict(zip(keys, impacts, strict=True)).items():
        session = key >> TURN_BITS
        tally = found.get(session)
        if tally is None:
            if only_known or (visible is not None and session not in visible):
                continue
            tally = found[session] = Tally()
        tally.turns[key] = tally.turns.get(key, 0.0) + weight * impact / MAX_IMPACT
        if impact > best.get(session, 0):
            best[session] = impact
    for session, impact in best.items():
        found[session].whole += weight * impact / MAX_IMPACT


def ranked(found: Mapping[int, Tally], most: int = MAX_RANKED) -> list[tuple[int, float, int]]:
    """The number, score and best turn of the best sessions, best first."""
    rows = [(no, *tally.score) for no, tally in found.items()]
    return nsmallest(most, rows, key=lambda row: (-row[1], -row[2]))


def with_priors(score: float, session: SessionRow, *, now: float, project: str | None) -> float:
    """A score after the soft priors."""
    age_days = max(0.0, now - session.ended) / _DAY_SECONDS
    factor = 1.0 + NEW_BONUS * math.exp2(-age_days / HALF_LIFE_DAYS)
    if project is not None and session.project == project:
        factor += PROJECT_BONUS
    return score * factor
