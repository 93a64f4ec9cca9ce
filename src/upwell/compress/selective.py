"""`selective`: a table of contents first; the agent then fetches the sections that it wants.

The table is JSON. Where the budget is short previews shrink first, then vanish; up to 200 sections
every entry stays even over budget (the exception of seed 002). Beyond, sections are grouped, and
a group's key opens a table of its own, so that each section stays within reach.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from upwell.compress.assemble import relevance
from upwell.compress.base import NO_TOOLS, Tools
from upwell.compress.fitted import Fitted, Room, outcome
from upwell.compress.relevance import ask
from upwell.compress.sectioning import Section, sections_of
from upwell.compress.units.base import Units
from upwell.ground.text.kind import detect
from upwell.ground.text.safe import boundary, clip
from upwell.ground.text.tokens import exceeds
from upwell.ground.types import Budget, Compressed, Kind, Omission, Passage

MAX_ENTRIES = 200
_PREVIEWS = (80, 40, 20, 0)
_GROUP = "…"
"""A group's key is the numbers of its first and last section with this between them."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Selected sections: `text`; `next_offset` to go on with, None at the end; `unknown` keys."""

    text: str
    next_offset: int | None
    unknown: tuple[str, ...]


def table(passage: Passage, room: Room, first: int = 0, last: int | None = None) -> str:
    """The table of contents of sections `first` … `last - 1`, most relevant first where there is
    a query, as JSON."""
    found = sections_of(passage)[first:last]
    entries = _grouped(found, first) if len(found) > MAX_ENTRIES else found
    order = _ranked(passage, entries)
    kind = detect(passage.text, passage.name) if passage.kind == Kind.TEXT else passage.kind
    shape = "json" if kind.startswith(("json", "openapi")) else (
        "markdown" if kind in ("markdown", "api_docs") else "text"
    )  # fmt: skip
    text = ""
    for preview in _PREVIEWS:
        text = json.dumps(
            {
                "type": "toc",
                "selection_key": passage.key,
                "format": shape,
                "total_chars": len(passage.text),
                "entries": [_entry(passage.text, entry, preview) for entry in order],
                "hint": "select_sections(key=selection_key, sections=[entry keys])",
            },
            ensure_ascii=False,
        )
        if room.holds(text):
            break
    return text


def select(passage: Passage, keys: Sequence[str], room: Room, offset: int = 0) -> Selection:
    """The sections called `keys`, in the order asked, from character `offset` of them together;
    a group's key gives that group's table. `room` is a budget of its own."""
    found = sections_of(passage)
    named = {section.key: section for section in found}
    parts: list[str] = []
    unknown: list[str] = []
    for key in keys:
        if key in named:
            section = named[key]
            parts.append(passage.text[section.start : section.end])
        elif (group := _group(key, len(found))) is not None:
            parts.append(table(passage, room, *group))
        else:
            unknown.append(key)
    joined = "\n".join(part.rstrip("\n") for part in parts)
    end = _end_within(joined, offset, room)
    return Selection(joined[offset:end], end if end < len(joined) else None, tuple(unknown))


def _end_within(text: str, offset: int, room: Room) -> int:
    size = int(min(len(text) - offset, room.chars))
    while size > 1:
        end = boundary(text, offset, offset + size)
        if room.tokens >= end - offset or not exceeds(text[offset:end], int(room.tokens)):
            return end
        size = size * 3 // 4
    return min(len(text), offset + 1)


def _grouped(found: list[Section], first: int) -> list[Section]:
    """At most `MAX_ENTRIES` runs of sections, one entry each."""
    width = -(-len(found) // MAX_ENTRIES)
    groups = []
    for at in range(0, len(found), width):
        members = found[at : at + width]
        if len(members) == 1:
            groups.append(members[0])
            continue
        key = f"{first + at}{_GROUP}{first + at + len(members) - 1}"
        groups.append(Section(key, "group", members[0].start, members[-1].end, len(members)))
    return groups


def _group(key: str, total: int) -> tuple[int, int] | None:
    head, mark, tail = key.partition(_GROUP)
    if not mark or not head.isdecimal() or not tail.isdecimal():
        return None
    first, last = int(head), int(tail)
    return (first, last + 1) if first < last < total else None


def _ranked(passage: Passage, entries: list[Section]) -> list[Section]:
    question = ask(passage.query)
    if not question or not entries:
        return entries
    units = Units(reach=0)
    for entry in entries:
        units.add(entry.start, entry.end, 0.0)
    scores, _ = relevance(units, passage.text, question)
    order = sorted(range(len(entries)), key=lambda place: (-scores.get(place, 0.0), place))
    return [entries[place] for place in order]


def _entry(text: str, section: Section, preview: int) -> dict[str, object]:
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


class Selective:
    """The table of contents; `select_sections(key, sections)` gives the rest."""

    name = "selective"

    def __init__(self, tools: Tools = NO_TOOLS) -> None:
        self._tools = tools

    def fits(self, passage: Passage) -> bool:
        return bool(passage.key)

    def compress(self, passage: Passage, budget: Budget) -> Compressed:
        text = table(passage, Room.of(budget))
        count = len(sections_of(passage))
        left = (Omission(what="sections", count=count, total=count),)
        return outcome(passage, Fitted(text, left), self.name)
