"""What can be made shorter before anything is left out: blanks in JSON, markup of HTML, colours.

A form that is not smaller is thrown away.
"""

import re
from dataclasses import dataclass, replace

from upwell.compress.fitted import Fitted, Room, outcome
from upwell.compress.shape import JSON_KINDS
from upwell.ground.text.kind import detect_plain
from upwell.ground.types import Compressed, Kind, Passage

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")


@dataclass(frozen=True, slots=True)
class Normal:
    """The passage to go on with, or, where nothing more need be done, the `whole` result."""

    passage: Passage
    whole: Compressed | None = None


def normalise(passage: Passage, room: Room) -> Normal:
    """The passage in its shortest form that says the same; done if that fits into `room`."""
    if passage.kind in JSON_KINDS:
        return _json(passage, room)
    if passage.kind == Kind.HTML:
        from upwell.compress.normalise.html import to_markdown

        return _replaced(passage, to_markdown(passage.text), room, Kind.MARKDOWN)
    if "\x1b" in passage.text:
        return _replaced(passage, _ANSI.sub("", passage.text), room, passage.kind)
    return Normal(passage)


def _json(passage: Passage, room: Room) -> Normal:
    from upwell.compress.json.tree import compact
    from upwell.compress.shape import read_json

    if not _might_fit(passage.text, room):
        return Normal(passage)
    if read_json(passage) is None:
        return Normal(replace(passage, kind=detect_plain(passage.text, passage.name)))
    if passage.kind == Kind.JSON_LINES:
        return Normal(passage)
    packed = compact(passage.text)
    if room.holds(packed):
        return Normal(passage, outcome(passage, Fitted(packed), "auto", lossless=True))
    return Normal(passage)


def _might_fit(text: str, room: Room) -> bool:
    """Could `text` fit without its blanks? Counts, so costs nothing beside parsing."""
    solid = len(text) - text.count(" ") - text.count("\n") - text.count("\t") - text.count("\r")
    return solid <= room.chars and solid <= 12 * room.tokens


def _replaced(passage: Passage, text: str, room: Room, kind: Kind) -> Normal:
    if len(text) >= len(passage.text):
        return Normal(passage)
    shorter = replace(passage, text=text, kind=kind)
    if room.holds(text):
        lossless = passage.kind != Kind.HTML
        return Normal(shorter, outcome(shorter, Fitted(text), "auto", lossless=lossless))
    return Normal(shorter)
