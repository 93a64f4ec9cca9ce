"""Search documentation for the passages that answer a query, and estimate how probable that is.

A passage consists of whole blocks and of the text that governs them. An item of a list, for
instance, is quoted with the sentence that introduces the list, because "Do not:" turns the item
into its opposite. Text that is too long is shortened to whole sentences or rows where possible.
"""

import re
import sqlite3
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.clock import Deadline
from upwell.ground.types.memory import Hit, Memory, Query, QuerySource
from upwell.ground.types.rpc import shared_only
from upwell.memory.documents.sections import terms as question
from upwell.memory.documents.sections.index import Index
from upwell.memory.documents.sections.parse import CALLOUT, CODE, ITEM, PROSE, TABLE, Block
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

MAX_PASSAGE_CHARS = 480
"""The approximate maximum length of a passage, equal to about 120 tokens."""
MAX_TRAIL = 4
MIN_EXCERPT_CHARS = 100
KIND_SHARES = {CODE: 0.6, TABLE: 0.8}
OPENING_BONUS = 1.25
FOLLOWING_SHARE = 0.3
NEIGHBOUR_SHARE = 0.5
"""A neighbour may join the passage if it is worth at least this share of the best block."""
GOVERNING = re.compile(
    r"(?i)\b(?:do not|don't|never|avoid|must not|should not|anti-?patterns?|out of scope|"
    r"non-goals?|deprecated|obsolete|legacy|no longer|not supported|unsupported|removed in|"
    r"incorrect|wrong|bad)\b"
)
"""Matches words that negate what follows them."""
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+(?=[\"'(\[`*_]{0,3}[^\W_a-z])")

Piece = tuple[str, tuple[int, int]]
"""A text, and the numbers of its first and last lines."""


class QuotedPassage(Struct, frozen=True):
    """The `text` to quote from a section. `lines` are its first and last line (1-based, inclusive),
    and `kinds` are the kinds of its blocks."""

    number: int
    text: str
    lines: tuple[int, int]
    headings: tuple[str, ...]
    kinds: tuple[str, ...] = ()


def passage(index: Index, number: int, reading: QuestionReading) -> QuotedPassage:
    """Choose the text to quote from a section: the best blocks and the text that governs them,
    shortened to about `MAX_PASSAGE_CHARS`. If the section is only a heading, its first subsection
    is quoted instead."""
    number = _with_text(index, number)
    section = index.places[number]
    governing = filter(GOVERNING.search, section.trail[:-MAX_TRAIL])
    headings = (*governing, *section.trail[-MAX_TRAIL:])
    blocks = index.blocks(number)
    if not blocks:
        return QuotedPassage(number, section.heading, (section.first, section.first), headings[:-1])
    worth = _worths(index, number, blocks, reading)
    best = max(
        range(len(blocks)),
        key=lambda index: (
            worth[index] + FOLLOWING_SHARE * sum(worth[index + 1 : index + 2]),
            -index,
        ),
    )
    block_numbers = _with_lead(blocks, best)
    if blocks[best].kind == ITEM:
        block_numbers = _with_items(blocks, worth, best, block_numbers)
    block_numbers = _widened(blocks, worth, best, block_numbers)
    pieces = _pieces(index, blocks, block_numbers, best, reading)
    lines = min(first for _, (first, _) in pieces), max(last for _, (_, last) in pieces)
    kinds = tuple(blocks[position].kind for position in sorted(block_numbers))
    return QuotedPassage(number, "\n".join(text for text, _ in pieces), lines, headings, kinds)


def _with_text(index: Index, number: int) -> int:
    position, places = number, index.places
    while (
        not places[position].has_text
        and position + 1 in places
        and places[position + 1].parent == position
    ):
        position += 1
    return position if places[position].has_text else number


def _worths(
    index: Index, number: int, blocks: Sequence[Block], reading: QuestionReading
) -> list[float]:
    terms_by_block = index.block_terms(number)
    worth = [
        _worth(index, present, reading) * KIND_SHARES.get(block.kind, 1.0)
        for block, present in zip(blocks, terms_by_block, strict=True)
    ]
    opening = next((position for position, block in enumerate(blocks) if block.kind == PROSE), 0)
    worth[opening] *= OPENING_BONUS
    return worth


def _worth(index: Index, present: Collection[str], reading: QuestionReading) -> float:
    total = 0.0
    for term, weight in reading.weights.items():
        if term in present:
            total += weight * index.idf(term)
        else:
            shares = [share for other, share in reading.variants[term] if other in present]
            total += weight * index.idf(term) * max(shares, default=0.0)
    return total


def _with_lead(blocks: Sequence[Block], best: int) -> set[int]:
    """Return a block, the blocks that introduce it, and the block that it introduces. A block is
    introduced by the items that contain it, by the text before its list, code block or table, and
    by the opening of its callout."""
    block_numbers = {best, *_leading(blocks, best)}
    block, following = blocks[best], blocks[best + 1 : best + 3]
    if _announces(block) and following:
        block_numbers.add(best + 1)
        if following[0].kind == CALLOUT and len(following) > 1:
            block_numbers.add(best + 2)
    if block.kind == CALLOUT and following and "\n" not in block.text:
        block_numbers.add(best + 1)
    if block.callout:
        block_numbers |= {
            index for index, other in enumerate(blocks) if other.first == block.callout
        }
    return block_numbers


def _leading(blocks: Sequence[Block], best: int) -> set[int]:
    block_numbers: set[int] = set()
    index, indent = best, blocks[best].indent
    while index > 0:
        block, above = blocks[index], blocks[index - 1]
        if block.kind == ITEM and above.kind == ITEM:
            if above.indent < indent:
                block_numbers.add(index - 1)
                indent = above.indent
            index -= 1
            continue
        if block.kind in (ITEM, CODE, TABLE) and above.kind in (PROSE, CALLOUT, ITEM):
            if index == best or _announces(above) or GOVERNING.search(above.text):
                block_numbers.add(index - 1)
        elif above.kind == CALLOUT or _announces(above):
            block_numbers.add(index - 1)
        break
    return block_numbers


def _announces(block: Block) -> bool:
    return block.text.rstrip().endswith(":")


def _size(blocks: Sequence[Block], block_numbers: Collection[int]) -> int:
    return sum(len(blocks[index].text) for index in block_numbers)


def _with_items(
    blocks: Sequence[Block], worth: Sequence[float], best: int, block_numbers: set[int]
) -> set[int]:
    size = _size(blocks, block_numbers)
    for index in sorted(range(len(blocks)), key=lambda position: (-worth[position], position)):
        if worth[index] < NEIGHBOUR_SHARE * worth[best]:
            break
        alike = blocks[index].kind == ITEM and blocks[index].indent == blocks[best].indent
        if (
            alike
            and index not in block_numbers
            and size + len(blocks[index].text) <= MAX_PASSAGE_CHARS
        ):
            block_numbers = block_numbers | {index}
            size += len(blocks[index].text)
    return block_numbers


def _widened(
    blocks: Sequence[Block], worth: Sequence[float], best: int, block_numbers: set[int]
) -> set[int]:
    """While there is room, add neighbours that also contain much of the question or that continue
    the prose."""
    block_numbers, size = set(block_numbers), _size(blocks, block_numbers)
    low = high = best
    while low - 1 in block_numbers:
        low -= 1
    while high + 1 in block_numbers:
        high += 1
    while True:
        room = MAX_PASSAGE_CHARS - size
        options = [
            index
            for index in (high + 1, low - 1)
            if 0 <= index < len(blocks)
            and index not in block_numbers
            and len(blocks[index].text) <= room
            and _belongs(blocks, worth, best, index)
            and not (index > best and _promises(blocks, index, room))
        ]
        if not options:
            return block_numbers
        index = max(options, key=lambda position: worth[position])
        block_numbers.add(index)
        size += len(blocks[index].text)
        low, high = min(low, index), max(high, index)


def _belongs(blocks: Sequence[Block], worth: Sequence[float], best: int, index: int) -> bool:
    if worth[index] >= NEIGHBOUR_SHARE * worth[best]:
        return True
    if blocks[best].kind != ITEM and blocks[index].kind == PROSE:
        return True
    return blocks[index].kind in (CODE, ITEM) and index > 0 and _announces(blocks[index - 1])


def _promises(blocks: Sequence[Block], index: int, room: int) -> bool:
    if blocks[index].kind != CALLOUT and not _announces(blocks[index]):
        return False
    after = len(blocks[index + 1].text) if index + 1 < len(blocks) else room
    return len(blocks[index].text) + after > room


def _pieces(
    index: Index,
    blocks: Sequence[Block],
    block_numbers: set[int],
    best: int,
    reading: QuestionReading,
) -> list[Piece]:
    """Return the chosen blocks in order, or excerpts of them. The best block gets space first."""
    pieces: dict[int, Piece] = {}
    room = MAX_PASSAGE_CHARS
    for number in sorted(
        block_numbers, key=lambda position: (position != best, abs(position - best))
    ):
        block = blocks[number]
        others = block_numbers - pieces.keys() - {number}
        limit = room - sum(
            min(len(blocks[position].text), MIN_EXCERPT_CHARS) for position in others
        )
        if len(block.text) <= limit:
            pieces[number] = block.text, (block.first, block.last)
        else:
            limit = max(MIN_EXCERPT_CHARS, limit)
            pieces[number] = _excerpt(index, block, reading, limit, is_lead=number < best)
        room -= len(pieces[number][0])
    return [pieces[number] for number in sorted(pieces)]


def _excerpt(
    index: Index, block: Block, reading: QuestionReading, max_chars: int, *, is_lead: bool
) -> Piece:
    """Shorten a long block to the sentences that contain most of the question. Code and tables are
    shortened to rows instead. A lead-in (`is_lead`) keeps its last sentences or rows."""
    by_rows = block.kind in (CODE, TABLE)
    parts = block.text.split("\n") if by_rows else _SENTENCE.split(block.text)
    begins, position = list[int](), 0
    for part in parts:
        begins.append(block.text.index(part, position))
        position = begins[-1] + len(part)
    first, last = _span(index, parts, reading, max_chars, is_lead=is_lead)
    start, end = begins[first], begins[last] + len(parts[last])
    text = block.text[start:end]
    is_cut = len(text) > 2 * max_chars
    if is_cut:
        text = text[: text.rfind(" ", 0, 2 * max_chars) + 1 or 2 * max_chars].rstrip()
    above = block.first + block.text.count("\n", 0, start)
    before, after = "… " if first else "", " …" if is_cut or last + 1 < len(parts) else ""
    return before + text + after, (above, above + text.count("\n"))


def _span(
    index: Index, parts: Sequence[str], reading: QuestionReading, max_chars: int, *, is_lead: bool
) -> tuple[int, int]:
    worth = [_worth(index, frozenset(terms(part)), reading) for part in parts]
    best = (
        len(parts) - 1
        if is_lead
        else max(range(len(parts)), key=lambda index: (worth[index], -index))
    )
    first, last, size = best, best, len(parts[best])
    while True:
        options = [
            number
            for number in (last + 1, first - 1)
            if 0 <= number < len(parts) and size + len(parts[number]) + 1 <= max_chars
        ]
        if not options:
            return first, last
        governed = first - 1 in options and GOVERNING.search(parts[first - 1])
        number = first - 1 if governed else max(options, key=lambda position: worth[position])
        first, last = min(first, number), max(last, number)
        size += len(parts[number]) + 1


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
    return _one_per_passage(index, reading, scored[:most], query, tenant)


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


def _one_per_passage(
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
