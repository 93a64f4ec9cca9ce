"""Estimate the probability that the first sections answer the question.

The estimate comes from a logistic model over a few raw signals, fitted to the development questions
in `benchmarks/RESULTS.md` ("Questions to documentation"). The figures there are for projects that
were left out of the fit. With more signals, the model would learn the projects rather than the
questions.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from upwell.memory.documents.sections.index import SATURATION, Index
from upwell.memory.documents.sections.rank import QuestionReading, Ranked
from upwell.memory.documents.sections.terms import terms
from upwell.memory.documents.sections.vocabulary import UNKNOWN_BURST

EVERYDAY_WEIGHT, UNKNOWN_NAME_WEIGHT = 0.3, 0.3
MAX_PHRASES = 3
SECOND_SHARE = 0.8
"""If nobody asked for a passage, a second section is usually shown only if its score is at least
this share of the first one's."""


class Calibration(Struct, frozen=True):
    """A logistic model over signals."""

    weights: Mapping[str, float]
    constant: float

    def probability(self, signals: Mapping[str, float]) -> float:
        """Return the probability, 0 to 1, that the answer is among the first two sections."""
        line = sum(weight * signals[name] for name, weight in self.weights.items())
        return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, self.constant + line))))


PROMPTS = Calibration({"share": 3.148, "mass": 1.439, "covered": 1.364}, -2.213)
"""The constant is 0.2 above the fitted one. With a threshold of 0.5, one in ten of the prompts that
no section answers then gets a passage."""
TOOLS = Calibration({"share": 1.886, "phrases": 0.579, "subject": 0.685}, -0.178)
NOTES = Calibration({"top_three": 1.771}, -6.991)
"""For notes on how to work in a repository, as opposed to documentation."""

_NOTES = re.compile(
    r"(?i)(?:^|/)(?:contributing|agents?|claude|gemini|hacking|copilot-instructions|"
    r"[^/]*style[-_ ]?guide|style|[^/]*testing|[^/]*conventions)\.(?:md|markdown)$"
)


def is_note(cited: str) -> bool:
    """Return whether the file at this path is a note on how to work in the repository."""
    return _NOTES.search(cited) is not None


def signals_of(index: Index, reading: QuestionReading, hits: Sequence[Ranked]) -> dict[str, float]:
    """Return the signals from which a calibration estimates whether the question is answered.

    - `share`: the log of the ratio between the first section's score and the highest possible
      score for the question. Names that no section contains count towards the highest possible
      score.
    - `mass`: the log of the total weight of the question's terms. Rare terms weigh more. Everyday
      words and unknown names weigh less.
    - `covered`: the share of the question that the first section contains.
    - `phrases`: how many pairs of neighbouring terms in the question are also close together in
      the first section.
    - `subject`: whether the question names what the documentation is about.
    - `top_three`: the log of the sum of the three best scores.
    """
    question, top = reading.question, hits[0]
    most = sum(w * index.idf(term) for term, w in reading.weights.items()) * (SATURATION + 1.0)
    plain = [term for term in question.weights if _is_plain(term, question.compounds)]
    return {
        "share": math.log(top.score / (most + 2.0) + 0.02),
        "mass": math.log1p(_mass(index, reading)),
        "covered": _covered(index, reading, top, plain),
        "phrases": float(min(MAX_PHRASES, _phrases(index, reading, top.number))),
        "subject": float(any(index.is_subject(term) for term in plain)),
        "top_three": math.log(sum(hit.score for hit in hits[:3]) + 0.5),
    }


def _is_plain(term: str, compounds: frozenset[str]) -> bool:
    return term not in compounds and term[0] != "-"


def _mass(index: Index, reading: QuestionReading) -> float:
    """Return the total of weight times IDF over the question's terms. Everyday words and unknown
    names count less."""
    question, everyday = reading.question, index.vocabulary.everyday
    total = 0.0
    for term, weight in question.weights.items():
        value = weight * index.idf(term)
        if term in everyday:
            value *= EVERYDAY_WEIGHT
        if term in question.compounds and not index.postings(term).frequencies:
            value *= UNKNOWN_NAME_WEIGHT
        total += value
    return total


def _covered(index: Index, reading: QuestionReading, top: Ranked, plain: Iterable[str]) -> float:
    present = index.title_terms(top.number).union(*index.block_terms(top.number), top.by_term)
    total = covered = 0.0
    for term in plain:
        value = reading.question.weights[term] * _beyond_talk(index, term) * index.idf(term)
        total += value
        if term in present:
            covered += value
        else:
            shares = (share for other, share in reading.variants[term] if other in present)
            covered += value * max(shares, default=0.0)
    return covered / (total + 0.5)


def _beyond_talk(index: Index, term: str) -> float:
    """Return the weight of a word, from 0.2 for an everyday word to 1 for a technical one."""
    if term.isdigit():
        return 0.3
    burst = index.vocabulary.burst.get(term, UNKNOWN_BURST)
    return max(0.2, min(1.0, 0.2 + 0.8 * (burst - 1.1) / 0.6))


def _phrases(index: Index, reading: QuestionReading, number: int) -> int:
    """Count the pairs of neighbouring terms in the question that occur within two words of each
    other in the section."""
    topicality = reading.topicality
    pairs = {
        frozenset(pair)
        for pair in pairwise(reading.question.order)
        if pair[0] != pair[1] and topicality[pair[0]] + topicality[pair[1]] > 1.2
    }
    if not pairs:
        return 0
    words = frozenset[str]().union(*pairs)
    matched: set[frozenset[str]] = set()
    for text in (index.places[number].heading, *(block.text for block in index.blocks(number))):
        present = terms(text)
        for position, term in enumerate(present):
            if term in words:
                near = present[position + 1 : position + 3]
                matched |= {frozenset((term, other)) for other in near} & pairs
    return len(matched)
