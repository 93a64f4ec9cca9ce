"""Split Markdown into sections, and sections into blocks, with their line numbers.

A section is a heading and the text up to the next heading of any level. The parser takes time
proportional to the size of the text. It supports the dialects used in documentation, such as the
callouts `!!! warning`, `::: tip` and `> [!NOTE]`, include directives, and anchors in headings.

The words in and around a link describe the section that it leads to.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from upwell.ground.text.words import fold
from upwell.memory.documents.sections.terms import terms

_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+|$)(.*)")
_ANCHOR = re.compile(r"(?<!\s)\s*+\{[ ]*+[#.:][^{}]*+\}\s*+$")
_TAG = re.compile(r"<[^<>]{1,200}>")
_SETEXT = re.compile(r" {0,3}(=+|-{2,})[ \t]*$")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_ITEM = re.compile(r"(\s*)(?:[-*+]|\d{1,9}[.)])[ \t]+\S")
_TABLE = re.compile(r"\s*+\|.*\|\s*+$|\s*+(?=[\s|:-]*+$)(?>[|:-]*?-{3})[^|]*+\|")
_CALLOUT = re.compile(r"\s*(?::::*\s*\w|!!!|\?\?\?|///\s*\w|> ?\[!)")
_CALLOUT_END = re.compile(r"\s*(?::::*|///+)\s*$")
_INCLUDE = re.compile(r"\s*(?:\{[*!%].{0,300}[*!%]\}|-{1,2}8<-{1,2}.*|<<<.*|<!--.*-->)\s*$")
"""Matches lines that include text from elsewhere or are never shown."""
_FRONT_TITLE = re.compile(r"title:\s*+[\"']?+(.+?)[\"']?$")

PROSE, ITEM, CODE, TABLE, CALLOUT = "prose", "item", "code", "table", "callout"


class Block(Struct, frozen=True):
    """Lines of one kind, from `first` to `last` (1-based, inclusive). `indent` is that of a list
    item. `callout` is the first line of the note or warning that contains the block, or 0."""

    kind: str
    first: int
    last: int
    text: str
    indent: int = 0
    callout: int = 0


class Section(Struct, frozen=True):
    """A heading and its blocks. `trail` lists the headings from the outermost to the section's own.
    The page's title from the front matter may precede them. `level` is 0 for text before the first
    heading."""

    trail: tuple[str, ...]
    first: int
    last: int
    blocks: tuple[Block, ...]
    level: int = 0

    @property
    def heading(self) -> str:
        return self.trail[-1] if self.trail else ""


class _Mark(Struct, frozen=True):
    """A heading on the line `line`. Its text begins on the line `body` (both 0-based)."""

    line: int
    body: int
    level: int
    title: str


def parse(text: str, start: int = 0) -> list[Section]:
    """Return the sections of a Markdown file in order. The first `start` lines are front matter,
    which may contain the page's title."""
    lines = rows_of(text)
    titles_in_front = (_FRONT_TITLE.match(line.rstrip()) for line in lines[:start])
    page = next((match[1] for match in titles_in_front if match), "").split(" | ")[0].strip()
    marks = list(_marks(lines, start))
    sections: list[Section] = []
    before = marks[0].line if marks else len(lines)
    opening = _blocks(lines, start, before)
    if opening:
        sections.append(
            Section((page,) if page else (), opening[0].first, opening[-1].last, opening)
        )
    trail: list[_Mark] = []
    ends = [mark.line for mark in marks[1:]] + [len(lines)]
    for mark, end in zip(marks, ends, strict=False):
        while trail and trail[-1].level >= mark.level:
            trail.pop()
        trail.append(mark)
        titles = tuple(above.title for above in trail)
        if page and trail[0].level > 1:
            titles = (page, *titles)
        blocks = _blocks(lines, mark.body, end)
        last = blocks[-1].last if blocks else mark.body
        sections.append(Section(titles, mark.line + 1, last, blocks, mark.level))
    return sections


def blocks_of(text: str, first: int, level: int) -> tuple[Block, ...]:
    lines = rows_of(text)
    mark = next(_marks(lines, 0), None) if level else None
    body = mark.body if mark else 0
    return _blocks(lines, body, len(lines), first - 1)


def rows_of(text: str) -> list[str]:
    return [line.removesuffix("\r") for line in text.split("\n")]


def _clean(heading: str) -> str:
    heading = _ANCHOR.sub("", heading.strip().rstrip("#").strip())
    return _TAG.sub("", heading).replace("`", "").strip()


def _marks(lines: Sequence[str], start: int) -> Iterator[_Mark]:
    fence, after_prose = "", False
    for number in range(start, len(lines)):
        line = lines[number]
        bare = line.strip()
        if fence:
            fence = "" if _closes(bare, fence) else fence
        elif not bare:
            after_prose = False
        elif bare[0] in "`~" and (opening := _FENCE.match(line)):
            fence, after_prose = opening[1], False
        elif bare[0] == "#" and (head := _HEADING.match(line)):
            yield _Mark(number, number + 1, len(head[1]), _clean(head[2]))
            after_prose = False
        elif after_prose and bare[0] in "=-" and _SETEXT.match(line):
            yield _Mark(
                number - 1, number + 1, 1 if bare[0] == "=" else 2, _clean(lines[number - 1])
            )
            after_prose = False
        else:
            after_prose = bare[0] not in "|>-*+:!/<" and not line.startswith("    ")


def _closes(bare: str, fence: str) -> bool:
    return bare.startswith(fence) and not bare.strip(fence[0])


class _Cutter:
    """The state of a pass over the lines of a section. `offset` is the number of lines before
    `lines` in the file."""

    def __init__(self, lines: Sequence[str], offset: int) -> None:
        self.lines = lines
        self.offset = offset
        self.blocks: list[Block] = []
        self.kind, self.first, self.indent = "", 0, 0
        self.callout_line, self.callout_is_indented = 0, False

    def begin(self, kind: str, number: int, indent: int = 0) -> None:
        self.close(number - 1)
        self.kind, self.first, self.indent = kind, number, indent

    def begin_callout(self, number: int, *, indented: bool) -> None:
        self.begin(CALLOUT, number)
        self.callout_line, self.callout_is_indented = number + self.offset + 1, indented

    def end_callout(self, number: int) -> None:
        self.close(number - 1)
        self.callout_line = 0

    def close(self, last: int) -> None:
        if not self.kind:
            return
        text = "\n".join(self.lines[self.first : last + 1]).rstrip()
        first = self.offset + self.first + 1
        end = first + text.count("\n")
        self.blocks.append(Block(self.kind, first, end, text, self.indent, self.callout_line))
        self.kind = ""


def _blocks(lines: Sequence[str], start: int, end: int, offset: int = 0) -> tuple[Block, ...]:
    cutter, fence = _Cutter(lines, offset), ""
    for number in range(start, end):
        line = lines[number]
        bare = line.strip()
        if fence:
            if _closes(bare, fence):
                fence = ""
                cutter.close(number)
            continue
        if not bare:
            cutter.close(number - 1)
            continue
        if cutter.callout_line and cutter.callout_is_indented and line[:1] not in " \t":
            cutter.end_callout(number)
        opening = _FENCE.match(line) if bare[0] in "`~" else None
        if opening:
            cutter.begin(CODE, number)
            fence = opening[1]
        else:
            _take_line(cutter, line, bare, number)
    cutter.close(end - 1)
    return tuple(cutter.blocks)


def _take_line(cutter: _Cutter, line: str, bare: str, number: int) -> None:
    if bare[0] in ":/" and _CALLOUT_END.match(line):
        cutter.end_callout(number)
    elif bare[0] in ":!?/>" and _CALLOUT.match(line):
        cutter.begin_callout(number, indented=bare[0] in "!?")
    elif _INCLUDE.match(line):
        cutter.close(number - 1)
    elif (item := _ITEM.match(line)) is not None:
        cutter.begin(ITEM, number, len(item[1]))
    elif bare[0] == "|" and _TABLE.match(line):
        if cutter.kind != TABLE:
            cutter.begin(TABLE, number)
    elif cutter.kind in ("", TABLE):
        cutter.begin(PROSE, number)


_LINK = re.compile(r"\[([^\[\]\n]{2,120})\]\(([^()\s]{1,300})\)")
_MARKDOWN_NAME = re.compile(r"\.(?:mdx?|markdown|html)$")
NEAR_CHARS = 120
"""How many characters before and after a link describe its target."""
MAX_LINK_COUNT = 3
"""The maximum count of a term in the links to a section."""


class Link(Struct, frozen=True):
    """A link to a section. `page` is a path without its suffix, and an empty `anchor` means the
    beginning of the page. `terms` come from the link's text, and `near` from that text and the text
    around it."""

    page: str
    anchor: str
    terms: tuple[str, ...]
    near: tuple[str, ...]


def page_of(path: str) -> str:
    return _MARKDOWN_NAME.sub("", path)


def anchor_of(heading: str) -> str:
    """Return the anchor that renderers give to a heading: `Resource limits` → `resource-limits`."""
    return re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", fold(heading)).strip())


def links_in(path: str, section: Section) -> Iterator[Link]:
    """Return the links in a section of the file `path`, except those in code and those to URLs."""
    for block in section.blocks:
        if block.kind == CODE or "](" not in block.text:
            continue
        for match in _LINK.finditer(block.text):
            target = _target(path, match[2])
            if target is not None:
                start, end = max(0, match.start() - NEAR_CHARS), match.end() + NEAR_CHARS
                context = tuple(terms(block.text[start:end]))
                yield Link(*target, tuple(terms(match[1])), context)


def _target(path: str, url: str) -> tuple[str, str] | None:
    if "://" in url:
        return None
    page, _, anchor = url.partition("#")
    page = page_of(page).rstrip("/")
    if not page:
        page = page_of(path)
    elif not page.startswith("/"):
        page = posixpath.normpath(posixpath.join(posixpath.dirname(path), page))
    return page, anchor.strip().lower()


class Targets:
    """Maps pages and anchors to sections. If several sections have the same page and anchor,
    `find()` returns the first."""

    def __init__(self) -> None:
        self._by_page: dict[tuple[str, str], int] = {}
        self._by_name: dict[tuple[str, str], int] = {}

    def add(self, path: str, heading: str, number: int) -> None:
        page = page_of(path)
        for anchor in (anchor_of(heading), ""):
            self._by_page.setdefault((page, anchor), number)
            self._by_name.setdefault((posixpath.basename(page), anchor), number)

    def find(self, page: str, anchor: str) -> int | None:
        """Return the number of the section. A folder means its index page. A page that is not found
        by its path is looked up by its file name alone."""
        by_page: Mapping[tuple[str, str], int] = self._by_page
        for name in (page, f"{page}/index"):
            if (number := by_page.get((name, anchor))) is not None:
                return number
        return self._by_name.get((posixpath.basename(page), anchor))
