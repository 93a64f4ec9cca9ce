"""`selective`: deliver a table of contents, so that the agent can fetch the sections it needs; and
search an original for the passages that answer a query.

The table is JSON. On a small budget its previews are shorter or missing. If there are at most 200
sections, all are listed, even over budget, because the agent cannot fetch a section that is not
listed. If there are more, they are grouped; the smaller the budget, the fewer and larger the
groups. Fetching a group returns its own table, so the agent can reach every section.
"""

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from upwell.compress.assemble import relevance
from upwell.compress.base import Fitted, RemainingBudget, Tools, outcome
from upwell.compress.json.score import described
from upwell.compress.json.score import relevance as json_relevance
from upwell.compress.json.tree import JSON_KINDS, OBJECT, SCALAR, JsonNode, outline, read_json
from upwell.compress.relevance import RelevanceQuestion, ask
from upwell.compress.units import split
from upwell.compress.units.base import Units, lines
from upwell.ground.text.kind import detect
from upwell.ground.text.safe import boundary, clip
from upwell.ground.text.sections import HEADING, blocks, title
from upwell.ground.text.tokens import exceeds
from upwell.ground.types.compression import Budget, Compressed, Omission, Passage, TextKind

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
        number = text.count("\n", 0, match.start) + 1
        body = f"line {number}\n{excerpt}" if "\n" in excerpt else excerpt.strip()
        line = f"[offset {match.start}] {body}"
        if not remaining.holds("\n".join([*lines, line])):
            break
        lines.append(line)
    return FoundPassages("\n".join(lines), len(lines), len(with_text))


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


_SECTION_CHARS = 2_000
_KEY_CHARS = 80


class SelectableSection(Struct, frozen=True):
    """A section `text[start:end]`, or a group of `count` sections. `what` is its type."""

    key: str
    what: str
    start: int
    end: int
    count: int = 1


def sections_of(passage: Passage) -> list[SelectableSection]:
    """Split a passage into sections: JSON entries, Markdown headings, or line ranges.

    Keys are unique. A name that occurs again gets the suffix `#2`, `#3` …. Entries of very large
    JSON that were not parsed have no section.
    """
    kind = passage.kind
    if kind == TextKind.TEXT:
        kind = detect(passage.text, passage.name)
    return list(_sections(passage.text, kind))


@lru_cache(maxsize=4)
def _sections(text: str, kind: TextKind) -> tuple[SelectableSection, ...]:
    passage = Passage(text=text, kind=kind)
    root = read_json(passage)
    if root is not None:
        sections = _of_json(root)
    elif kind in (TextKind.MARKDOWN, TextKind.API_DOCS):
        sections = _of_markdown(text)
    else:
        sections = _of_lines(text)
    return tuple(_unique(sections))


def _of_json(root: JsonNode) -> list[SelectableSection]:
    names = {SCALAR: "value", OBJECT: "object"}
    return [
        SelectableSection(
            clip(item.key[1:-1], _KEY_CHARS) if item.key else f"[{number}]",
            names.get(item.kind, "array"),
            item.start,
            item.end,
        )
        for number, item in enumerate(root.items or [root])
    ]


def _of_markdown(text: str) -> list[SelectableSection]:
    sections: list[SelectableSection] = []
    for block in blocks(text):
        if block.what == HEADING or not sections:
            name = title(text, block) if block.what == HEADING else "(beginning)"
            sections.append(
                SelectableSection(
                    clip(name, _KEY_CHARS) or "(no title)", "heading", block.start, block.end
                )
            )
        else:
            sections[-1] = replace(sections[-1], end=block.end)
    if len(sections) < 2:
        return _of_lines(text)
    return sections


def _of_lines(text: str) -> list[SelectableSection]:
    sections: list[SelectableSection] = []
    start = first = 0
    number = 0
    for begin, end in lines(text):
        if end - start > _SECTION_CHARS and begin > start:
            sections.append(
                SelectableSection(f"L{first + 1}-L{max(first + 1, number)}", "lines", start, begin)
            )
            start, first = begin, number
        number += text.count("\n", begin, end)
    if start < len(text):
        sections.append(
            SelectableSection(f"L{first + 1}-L{max(first + 1, number)}", "lines", start, len(text))
        )
    return sections


def _unique(sections: list[SelectableSection]) -> list[SelectableSection]:
    taken = {section.key for section in sections}
    counts: dict[str, int] = {}
    result = []
    for section in sections:
        key, count = section.key, counts.get(section.key, 0) + 1
        while count > 1 and (key := f"{section.key}#{count}") in taken:
            count += 1
        counts[section.key] = count
        taken.add(key)
        result.append(replace(section, key=key))
    return result


MAX_ENTRIES = 200
_PREVIEWS = (80, 40, 20, 0)
_FEWER = (150, 120, 100, 80, 60, 45, 30, 20, 12, 6)
"""The numbers of groups to try, in this order, if a table of `MAX_ENTRIES` groups is too long."""
_GROUP = "…"
"""Separates the numbers of the first and the last section in the key of a group."""


class Selection(Struct, frozen=True):
    """The `text` of the selected sections, and the requested keys that are `unknown`. If there is
    more text, it begins at `next_offset`, which is otherwise None."""

    text: str
    next_offset: int | None
    unknown: tuple[str, ...]


def table(
    passage: Passage, remaining: RemainingBudget, first: int = 0, last: int | None = None
) -> str:
    """Return a table of contents of the sections `first` … `last - 1` as JSON.

    If the passage has a query, the entries are ordered by relevance.
    """
    sections = sections_of(passage)[first:last]
    kind = detect(passage.text, passage.name) if passage.kind == TextKind.TEXT else passage.kind
    shape = "json" if kind.startswith(("json", "openapi")) else (
        "markdown" if kind in ("markdown", "api_docs") else "text"
    )  # fmt: skip
    text = ""
    for order, preview in _layouts(passage, sections, first):
        text = json.dumps(
            {
                "type": "toc",
                "selection_key": passage.key,
                "format": shape,
                "total_chars": len(passage.text),
                "entries": [_entry(passage.text, entry, preview) for entry in order],
                "hint": "upwell__read_more(key=selection_key, sections=[entry keys])",
            },
            ensure_ascii=False,
        )
        if remaining.holds(text):
            break
    return text


def select(
    passage: Passage, keys: Sequence[str], remaining: RemainingBudget, offset: int = 0
) -> Selection:
    """Join the sections that have these keys, in the order of `keys`, and return the text from
    `offset`. A group is represented by its table of contents."""
    sections = sections_of(passage)
    section_by_key = {section.key: section for section in sections}
    parts: list[str] = []
    unknown: list[str] = []
    for key in keys:
        if key in section_by_key:
            section = section_by_key[key]
            parts.append(passage.text[section.start : section.end])
        elif (group := _group(key, len(sections))) is not None:
            parts.append(table(passage, remaining, *group))
        else:
            unknown.append(key)
    joined = "\n".join(part.rstrip("\n") for part in parts)
    end = _end_within(joined, offset, remaining)
    return Selection(joined[offset:end], end if end < len(joined) else None, tuple(unknown))


def _end_within(text: str, offset: int, remaining: RemainingBudget) -> int:
    size = int(min(len(text) - offset, remaining.chars))
    while size > 1:
        end = boundary(text, offset, offset + size)
        if remaining.tokens >= end - offset or not exceeds(text[offset:end], int(remaining.tokens)):
            return end
        size = size * 3 // 4
    return min(len(text), offset + 1)


def _layouts(
    passage: Passage, sections: list[SelectableSection], first: int
) -> Iterator[tuple[list[SelectableSection], int]]:
    is_long = len(sections) > MAX_ENTRIES
    entries = _grouped(sections, first, MAX_ENTRIES) if is_long else sections
    order = _ranked(passage, entries)
    yield from ((order, preview) for preview in _PREVIEWS)
    for most in _FEWER if is_long else ():
        yield _ranked(passage, _grouped(sections, first, most)), 0


def _grouped(sections: list[SelectableSection], first: int, most: int) -> list[SelectableSection]:
    width = -(-len(sections) // most)
    groups = []
    for offset in range(0, len(sections), width):
        members = sections[offset : offset + width]
        if len(members) == 1:
            groups.append(members[0])
            continue
        key = f"{first + offset}{_GROUP}{first + offset + len(members) - 1}"
        groups.append(
            SelectableSection(key, "group", members[0].start, members[-1].end, len(members))
        )
    return groups


def _group(key: str, total: int) -> tuple[int, int] | None:
    head, mark, tail = key.partition(_GROUP)
    if not mark or not head.isdecimal() or not tail.isdecimal():
        return None
    first, last = int(head), int(tail)
    return (first, last + 1) if first < last < total else None


def _ranked(passage: Passage, entries: list[SelectableSection]) -> list[SelectableSection]:
    question = ask(passage.query)
    if not question or not entries:
        return entries
    units = Units(reach=0)
    for entry in entries:
        units.add(entry.start, entry.end, 0.0)
    scores, _ = relevance(units, passage.text, question)
    order = sorted(range(len(entries)), key=lambda index: (-scores.get(index, 0.0), index))
    return [entries[index] for index in order]


def _entry(text: str, section: SelectableSection, preview: int) -> dict[str, object]:
    entry: dict[str, object] = {
        "key": section.key,
        "type": section.what,
        "size": section.end - section.start,
    }
    if section.what == "group":
        entry["sections"] = section.count
    if preview:
        shown = " ".join(text[section.start : section.start + 4 * preview].split())
        entry["preview"] = clip(shown, preview)
    return entry


def selective(passage: Passage, budget: Budget, tools: Tools) -> Compressed:
    """Deliver the table of contents. `select_sections(key, sections)` delivers the sections."""
    text = table(passage, RemainingBudget.of(budget))
    count = len(sections_of(passage))
    omitted = (Omission(what="sections", count=count, total=count),)
    return outcome(passage, Fitted(text, omitted), "selective")
