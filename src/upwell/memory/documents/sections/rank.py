"""Rank sections for a question by BM25F over their fields, rescore the best, and estimate the
probability that the first ones answer the question.

Rescoring adds a share of other scores to a section's score: those of its best pair of neighbouring
blocks, its page, the section above it, and the sections next to it. Of sections with the same text,
only the best is kept.

The estimate comes from a logistic model over a few raw signals, fitted to the development questions
in `benchmarks/RESULTS.md` ("Questions to documentation"). The figures there are for projects that
were left out of the fit. With more signals, the model would learn the projects rather than the
questions.
"""

import heapq
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from upwell.memory.documents.sections.index import SATURATION, Index
from upwell.memory.documents.sections.terms import UNKNOWN_BURST, SectionQuestion, terms

CLOSELY = 60
"""Only this many of the best sections are also scored by their best pair of blocks."""
MAX_TERMS = 20
"""How many terms of a question are looked up: those with the highest weight times IDF."""
ENOUGH = 1_000
"""Once rarer terms have found this many sections, commoner terms only raise the scores of those
sections."""
PASSAGE_SHARE, PAGE_SHARE, ABOVE_SHARE, BESIDE_SHARE = 0.3, 0.15, 0.1, 0.1


class QuestionReading(Struct, frozen=True):
    """A question as an index understands it. `weights` are the question's weights, multiplied by
    topicality. `variants` are other terms that may mean the same, with their weights."""

    question: SectionQuestion
    topicality: Mapping[str, float]
    weights: Mapping[str, float]
    variants: Mapping[str, Sequence[tuple[str, float]]]


class Ranked(Struct, frozen=True):
    """A section with its score. `by_term` has the contribution of each term of the question."""

    number: int
    score: float
    by_term: Mapping[str, float]


def read(index: Index, question: SectionQuestion) -> QuestionReading:
    """Weight the terms of a question, and find their variants in the index."""
    topicality = {term: index.topicality(term) for term in question.weights}
    weights = {term: weight * topicality[term] for term, weight in question.weights.items()}
    looked_up = heapq.nlargest(MAX_TERMS, weights, key=lambda term: weights[term] * index.idf(term))
    variants = {term: index.variants(term) if term in looked_up else [] for term in weights}
    return QuestionReading(question, topicality, weights, variants)


def rank(index: Index, reading: QuestionReading) -> list[Ranked]:
    by_term, scores = _by_terms(index, reading)
    if not scores:
        return []
    best = heapq.nlargest(2 * CLOSELY, scores, key=lambda number: (scores[number], -number))
    index.load_terms(best[:CLOSELY])
    final = _rescored(index, best, scores, by_term, reading.question.weights)
    first: dict[int, int] = {}
    for number in sorted(final, key=lambda number: (-final[number], number)):
        first.setdefault(index.places[number].digest, number)
    return [
        Ranked(
            number,
            final[number],
            {term: of[number] for term, of in by_term.items() if number in of},
        )
        for number in first.values()
    ]


def _by_terms(
    index: Index, reading: QuestionReading
) -> tuple[dict[str, dict[int, float]], dict[int, float]]:
    weights = reading.weights
    by_term: dict[str, dict[int, float]] = {}
    scores: dict[int, float] = defaultdict(float)
    among: frozenset[int] | None = None
    strongest = heapq.nlargest(MAX_TERMS, weights, key=lambda term: weights[term] * index.idf(term))
    for term in sorted(strongest, key=lambda stem: (len(index.postings(stem).frequencies), stem)):
        if among is None and len(scores) >= ENOUGH:
            among = frozenset(heapq.nlargest(ENOUGH, scores, key=scores.__getitem__))
        by_section = by_term[term] = _contributions(index, term, reading, among)
        for number, score in by_section.items():
            scores[number] += score
    return by_term, scores


def _contributions(
    index: Index, term: str, reading: QuestionReading, among: frozenset[int] | None
) -> dict[int, float]:
    """Return the BM25F of a term in each section, or that of its best variant if this is higher. If
    `among` is given, only the sections in it are scored."""
    own = index.idf(term)
    is_known = bool(index.postings(term).frequencies)
    scores: dict[int, float] = {}
    for form, share in ((term, 1.0), *reading.variants[term]):
        frequencies = index.postings(form).frequencies
        if not frequencies:
            continue
        idf = index.idf_of(len(frequencies))
        if share < 1.0 and is_known:
            idf = min(idf, own)
        factor = reading.weights[term] * share * idf * (SATURATION + 1.0)
        rows = (
            frequencies.items()
            if among is None
            else [(number, frequencies[number]) for number in among & frequencies.keys()]
        )
        if not scores:
            scores = {number: factor * frequency for number, frequency in rows}
            continue
        for number, frequency in rows:
            if factor * frequency > scores.get(number, 0.0):
                scores[number] = factor * frequency
    return scores


def _rescored(
    index: Index,
    best: Sequence[int],
    scores: Mapping[int, float],
    by_term: Mapping[str, Mapping[int, float]],
    weights: Mapping[str, float],
) -> dict[int, float]:
    places = index.places
    worth = {term: weights[term] * index.idf(term) for term in by_term}
    close = {number: scores[number] for number in best}
    for number in best[:CLOSELY]:
        present = [term for term, by_section in by_term.items() if number in by_section]
        pairs = pairwise((*index.block_terms(number), frozenset[str]()))
        worths = [sum(worth[t] for t in present if t in one or t in other) for one, other in pairs]
        close[number] += PASSAGE_SHARE * max(worths, default=0.0)
    pages: dict[int, list[float]] = defaultdict(list)
    for number in best:
        pages[places[number].file].append(close[number])
    means = {page: sum(sorted(page_scores)[-3:]) / 3.0 for page, page_scores in pages.items()}
    close = {n: score + PAGE_SHARE * means[places[n].file] for n, score in close.items()}
    return {
        number: score
        + ABOVE_SHARE * close.get(places[number].parent, 0.0)
        + BESIDE_SHARE
        * sum(
            close[other]
            for other in (number - 1, number + 1)
            if other in close and places[other].file == places[number].file
        )
        / 2.0
        for number, score in close.items()
    }


EVERYDAY_WEIGHT, UNKNOWN_NAME_WEIGHT = 0.3, 0.3
MAX_PHRASES = 3
SECOND_SHARE = 0.8
"""If nobody asked for a passage, a second section is usually shown only if its score is at least
this share of the first one's."""


class Calibration(Struct, frozen=True):
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
    plain = [t for t in question.weights if t not in question.compounds and t[0] != "-"]
    return {
        "share": math.log(top.score / (most + 2.0) + 0.02),
        "mass": math.log1p(_mass(index, reading)),
        "covered": _covered(index, reading, top, plain),
        "phrases": float(min(MAX_PHRASES, _phrases(index, reading, top.number))),
        "subject": float(any(index.is_subject(term) for term in plain)),
        "top_three": math.log(sum(hit.score for hit in hits[:3]) + 0.5),
    }


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
