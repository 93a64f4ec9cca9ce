"""Search an original for the passages that answer a query. Each match has an offset from which the
agent can read on.
"""

from msgspec import Struct

from upwell.compress.assemble import relevance
from upwell.compress.base import RemainingBudget
from upwell.compress.json.outline import outline
from upwell.compress.json.read import JSON_KINDS, read_json
from upwell.compress.json.score import described
from upwell.compress.json.score import relevance as json_relevance
from upwell.compress.relevance import RelevanceQuestion, ask
from upwell.compress.units import split
from upwell.ground.text.kind import detect
from upwell.ground.text.safe import clip
from upwell.ground.types.compression import Passage, TextKind

_SHOWN_CHARS = 600
_MAX_MATCHES = 10
_MAX_UNITS_PER_MATCH = 8
"""At most this many adjacent units form one match."""


class SearchMatch(Struct, frozen=True):
    """A span of the original (`start`, `end`), its `score`, and the `text` to show for it."""

    start: int
    end: int
    score: float
    text: str


class FoundPassages(Struct, frozen=True):
    """The result of a search. `text` shows `shown` of `total` matches, best first."""

    text: str
    shown: int
    total: int


def search_original(
    text: str, query: str, remaining: RemainingBudget, name: str = ""
) -> FoundPassages:
    """Find the places where `text` answers `query`. Show the best `_MAX_MATCHES` of them, or fewer
    if these do not fit `remaining`.

    Each match is shown with its offset for `read_more`. `name` helps to detect the kind of text.
    """
    candidates = matches(Passage(text=text, kind=detect(text, name), name=name), ask(query))
    with_text = [match for match in candidates if match.text.strip()]
    lines: list[str] = []
    for match in with_text[:_MAX_MATCHES]:
        excerpt = clip(match.text.strip("\r\n"), _SHOWN_CHARS)
        line = f"[offset {match.start}]"
        line += (
            f" line {_line(text, match.start)}\n{excerpt}"
            if "\n" in excerpt
            else f" {excerpt.strip()}"
        )
        if not remaining.holds("\n".join([*lines, line])):
            break
        lines.append(line)
    return FoundPassages("\n".join(lines), len(lines), len(with_text))


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def matches(passage: Passage, question: RelevanceQuestion) -> list[SearchMatch]:
    """Return the places in the passage that answer `question`, best first. In very large JSON, only
    a part of the records is searched.

    In JSON a match is a value with its key path; in other text it is a run of matching units.
    """
    if not question:
        return []
    hits = _in_json(passage, question) if passage.kind in JSON_KINDS else None
    if hits is None:
        hits = _in_text(passage, question)
    return sorted(hits, key=lambda match: (-match.score, match.start))


def _in_json(passage: Passage, question: RelevanceQuestion) -> list[SearchMatch] | None:
    root = read_json(passage)
    if root is None:
        return None
    text = passage.text
    doc = outline(root, text)
    scores, _ = json_relevance(doc, text, question)
    return [
        SearchMatch(doc.starts[unit], doc.ends[unit], score, described(doc, text, unit))
        for unit, score in scores.items()
    ]


def _in_text(passage: Passage, question: RelevanceQuestion) -> list[SearchMatch]:
    text = passage.text
    kind = TextKind.TEXT if passage.kind in JSON_KINDS else passage.kind
    units = split(text, kind, passage.name)
    scores, _ = relevance(units, text, question)
    hits: list[SearchMatch] = []
    group: list[int] = []
    for unit in [*sorted(scores), len(units) + 1]:
        if group and (unit > group[-1] + 1 or len(group) == _MAX_UNITS_PER_MATCH):
            start, end = units.starts[group[0]], units.ends[group[-1]]
            hits.append(
                SearchMatch(start, end, max(scores[member] for member in group), text[start:end])
            )
            group = []
        group.append(unit)
    return hits
