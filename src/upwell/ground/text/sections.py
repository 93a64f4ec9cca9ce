"""The blocks of a Markdown document and the headings they stand under, as spans of its text.

One pass over the lines, so linear on any input: headings (both kinds), fenced code, tables, list
items and paragraphs, told apart by the rules of CommonMark that matter for cutting. Tests hold it
against a full CommonMark parser.
"""

import re
from typing import NamedTuple

SENTENCE_END = re.compile(
    r"[.!?。！？](?:(?<=[。！？])|[\"')\]]*+\s++(?=[\"'(\[¿¡]?[A-ZÀ-ÖØ-Þ0-9`*_]))"
)
"""The end of a sentence inside a paragraph, with the space behind it."""
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+|$)")
_SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_LIST = re.compile(r" {0,6}(?:[-*+]|\d{1,9}[.)])[ \t]")
_RULE = re.compile(r" {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$")
_QUOTE = re.compile(r" {0,3}>")
_TABLE = re.compile(r"\s*\|.*\|\s*$|.*\S\s+\|\s+\S.*")
_FRONT = re.compile(r"\A---[ \t]*\r?\n(?:.*\r?\n){0,200}?---[ \t]*(?:\r?\n|\Z)")

HEADING, PARAGRAPH, FENCE, ITEM, TABLE, BLANK = (
    "heading", "paragraph", "fence", "item", "table", "blank",
)  # fmt: skip
_SIGNS = frozenset("#`~=-*+>|_0123456789")
"""What a line begins with that may be more than prose."""
_ENDED_BY_PROSE = (BLANK, TABLE)


class Block(NamedTuple):
    """A block of a document: `text[start:end]`. `level` 1–6 of a heading, 0 of anything else;
    `heading` is the number of the block it stands under, -1 at the top."""

    what: str
    start: int
    end: int
    level: int = 0
    heading: int = -1


class _Scan:
    """The state of the one pass over the lines."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.blocks: list[Block] = []
        self.path: list[tuple[int, int]] = []
        self.open: tuple[str, int] | None = None

    def close(self, end: int) -> None:
        if self.open is not None:
            what, start = self.open
            self._add(what, start, end)
            self.open = None

    def begin(self, what: str, start: int) -> None:
        self.close(start)
        self.open = (what, start)

    def heading(self, start: int, end: int, level: int) -> None:
        self.close(start)
        while self.path and self.path[-1][0] >= level:
            self.path.pop()
        self._add(HEADING, start, end, level)
        self.path.append((level, len(self.blocks) - 1))

    def _add(self, what: str, start: int, end: int, level: int = 0) -> None:
        above = self.path[-1][1] if self.path else -1
        self.blocks.append(Block(what, start, end, level, above))


def blocks(text: str) -> list[Block]:
    """Every block of `text` in order; together they are the whole text."""
    scan = _Scan(text)
    at = 0
    front = _FRONT.match(text)
    if front:
        scan.begin(FENCE, 0)
        at = front.end()
        scan.close(at)
    fence = ""
    for row in text[at:].split("\n"):
        end = min(at + len(row) + 1, len(text))
        line = row.rstrip("\r")
        if fence:
            if _closes(line, fence):
                fence = ""
                scan.close(end)
        elif at < end:  # behind the last line break there is no line
            fence = _line(scan, line, at, end)
        at = end
    scan.close(len(text))
    return scan.blocks


def _closes(line: str, fence: str) -> bool:
    stripped = line.strip()
    return len(stripped) >= len(fence) and not stripped.strip(fence[0]) and line[:4].strip() != ""


def _plain_line(scan: _Scan, at: int, *, blank: bool) -> None:
    """A blank line or one of prose: goes on with what is open, or begins it."""
    kind = scan.open[0] if scan.open else ""
    if blank and kind != BLANK:
        scan.begin(BLANK, at)
    elif not blank and kind in ("", *_ENDED_BY_PROSE):
        scan.begin(PARAGRAPH, at)


def _line(scan: _Scan, line: str, at: int, end: int) -> str:
    """Take in one line outside of fences; returns the fence that it opens, or ""."""
    bare = line.strip()
    if not bare or (bare[0] not in _SIGNS and "|" not in bare):
        _plain_line(scan, at, blank=not bare)
        return ""
    sign = bare[0]
    if sign in "`~" and (match := _FENCE.match(line)) is not None:
        scan.begin(FENCE, at)
        return match.group(1)
    kind = scan.open[0] if scan.open else ""
    if sign == "#" and (match := _ATX.match(line)) is not None:
        scan.heading(at, end, len(match.group(1)))
    elif kind == PARAGRAPH and sign in "=-" and _SETEXT.match(line) and scan.open is not None:
        start = scan.open[1]
        scan.open = None
        scan.heading(start, end, 1 if sign == "=" else 2)
    elif (sign in "-*+" or sign.isdigit()) and _LIST.match(line) and not _RULE.match(line):
        scan.begin(ITEM, at)
    elif "|" in bare and _TABLE.match(line) and kind in (TABLE, "", BLANK):
        if kind != TABLE:
            scan.begin(TABLE, at)
    elif kind in ("", BLANK, TABLE) or (sign == ">" and kind == ITEM and _QUOTE.match(line)):
        scan.begin(PARAGRAPH, at)
    return ""


def title(text: str, block: Block) -> str:
    """What a heading says, without its marks."""
    first = text[block.start : block.end].strip().splitlines()
    return first[0].strip().strip("#").strip() if first else ""
