"""The sections that are visible to a question, opened for searching.

An outline of all sections is read once. Postings and the terms of blocks are read when they are
needed, and then cached, so a new process can search without reading everything. Texts are not
cached.
"""

import math
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct, field

from upwell.memory.documents.sections.parse import MAX_LINK_COUNT, Block, Targets, blocks_of
from upwell.memory.documents.sections.rows import (
    COUNT_BITS,
    FIELDS,
    MAX_COUNT,
    TEXT_FIELDS,
    FilePlace,
    scopes,
)
from upwell.memory.documents.sections.terms import UNKNOWN_BURST, Vocabulary, vocabulary
from upwell.memory.sqlite.rows import within

WEIGHTS = {
    "prose": 1.0, "code": 0.45, "table": 0.8, "heading": 2.5, "trail": 1.0, "path": 0.5,
    "link": 1.5, "near": 0.4,
}  # fmt: skip
"""The weight of an occurrence in each field, in BM25F (Robertson, Zaragoza, Taylor 2004). `link` is
the text of links to the section, and `near` is that text and the text around it. The weights were
tuned on the documentation of six projects (`benchmarks/RESULTS.md`)."""
LENGTH_SHARES = {
    "prose": 0.2, "code": 0.5, "table": 0.3, "heading": 0.3, "trail": 0.3, "path": 0.3,
    "link": 0.3, "near": 0.3,
}  # fmt: skip
"""The parameter b of BM25F for each field."""
SATURATION = 1.6
"""The parameter k1 of BM25F."""
MIN_SECTIONS = 300
"""For IDF, a smaller index counts as one with this many sections, because a few sections do not
show which words are rare."""
MAX_PREFIXED = 30
MAX_CACHED_TERMS = 20_000

TALK_BURST, TOPIC_BURST = 1.15, 1.6
MIN_TOPICALITY, MAX_TOPICALITY = 0.3, 1.2
PRIOR_SECTIONS = 10
NUMBER_TOPICALITY, FLAG_TOPICALITY = 0.6, 1.2
PREFIX_WEIGHT = 0.5
SUBJECT_SHARE = 0.25
"""A name in more than this share of all sections is the subject of the documentation."""


class SectionPlace(Struct, frozen=True):
    """The position of a section. `parent` is the section above it, or 0 at the top. Sections with
    the same text have the same `digest`. `has_text` is False for a bare heading."""

    number: int
    file: int
    parent: int
    trail: tuple[str, ...]
    level: int
    first: int
    last: int
    digest: int
    has_text: bool

    @property
    def heading(self) -> str:
        return self.trail[-1] if self.trail else ""


class SectionPostings(Struct):
    """The sections that contain a term. `frequencies` maps each section to the term's weighted,
    length-normalised and saturated frequency in it (0 to 1). `sections` is the number of sections
    with the term in their body (without headings), and `occurrences` counts the term in these
    bodies."""

    frequencies: dict[int, float] = field(default_factory=dict)
    sections: int = 0
    occurrences: int = 0


class _Field(Struct, frozen=True):
    weight: float
    share: float
    mean: float

    def scale(self, length: int) -> float:
        return self.weight / (1.0 - self.share + self.share * length / self.mean)


class Index:
    """The sections of one scope, as they were when the index was opened. All reads use one
    connection."""

    def __init__(
        self, db: sqlite3.Connection, project: str | None, namespaces: Sequence[str]
    ) -> None:
        self._db = db
        self._scopes = scopes(db, project)
        self.vocabulary: Vocabulary = vocabulary()
        among, names = within("namespace", namespaces) if namespaces else ("true", ())
        rows = db.execute(
            f"SELECT no, cited, project, namespace, tags, changed_at FROM file WHERE {among}", names
        )
        self.files = {row[0]: FilePlace(row[1], row[2] or None, *row[3:]) for row in rows}
        self.places: dict[int, SectionPlace] = {}
        self._lengths: dict[int, tuple[int, ...]] = {}
        self._read_outline()
        self._fields = _fields(FIELDS, self._lengths.values())
        self._link_terms, self._link_fields = self._read_links()
        self._postings: dict[str, SectionPostings] = {}
        self._prefixed: dict[str, tuple[str, ...]] = {}
        self._terms: dict[int, list[frozenset[str]]] = {}

    def __len__(self) -> int:
        return len(self.places)

    def postings(self, term: str) -> SectionPostings:
        cached = self._postings.get(term)
        if cached is None:
            if len(self._postings) >= MAX_CACHED_TERMS:
                self._postings.clear()
            cached = self._postings[term] = self._read_postings(term)
        return cached

    def idf(self, term: str) -> float:
        """Return the inverse document frequency of a term (Robertson, Sparck Jones). It is never
        negative, and highest for unknown terms."""
        return self.idf_of(len(self.postings(term).frequencies))

    def idf_of(self, sections: int) -> float:
        size = max(len(self.places), MIN_SECTIONS)
        return math.log(1.0 + (size - sections + 0.5) / (sections + 0.5))

    def topicality(self, term: str) -> float:
        """Return how strongly a term indicates a subject. This is measured by its burstiness: how
        often it occurs, on average, in the sections that contain it. If few sections contain it,
        its burstiness in the vocabulary counts more."""
        if term.isdigit():
            return NUMBER_TOPICALITY
        if term[0] == "-":
            return FLAG_TOPICALITY
        postings = self.postings(term)
        prior = self.vocabulary.burst.get(term, UNKNOWN_BURST)
        burst = (postings.occurrences + PRIOR_SECTIONS * prior) / (
            postings.sections + PRIOR_SECTIONS
        )
        slope = (1.0 - MIN_TOPICALITY) / (TOPIC_BURST - TALK_BURST)
        topicality = MIN_TOPICALITY + slope * (burst - TALK_BURST)
        return min(MAX_TOPICALITY, max(MIN_TOPICALITY, topicality))

    def variants(self, term: str) -> list[tuple[str, float]]:
        """Return the words in the index that `term` may abbreviate, and its synonyms, with their
        weights."""
        weights: dict[str, float] = dict.fromkeys(self._beginning_with(term), PREFIX_WEIGHT)
        for other, weight in self.vocabulary.synonyms.get(term, {}).items():
            weights[other] = max(weight, weights.get(other, 0.0))
        return [pair for pair in weights.items() if self.postings(pair[0]).frequencies]

    def is_subject(self, term: str) -> bool:
        sections = len(self.postings(term).frequencies)
        return sections > SUBJECT_SHARE * len(self.places) and term not in self.vocabulary.burst

    def load_terms(self, numbers: Iterable[int]) -> None:
        missing = [number for number in numbers if number not in self._terms]
        if len(self._terms) > MAX_CACHED_TERMS:
            self._terms.clear()
        marks = ",".join("?" * len(missing))
        for number, listed in self._db.execute(
            f"SELECT no, terms FROM section WHERE no IN ({marks})", missing
        ):
            self._terms[number] = [frozenset(line.split()) for line in listed.split("\n")]

    def title_terms(self, number: int) -> frozenset[str]:
        return self._terms_of(number)[0]

    def block_terms(self, number: int) -> list[frozenset[str]]:
        return self._terms_of(number)[1:]

    def blocks(self, number: int) -> tuple[Block, ...]:
        section = self.places[number]
        return (
            blocks_of(self.text(number), section.first, section.level) if section.has_text else ()
        )

    def text(self, number: int) -> str:
        row = self._db.execute("SELECT text FROM section WHERE no = ?", (number,)).fetchone()
        return str(row[0])

    def file_of(self, number: int) -> FilePlace:
        return self.files[self.places[number].file]

    def id_of(self, number: int) -> str:
        row = self._db.execute("SELECT id FROM section WHERE no = ?", (number,)).fetchone()
        return str(row[0])

    def number_of(self, section_id: str) -> int | None:
        row = self._db.execute("SELECT no FROM section WHERE id = ?", (section_id,)).fetchone()
        return int(row[0]) if row and row[0] in self.places else None

    def _terms_of(self, number: int) -> list[frozenset[str]]:
        if number not in self._terms:
            self.load_terms((number,))
        return self._terms[number]

    def _read_outline(self) -> None:
        within, values = self._within()
        for row in self._db.execute(
            "SELECT no, file, parent, trail, level, first_line, last_line, digest, text != '', "
            f"lengths FROM section WHERE 1 {within} ORDER BY no",
            values,
        ):
            if row[1] not in self.files:
                continue
            number, file, parent, trail, level, first, last, digest, has_text, lengths = row
            headings = tuple(trail.split("\n")) if trail else ()
            self.places[number] = SectionPlace(
                number, file, parent or 0, headings, level, first, last, digest, bool(has_text)
            )
            self._lengths[number] = tuple(map(int, lengths.split()))

    def _within(self) -> tuple[str, Sequence[int]]:
        if self._scopes is None:
            return "", ()
        return f"AND scope IN ({','.join('?' * len(self._scopes))})", self._scopes

    def _read_links(self) -> tuple[dict[str, dict[int, list[int]]], dict[int, tuple[float, float]]]:
        """Return two mappings. The first has, for each term and each section, the counts of the
        term in the section's fields `link` and `near`. The second has the scales of these two
        fields for each section with incoming links."""
        targets = Targets()
        for number, row in self.places.items():
            targets.add(self.file_of(number).cited, row.heading, number)
        counts: dict[int, tuple[Counter[str], Counter[str]]] = {}
        for section, page, anchor, words, near in self._db.execute(
            "SELECT section, page, anchor, terms, near FROM link ORDER BY section"
        ):
            target = targets.find(page, anchor) if section in self.places else None
            if target is None or target == section:
                continue
            pair = counts.setdefault(target, (Counter(), Counter()))
            pair[0].update(words.split())
            pair[1].update(near.split())
        return _link_terms(counts), _link_scales(counts)

    def _read_postings(self, term: str) -> SectionPostings:
        postings = SectionPostings()
        raw: defaultdict[int, float] = defaultdict(float)
        within, values = self._within()
        prose = self._fields[0]
        for section, packed in self._db.execute(
            f"SELECT section, counts FROM posting WHERE term = ? {within}", (term, *values)
        ):
            lengths = self._lengths.get(section)
            if lengths is None:
                continue
            if packed <= MAX_COUNT:
                postings.sections += 1
                postings.occurrences += packed
                raw[section] = packed * prose.scale(lengths[0])
                continue
            in_text = 0
            for number, figures in enumerate(self._fields):
                count = packed >> number * COUNT_BITS & MAX_COUNT
                if count:
                    raw[section] += count * figures.scale(lengths[number])
                    in_text += count if number < TEXT_FIELDS else 0
            postings.sections += in_text > 0
            postings.occurrences += in_text
        for section, (link, near) in self._link_terms.get(term, {}).items():
            scales = self._link_fields[section]
            raw[section] += link * scales[0] + near * scales[1]
        postings.frequencies = {no: value / (SATURATION + value) for no, value in raw.items()}
        return postings

    def _beginning_with(self, term: str) -> tuple[str, ...]:
        if not (3 <= len(term) <= 6 and term.isascii() and term.isalpha()):
            return ()
        cached = self._prefixed.get(term)
        if cached is None:
            rows = self._db.execute(_BEGINNING, {"term": term, "after": term + "\x7f"})
            longer = (row[0] for row in rows if len(row[0]) >= len(term) + 2 and row[0].isalpha())
            cached = self._prefixed[term] = tuple(longer)[:MAX_PREFIXED]
        return cached


_BEGINNING = f"""
    WITH RECURSIVE near (term) AS (
        SELECT min(term) FROM posting WHERE term > :term AND term < :after
        UNION ALL
        SELECT (SELECT min(term) FROM posting WHERE posting.term > near.term
                AND posting.term < :after)
        FROM near WHERE near.term IS NOT NULL LIMIT {4 * MAX_PREFIXED})
    SELECT term FROM near WHERE term IS NOT NULL"""
"""Selects the terms with a given prefix. It jumps from one term to the next instead of scanning all
postings."""


def _fields(names: Iterable[str], lengths: Collection[Sequence[int]]) -> list[_Field]:
    """Return the fields, with the means of their `lengths`, a row of which has one length each."""
    return [
        _Field(
            WEIGHTS[name],
            LENGTH_SHARES[name],
            max(1.0, sum(row[number] for row in lengths) / max(1, len(lengths))),
        )
        for number, name in enumerate(names)
    ]


LinkCounts = Mapping[int, tuple[Counter[str], Counter[str]]]


def _link_terms(counts: LinkCounts) -> dict[str, dict[int, list[int]]]:
    links: dict[str, dict[int, list[int]]] = defaultdict(dict)
    for section, pair in counts.items():
        for number, counter in enumerate(pair):
            for term, count in counter.items():
                row = links[term].setdefault(section, [0, 0])
                row[number] = min(count, MAX_LINK_COUNT)
    return dict(links)


def _link_scales(counts: LinkCounts) -> dict[int, tuple[float, float]]:
    """Return the scales of the link fields. Only sections with incoming links count towards the
    mean lengths."""
    lengths = {
        section: [sum(min(n, MAX_LINK_COUNT) for n in counter.values()) for counter in pair]
        for section, pair in counts.items()
    }
    link, near = _fields(("link", "near"), lengths.values())
    return {section: (link.scale(row[0]), near.scale(row[1])) for section, row in lengths.items()}
