"""What can be made shorter before anything is left out: blanks in JSON, markup of HTML, colours.

A form that is not smaller is thrown away.
"""

import re
from dataclasses import dataclass, replace

from upwell.compress.fitted import Fitted, Room, outcome
from upwell.compress.shape import JSON_KINDS, read_json
from upwell.ground.text.kind import detect_plain
from upwell.ground.types import Compressed, Kind, Passage

_RUNS = frozenset({Kind.LOG, Kind.TEST_OUTPUT, Kind.STACK_TRACE})
"""Kinds in which a line that comes again at once says no more than that it came again."""
_TABLES_SAVE = 2.5
"""A table rarely takes less than two fifths of the document (measured: 0.68 on average, the three
best files 0.27, 0.35 and 0.44); beyond that it is not worth reading the document twice."""
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")


@dataclass(frozen=True, slots=True)
class Normal:
    """The passage to go on with, or, where nothing more need be done, the `whole` result."""

    passage: Passage
    whole: Compressed | None = None


def normalise(passage: Passage, room: Room, strategy: str) -> Normal:
    """The passage in its shortest form that says the same; done, in the name of `strategy`, if
    that fits into `room`."""
    if passage.kind in JSON_KINDS:
        return _json(passage, room, strategy)
    if passage.kind == Kind.HTML:
        from upwell.compress.normalise.html import to_markdown

        return _replaced(passage, to_markdown(passage.text), room, strategy, Kind.MARKDOWN)
    plain = _ANSI.sub("", passage.text) if "\x1b" in passage.text else passage.text
    if passage.kind in _RUNS:
        from upwell.compress.normalise.logs import fold

        plain = fold(plain)
    return _replaced(passage, plain, room, strategy, passage.kind)


def _json(passage: Passage, room: Room, strategy: str) -> Normal:
    from upwell.compress.auto import choose
    from upwell.compress.json.tree import compact
    from upwell.compress.normalise.json_table import as_tables

    solid = _solid(passage.text)
    if solid > _TABLES_SAVE * room.chars or solid > 12 * room.tokens:
        return Normal(passage)
    root = read_json(passage)
    if root is None:
        return Normal(replace(passage, kind=detect_plain(passage.text, passage.name)))
    if passage.kind == Kind.JSON_LINES:
        return Normal(passage)
    name = choose(passage, root) if strategy == "auto" else strategy
    packed = compact(passage.text) if solid <= room.chars else None
    if packed is not None and room.holds(packed):
        return Normal(passage, outcome(passage, Fitted(packed), name, lossless=True))
    tables = as_tables(root, passage.text)
    if tables is not None and room.holds(tables):
        return Normal(passage, outcome(passage, Fitted(tables), name, lossless=True))
    return Normal(passage)


def _solid(text: str) -> int:
    """The characters of `text` that are no blanks; counted, so it costs nothing beside parsing."""
    return len(text) - text.count(" ") - text.count("\n") - text.count("\t") - text.count("\r")


def _replaced(passage: Passage, text: str, room: Room, strategy: str, kind: Kind) -> Normal:
    if len(text) >= len(passage.text):
        return Normal(passage)
    shorter = replace(passage, text=text, kind=kind)
    if room.holds(text):
        lossless = passage.kind != Kind.HTML
        name = "truncate" if strategy == "auto" else strategy
        return Normal(shorter, outcome(shorter, Fitted(text), name, lossless=lossless))
    return Normal(shorter)
