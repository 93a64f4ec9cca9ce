"""Rank sections for a question by BM25F over their fields, and then rescore the best.

Rescoring adds a share of other scores to a section's score: those of its best pair of neighbouring
blocks, its page, the section above it, and the sections next to it. Of sections with the same text,
only the best is kept.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from upwell.memory.documents.sections.index import SATURATION, Index
from upwell.memory.documents.sections.question import SectionQuestion

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
    """Return the sections relevant to a question, best first."""
    by_term, scores = _by_terms(index, reading)
    if not scores:
        return []
    best = heapq.nlargest(2 * CLOSELY, scores, key=lambda number: (scores[number], -number))
    index.load_terms(best[:CLOSELY])
    final = _rescored(index, best, scores, by_term, reading.question.weights)
    order = sorted(final, key=lambda number: (-final[number], number))
    return [
        Ranked(
            number,
            final[number],
            {
                term: by_section[number]
                for term, by_section in by_term.items()
                if number in by_section
            },
        )
        for number in _distinct(index, order)
    ]


def _distinct(index: Index, order: Iterable[int]) -> Iterator[int]:
    seen: set[int] = set()
    for number in order:
        digest = index.places[number].digest
        if digest not in seen:
            seen.add(digest)
            yield number


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
        pairs = _pairs_of_blocks(index.block_terms(number), present, worth)
        close[number] += PASSAGE_SHARE * max(pairs, default=0.0)
    pages: dict[int, list[float]] = defaultdict(list)
    for number in best:
        pages[places[number].file].append(close[number])
    means = {page: sum(sorted(page_scores)[-3:]) / 3.0 for page, page_scores in pages.items()}
    close = {n: score + PAGE_SHARE * means[places[n].file] for n, score in close.items()}
    return {
        number: score
        + ABOVE_SHARE * close.get(places[number].parent, 0.0)
        + BESIDE_SHARE * sum(_beside(index, number, close)) / 2.0
        for number, score in close.items()
    }


def _pairs_of_blocks(
    blocks: Sequence[frozenset[str]], present: Sequence[str], worth: Mapping[str, float]
) -> Iterator[float]:
    for first, second in pairwise((*blocks, frozenset[str]())):
        yield sum(worth[term] for term in present if term in first or term in second)


def _beside(index: Index, number: int, close: Mapping[int, float]) -> Iterator[float]:
    for other in (number - 1, number + 1):
        if other in close and index.places[other].file == index.places[number].file:
            yield close[other]
