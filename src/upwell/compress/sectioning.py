"""The sections of a text that an agent may ask for by name."""

from dataclasses import dataclass, replace
from functools import lru_cache

from upwell.compress.json.tree import OBJECT, SCALAR, Node
from upwell.compress.shape import read_json
from upwell.compress.units.base import lines
from upwell.ground.text.kind import detect
from upwell.ground.text.safe import clip
from upwell.ground.text.sections import HEADING, blocks, title
from upwell.ground.types import Kind, Passage

_SECTION_CHARS = 2_000
_KEY_CHARS = 80


@dataclass(frozen=True, slots=True)
class Section:
    """`text[start:end]`, called `key`; `what` it is; `count` sections in a group."""

    key: str
    what: str
    start: int
    end: int
    count: int = 1


def sections_of(passage: Passage) -> list[Section]:
    """The sections of a passage in order: entries of JSON, headings of Markdown, else runs of
    lines. Keys are unique: a name that comes again is followed by `#2`."""
    kind = passage.kind
    if kind == Kind.TEXT:
        kind = detect(passage.text, passage.name)
    return list(_sections(passage.text, kind))


@lru_cache(maxsize=4)
def _sections(text: str, kind: Kind) -> tuple[Section, ...]:
    passage = Passage(text=text, kind=kind)
    root = read_json(passage)
    if root is not None:
        found = _of_json(root)
    elif kind in (Kind.MARKDOWN, Kind.API_DOCS):
        found = _of_markdown(text)
    else:
        found = _of_lines(text)
    return tuple(_unique(found))


def _of_json(root: Node) -> list[Section]:
    names = {SCALAR: "value", OBJECT: "object"}
    return [
        Section(
            clip(item.key[1:-1], _KEY_CHARS) if item.key else f"[{number}]",
            names.get(item.kind, "array"),
            item.start,
            item.end,
        )
        for number, item in enumerate(root.items or [root])
    ]


def _of_markdown(text: str) -> list[Section]:
    found: list[Section] = []
    for block in blocks(text):
        if block.what == HEADING or not found:
            name = title(text, block) if block.what == HEADING else "(beginning)"
            found.append(
                Section(clip(name, _KEY_CHARS) or "(no title)", "heading", block.start, block.end)
            )
        else:
            found[-1] = replace(found[-1], end=block.end)
    if len(found) < 2:
        return _of_lines(text)
    return found


def _of_lines(text: str) -> list[Section]:
    found: list[Section] = []
    start = first = 0
    number = 0
    for begin, end in lines(text):
        if end - start > _SECTION_CHARS and begin > start:
            found.append(Section(f"L{first + 1}-L{max(first + 1, number)}", "lines", start, begin))
            start, first = begin, number
        number += text.count("\n", begin, end)
    if start < len(text):
        found.append(Section(f"L{first + 1}-L{max(first + 1, number)}", "lines", start, len(text)))
    return found


def _unique(found: list[Section]) -> list[Section]:
    seen: dict[str, int] = {}
    result = []
    for section in found:
        seen[section.key] = times = seen.get(section.key, 0) + 1
        result.append(section if times == 1 else replace(section, key=f"{section.key}#{times}"))
    return result
