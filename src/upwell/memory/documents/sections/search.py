"""Search documentation for passages, and estimate the probability that a passage answers the
query."""

import re
import sqlite3
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from upwell.ground.clock import Deadline
from upwell.ground.types.memory import Hit, Memory, Query, QuerySource
from upwell.ground.types.rpc import shared_only
from upwell.memory.documents.sections import terms as question
from upwell.memory.documents.sections.index import Index
from upwell.memory.documents.sections.parse import ITEM
from upwell.memory.documents.sections.passage import GOVERNING, QuotedPassage, passage
from upwell.memory.documents.sections.rank import (
    NOTES,
    PROMPTS,
    SECOND_SHARE,
    TOOLS,
    QuestionReading,
    Ranked,
    is_note,
    rank,
    read,
    signals_of,
)
from upwell.memory.documents.sections.rows import section_memory
from upwell.memory.documents.sections.terms import PATH_BREAKS, SectionQuestion, terms
from upwell.memory.ranking.calibrate import ASKED_SHARE
from upwell.memory.sqlite.rows import snapshot

PASSAGE = "passage"
"""Marks a hit whose text is a whole passage, which is shown unchanged."""
SHARE = "first_share"
"""The name of the signal with a section's score divided by the score of the first section."""
UNASKED_PASSAGES = 2
"""The maximum number of passages to show if nobody asked for them."""
MAX_OPEN = 4
"""How many scopes are kept open. A daemon serves only a few projects at a time."""
NAMED_FILE = 0.6
"""A section that contains the path of a file in the tool call gets at least this probability. The
value was set by hand, because the development questions have only one such case."""
MAX_NAMING = 20
"""How many of the best sections are searched for the paths of the call's files."""
MAX_LIMIT = 100
_GOES_TO_FOLDER = re.compile(r"^\s*cd\s+\S+\s*(?:&&|;)\s*")
_ITEM_MARK = re.compile(r"\A\s*+(?:[-*+]|\d{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?")
_TOOL_SOURCES = frozenset(
    {QuerySource.TEMPLATE, QuerySource.PATH, QuerySource.KEYS, QuerySource.TOOL_NAME}
)

Scored = tuple[Ranked, float, Mapping[str, float]]
"""A section, its probability and its signals."""


class SectionSearch:
    """Searches the sections of one `index.db`, and caches them until the file changes. Not
    thread-safe."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self._opened: OrderedDict[tuple[str | None, tuple[str, ...]], Index] = OrderedDict()
        self._version: tuple[sqlite3.Connection, int] | None = None

    def search(self, db: sqlite3.Connection, query: Query, deadline: Deadline) -> list[Hit]:
        with snapshot(db):
            index = self._index(db, query.scope.project, shared_only(query.scope.namespaces))
            if not len(index) or deadline.passed():
                return []
            return hits(index, query, self._tenant)

    def passages(self, db: sqlite3.Connection, query: Query, hits: Sequence[Hit]) -> list[Hit]:
        """Reduce each section in `hits` to the passage relevant to the query. Other hits stay
        unchanged."""
        with snapshot(db):
            index = self._index(db, query.scope.project, shared_only(query.scope.namespaces))
            reading = read(index, question_of(query))
            passages = []
            for hit in hits:
                number = index.number_of(hit.memory.id)
                if number is not None:
                    memory = _memory(index, passage(index, number, reading), self._tenant)
                    memory = replace(memory, id=hit.memory.id, paths=hit.memory.paths)
                    hit = replace(hit, memory=memory, signals={**hit.signals, PASSAGE: 1.0})
                passages.append(hit)
            return passages

    def _index(
        self, db: sqlite3.Connection, project: str | None, namespaces: tuple[str, ...]
    ) -> Index:
        version = db, int(db.execute("PRAGMA data_version").fetchone()[0])
        if self._version != version:
            self._opened.clear()
            self._version = version
        scope = project, namespaces
        index = self._opened.get(scope)
        if index is None:
            index = self._opened[scope] = Index(db, project, namespaces)
        self._opened.move_to_end(scope)
        if len(self._opened) > MAX_OPEN:
            self._opened.popitem(last=False)
        return index


def question_of(query: Query) -> SectionQuestion:
    """Return the question to ask the documentation. For a command, it is the command without a
    leading `cd FOLDER &&`. For a call on files, it consists of their paths. Otherwise, it is the
    query's first text."""
    if query.command:
        return question.of_text(_GOES_TO_FOLDER.sub("", query.command))
    if query.source is QuerySource.PATH and query.paths:
        return question.of_paths(_inside(query))
    return question.of_text(query.texts[0] if query.texts else "")


def hits(index: Index, query: Query, tenant: str) -> list[Hit]:
    """Return the passages for a query, most relevant first.

    A calibration gives the probability of the first section. Notes on how to work in the repository
    have their own calibration. For documentation, there is one for prompts and one for tool calls.
    A later section gets the first one's probability times the square of the ratio of their scores.
    If nobody asked, a second section is returned only if it scores nearly as well as the
    first or contains the path of a file in the call.
    """
    reading = read(index, question_of(query))
    ranked = rank(index, reading)
    if not ranked:
        return []
    signals = signals_of(index, reading, ranked)
    if is_note(index.file_of(ranked[0].number).cited):
        calibration = NOTES
    else:
        calibration = TOOLS if query.source in _TOOL_SOURCES else PROMPTS
    probability = calibration.probability(signals)
    if query.awaited:
        probability = max(probability, ASKED_SHARE * signals["covered"])
    most = query.limit if query.awaited else min(query.limit, UNASKED_PASSAGES)
    naming = _naming(index, ranked, query)
    scored: list[Scored] = []
    for section in ranked[:MAX_LIMIT]:
        share = section.score / ranked[0].score
        figures = {**signals, SHARE: share, "bm25": section.score}
        score = probability * share**2
        if section.number in naming:
            scored.append((section, max(NAMED_FILE, score), {**figures, "path_join": 1.0}))
        elif query.awaited or share >= SECOND_SHARE:
            scored.append((section, score, figures))
    scored.sort(key=lambda entry: -entry[1])
    return _hits(index, reading, scored[:most], query, tenant)


def _naming(index: Index, ranked: Sequence[Ranked], query: Query) -> set[int]:
    """Return those of the best sections whose text contains the path of a file in the call. Paths
    are relative to the project."""
    if query.source is not QuerySource.PATH:
        return set()
    paths = [path for path in _inside(query) if "/" in path.strip("/")]
    if not paths:
        return set()
    path_pattern = re.compile(
        rf"(?<![\w/-])(?:\./)?(?:{'|'.join(map(re.escape, paths))})(?![\w/-])"
    )
    return {
        section.number
        for section in ranked[:MAX_NAMING]
        if index.places[section.number].has_text and path_pattern.search(index.text(section.number))
    }


def _inside(query: Query) -> list[str]:
    root = (query.scope.project or "").rstrip("/") + "/"
    return [path.removeprefix(root) for path in query.paths]


def _hits(
    index: Index,
    reading: QuestionReading,
    scored: Sequence[Scored],
    query: Query,
    tenant: str,
) -> list[Hit]:
    """Return one hit for each passage. Several sections may yield the same passage."""
    hits_by_section: dict[int, Hit] = {}
    for ranked, score, signals in scored:
        quoted = passage(index, ranked.number, reading)
        words = set(terms("\n".join((*quoted.headings, quoted.text))))
        matched = tuple(text for text in query.texts if not words.isdisjoint(terms(text)))
        hits_by_section.setdefault(
            quoted.number,
            Hit(
                memory=_memory(index, quoted, tenant),
                score=score,
                signals={**signals, PASSAGE: 1.0},
                matched=matched or tuple(query.texts[:1]),
            ),
        )
    return list(hits_by_section.values())


def _memory(index: Index, quoted: QuotedPassage, tenant: str) -> Memory:
    file = index.file_of(quoted.number)
    return section_memory(
        index.id_of(quoted.number), _shown(quoted, file.cited), quoted.lines, file, tenant
    )


def _shown(quoted: QuotedPassage, cited: str) -> str:
    """Format a passage under its headings. Headings that repeat the file's path are left out."""
    text = quoted.text
    if quoted.kinds == (ITEM,):
        text = _ITEM_MARK.sub("", text, count=1)
    path_terms = set(terms(cited.translate(PATH_BREAKS)))
    headings = []
    for heading in filter(None, quoted.headings):
        words = terms(heading.translate(PATH_BREAKS))
        if not words or not path_terms.issuperset(words) or GOVERNING.search(heading):
            headings.append(heading)
    return f"{' > '.join(headings)}:\n{text}" if headings else text
