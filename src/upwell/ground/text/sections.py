"""Split a Markdown document into blocks, each with the heading above it.

A single pass over the lines finds headings (`#` or underlined), fenced code, tables, list items and
paragraphs, so the time is linear. Only the CommonMark rules that matter for splitting are followed.
Tests compare the result with that of a complete CommonMark parser.
"""

import re
from typing import NamedTuple

SENTENCE_END = re.compile(
    r"[.!?。！？](?:(?<=[。！？])|[\"')\]]*+\s++(?=[\"'(\[¿¡]?[A-ZÀ-ÖØ-Þ0-9`*_]))"
)
"""The end of a sentence inside a paragraph, with the space after it."""
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+|$)")
_SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_LIST = re.compile(r" {0,6}(?:[-*+]|\d{1,9}[.)])[ \t]")
_RULE = re.compile(r"(?<![^\n]) {0,3}(?:(?:\*[ \t]*+){3,}+|(?:-[ \t]*+){3,}+|(?:_[ \t]*+){3,}+)$")
_QUOTE = re.compile(r" {0,3}>")
_BAR = re.compile(r"(?<=\s)\|(?=\s)")
"""A bar between two cells, for rows that do not have a bar at both ends."""
_FRONT = re.compile(r"\A---[ \t]*\r?\n(?:[^\n]*+\n){0,200}?---[ \t]*(?:\r?\n|\Z)")

HEADING, PARAGRAPH, FENCE, ITEM, TABLE, BLANK = (
    "heading", "paragraph", "fence", "item", "table", "blank",
)  # fmt: skip
_SIGNS = frozenset("#`~=-*+>|_0123456789")
"""A line that begins with none of these characters is prose, unless it is a table row."""
_ENDED_BY_PROSE = (BLANK, TABLE)
_PLAIN = re.compile(
    r"(?<![^\n])(?:"
    r"(?:[ \t]*+[^\s#`~=\-*+>|_0-9][^\n|]*+(?:\n|\Z))++|(?P<blank>(?:[ \t\r]*+\n)++))"
)
"""Consecutive lines of plain prose, or consecutive blank lines. Like `_RULE`, the pattern matches
only at the beginning of a line, so that searching a long line takes linear time."""


def _is_row(line: str) -> bool:
    """Return whether a stripped line is a row of a table. Lines may be long, so the line is
    searched only once."""
    if len(line) > 1 and line[0] == line[-1] == "|":
        return True
    return _BAR.search(line, 1, len(line) - 1) is not None


class TextBlock(NamedTuple):
    """A block of a document: `text[start:end]`.

    `what`: the type, such as `HEADING`. `level`: 1–6 for a heading, 0 for any other block.
    `heading`: the index of the heading above the block, or -1.
    """

    what: str
    start: int
    end: int
    level: int = 0
    heading: int = -1


class _Scan:
    """The state of a pass over the lines. `path`: the level and the index of each heading above the
    current line. `open`: the type and the start of the current block."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.blocks: list[TextBlock] = []
        self.path: list[tuple[int, int]] = []
        self.open: tuple[str, int] | None = None

    def close(self, end: int) -> None:
        if self.open is not None:
            kind, start = self.open
            self._add(kind, start, end)
            self.open = None

    def begin(self, kind: str, start: int) -> None:
        self.close(start)
        self.open = (kind, start)

    def heading(self, start: int, end: int, level: int) -> None:
        self.close(start)
        while self.path and self.path[-1][0] >= level:
            self.path.pop()
        self._add(HEADING, start, end, level)
        self.path.append((level, len(self.blocks) - 1))

    def _add(self, kind: str, start: int, end: int, level: int = 0) -> None:
        above = self.path[-1][1] if self.path else -1
        self.blocks.append(TextBlock(kind, start, end, level, above))


def blocks(text: str) -> list[TextBlock]:
    """Return the blocks of `text` in order. Together they cover the whole text."""
    scan = _Scan(text)
    offset = 0
    front = _FRONT.match(text)
    if front:
        scan.begin(FENCE, 0)
        offset = front.end()
        scan.close(offset)
    while offset < len(text):
        plain = _PLAIN.match(text, offset)
        if plain is not None:
            _plain_lines(scan, offset, blank=plain.lastgroup == BLANK)
            offset = plain.end()
            continue
        end = _line_end(text, offset)
        fence = _line(scan, text[offset:end].rstrip("\r\n"), offset, end)
        offset = end
        if fence:
            offset = _fence_end(text, offset, fence)
            scan.close(offset)
    scan.close(len(text))
    return scan.blocks


def _line_end(text: str, offset: int) -> int:
    return text.find("\n", offset) + 1 or len(text)


def _fence_end(text: str, offset: int, fence: str) -> int:
    while (fence_start := text.find(fence, offset)) >= 0:
        start, end = text.rfind("\n", offset - 1, fence_start) + 1, _line_end(text, fence_start)
        if _closes(text[start:end], fence):
            return end
        offset = end
    return len(text)


def _closes(line: str, fence: str) -> bool:
    stripped = line.strip()
    return len(stripped) >= len(fence) and not stripped.strip(fence[0]) and line[:4].strip() != ""


def _plain_lines(scan: _Scan, offset: int, *, blank: bool) -> None:
    kind = scan.open[0] if scan.open else ""
    if blank and kind != BLANK:
        scan.begin(BLANK, offset)
    elif not blank and kind in ("", *_ENDED_BY_PROSE):
        scan.begin(PARAGRAPH, offset)


def _line(scan: _Scan, line: str, offset: int, end: int) -> str:
    """Process a line outside fences. If the line opens a fence, return that fence, else ""."""
    bare = line.strip()
    if not bare or (bare[0] not in _SIGNS and "|" not in bare):
        _plain_lines(scan, offset, blank=not bare)
        return ""
    sign = bare[0]
    if sign in "`~" and (match := _FENCE.match(line)) is not None:
        scan.begin(FENCE, offset)
        return match.group(1)
    kind = scan.open[0] if scan.open else ""
    if sign == "#" and (match := _ATX.match(line)) is not None:
        scan.heading(offset, end, len(match.group(1)))
    elif kind == PARAGRAPH and sign in "=-" and _SETEXT.match(line) and scan.open is not None:
        start = scan.open[1]
        scan.open = None
        scan.heading(start, end, 1 if sign == "=" else 2)
    elif (sign in "-*+" or sign.isdigit()) and _LIST.match(line) and not _RULE.match(line):
        scan.begin(ITEM, offset)
    elif "|" in bare and _is_row(bare) and kind in (TABLE, "", BLANK):
        if kind != TABLE:
            scan.begin(TABLE, offset)
    elif kind in ("", BLANK, TABLE) or (sign == ">" and kind == ITEM and _QUOTE.match(line)):
        scan.begin(PARAGRAPH, offset)
    return ""


def title(text: str, block: TextBlock) -> str:
    """Return the first line of a heading without its Markdown marks."""
    first = text[block.start : block.end].strip().splitlines()
    return first[0].strip().strip("#").strip() if first else ""
