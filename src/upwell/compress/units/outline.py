"""Rank the elements in snapshots of pages, and split Markdown, source code and command output.

From a snapshot of a page's accessibility tree, as browser tools write it, an agent wants the
element that it clicks or fills in next. Elements rank first, one of each name before repetitions,
and then the texts of the page. Groups without a name say nothing.

Markdown is split into headings, sentences, table rows and lines of code. What people and tools use
as headings without marking it as such counts, too: bold lines, the title of a search result, and
headings in a block of code that was cut off before its end.

Code and output are split into lines. Each line needs the lines that enclose it: the nearest lines
above with less and less indentation, such as the `if`, the signature and the class around a
statement. This method needs no grammar, treats all languages alike, and takes time linear in the
length of the text.
"""

import re
from itertools import pairwise
from operator import sub

from upwell.compress.folding import LINK
from upwell.compress.units.base import (
    BLANK,
    FIRST,
    SIGNATURE,
    Trouble,
    Units,
    lines,
    pieces,
    split_lines,
)
from upwell.compress.units.belonging import NUMBERED, ReportSalience, add_context, shortened
from upwell.ground.text.sections import BLANK as BLANK_LINES
from upwell.ground.text.sections import (
    FENCE,
    HEADING,
    SENTENCE_END,
    TABLE,
    TextBlock,
    blocks,
)  # fmt: skip

_LINE = re.compile(r"[ \t]*+(?:- )?'?(?:\[[\w-]+\][ \t])?")
_ELEMENT = re.compile(
    rf"^{_LINE.pattern}((?:link|button|textbox|searchbox|checkbox|radio|combobox|menuitem|tab|option"
    r"|switch|slider|spinbutton|treeitem)\b(?:[ \t]++(?:\"[^\"\n]*+\"|'[^'\n]*+'))?)",
    re.M,
)
"""Matches a page element that can be clicked or filled in. The group is its role and its name."""
_UNNAMED = re.compile(
    rf"{_LINE.pattern}(?:generic|group|list|listitem|main|banner|navigation|contentinfo|separator"
    r"|img|paragraph|article|region|none)(?:[ \t]++\[[^\]\n]++\])*+'?:?[ \t]*+$"
)
_MANY_ELEMENTS, _MANY_REFERENCES = 0.1, 0.1
_NEW = 4.5
"""The additional salience of an element if no element above has its role and name: that of an
error, because pages often log many."""
_RAISED_IN_SNAPSHOT = 0.85


def is_snapshot(text: str) -> bool:
    """Return whether most of a text is a snapshot of a page."""
    lines = 1 + text.count("\n")
    if text.count("[ref=") > _MANY_REFERENCES * lines:
        return True
    return sum(1 for _ in _ELEMENT.finditer(text)) > _MANY_ELEMENTS * lines


def raise_elements(units: Units, text: str) -> None:
    """Raise the elements of a page. What is in an element, such as its address, needs it. The
    groups around an element add nothing to its line, so it does not need them.
    """
    units.needs = [()] * len(units)
    units.raised_share = _RAISED_IN_SNAPSHOT
    seen: set[str] = set()
    enclosing, depth = -1, 0
    for unit, (start, end) in enumerate(zip(units.starts, units.ends, strict=True)):
        line = text[start:end]
        indentation = len(line) - len(line.lstrip())
        if indentation <= depth:
            enclosing = -1
        element = _ELEMENT.match(text, start, end)
        if element is not None:
            units.salience[unit] = FIRST + _NEW * (element[1] not in seen)
            seen.add(element[1])
            enclosing, depth = unit, indentation
            continue
        if enclosing >= 0:
            units.needs[unit] = (enclosing,)
        if _UNNAMED.match(text, start, end):
            units.salience[unit] = BLANK


_BOLD = re.compile(
    r"\*\*(?=\S)(?:(?:[^*\n]|\*(?!\*))++\*\*:?[ \t]*+(?:\n|\Z)"
    r"|\d+[.)] (?:[^*\n]|\*(?!\*))++\*\*[^\n]*+(?:\n|\Z))"
)
"""A bold line, or a bold number and title."""
_RESULT = re.compile(
    r"^(?:Title: [^\n]*+\n(?:[A-Z][\w ]{0,30}+:[^\n]*+\n){0,3}?URL: [^\n]*+(?:\n|\Z)"
    r"|={3,}+ [^\n=]++={3,}+[ \t]*+\n(?:[A-Z][\w ]{0,30}+:[^\n]*+\n){0,2}+)",
    re.M,
)
"""The title and address of a search result, or a line such as `=== quay ===`, with its fields."""
_FENCES = ("```", "~~~", "---")
_STRAY = re.compile(r"(#{2,6}) \S")
_RESULT_LEVEL, _BOLD_LEVEL = 0, 7
_LONG_PROSE = 220
_SHORT_FENCE = 3
_EARLY_PROSE = 30.0
"""`Units.early` for Markdown: the first units introduce the rest of the document."""


def split_markdown(text: str, name: str = "") -> Units:
    """Split Markdown. Units that are not blank need the headings above them."""
    units = Units(reach=1, by_names=True, early=_EARLY_PROSE)
    starts = [match.start() for match in _RESULT.finditer(text)]
    for start, end in pairwise(dict.fromkeys([0, *starts, len(text)])):
        _add_document(units, text, start, end)
    return units


def _add_document(units: Units, text: str, start: int, end: int) -> None:
    """Add a document, which may be one of several search results."""
    trail = _Trail()
    if head := _RESULT.match(text, start, end):
        trail.add(units.add(start, head.end(), FIRST), _RESULT_LEVEL)
        start = head.end()
    for part in blocks(text[start:end]):
        block = part._replace(start=start + part.start, end=start + part.end)
        if block.what == HEADING:
            worth, needs = 4.0 - 0.5 * block.level, trail.above(block.level)
            trail.add(units.add(block.start, block.end, worth, needs), block.level)
        elif block.what == BLANK_LINES:
            units.add(block.start, block.end, BLANK)
        elif block.what == FENCE:
            _add_fence(units, text, block, trail)
        elif block.what == TABLE:
            _add_table(units, text, block, trail.needs)
        else:
            if bold := _BOLD.match(text, block.start, block.end):
                needs = trail.above(_BOLD_LEVEL)
                trail.add(units.add(block.start, bold.end(), FIRST, needs), _BOLD_LEVEL)
                block = block._replace(start=bold.end())
            for first, last in _sentences(text, block):
                is_link = LINK.match(text[first:last]) is not None
                units.add(first, last, FIRST if is_link else 0.0, trail.needs)


class _Trail:
    """The units of the headings above the current block, with their levels, outermost first."""

    def __init__(self) -> None:
        self._headings: list[tuple[int, int]] = []

    @property
    def needs(self) -> tuple[int, ...]:
        return tuple([unit for _, unit in self._headings])

    def above(self, level: int) -> tuple[int, ...]:
        """End the headings that one of this level ends, and return the others."""
        while self._headings and self._headings[-1][0] >= level:
            self._headings.pop()
        return self.needs

    def add(self, unit: int, level: int) -> None:
        self._headings.append((level, unit))


def _sentences(text: str, block: TextBlock) -> list[tuple[int, int]]:
    if block.end - block.start <= _LONG_PROSE:
        return [(block.start, block.end)] if block.start < block.end else []
    sentences: list[tuple[int, int]] = []
    offset = block.start
    for match in SENTENCE_END.finditer(text, block.start, block.end):
        if match.end() - offset >= 40:
            sentences.extend(pieces(text, offset, match.end()))
            offset = match.end()
    if offset < block.end:
        sentences.extend(pieces(text, offset, block.end))
    return sentences


def _add_fence(units: Units, text: str, block: TextBlock, trail: _Trail) -> None:
    """Add the lines of a block of code. Headings in it, such as those of the next document if this
    one was cut off, are headings of what follows."""
    needs = trail.needs
    spans = list(lines(text, block.start, block.end))
    if len(spans) <= _SHORT_FENCE + 2 and block.end - block.start <= _LONG_PROSE:
        units.add(block.start, block.end, 0.0, needs)
        return
    first = len(units)
    is_closed = text[slice(*spans[-1])].lstrip().startswith(_FENCES)
    fence = (first, first + len(spans) - 1) if is_closed else (first,)
    is_blank = False
    for index, (start, end) in enumerate(spans, first):
        stray = _STRAY.match(text, start, end) if is_blank else None
        is_blank = not text[start:end].strip()
        needs = trail.above(len(stray[1])) if stray else trail.needs
        units.add(start, end, BLANK if index in fence else 0.0, (*needs, *fence))
        if stray:
            trail.add(index, len(stray[1]))


def _add_table(units: Units, text: str, block: TextBlock, needs: tuple[int, ...]) -> None:
    spans = list(lines(text, block.start, block.end))
    head: tuple[int, ...] = ()
    for index, (start, end) in enumerate(spans):
        unit = units.add(start, end, 0.0, (*needs, *head))
        if index < 2 and len(spans) > 2:
            head = (*head, unit)


_MODIFIER = (
    r"(?:export|default|public|private|protected|internal|static|final|abstract|async|unsafe|pub"
    r"|declare|override|virtual|inline|extern|open|sealed|data)"
)
_STATEMENT = (
    r"(?:if|else|for|foreach|while|switch|do|catch|try|return|case|with|new|throw|await|yield|elif"
    r"|except|finally|match|select|when|unless|until|delete|assert|synchronized|sizeof|typeof)\b"
)
_CONTROL = re.compile(_STATEMENT)
_KEYWORD = (
    r"(?:def|class|func|function|fn|type|interface|struct|enum|union|typedef|trait|impl|mod|module"
    r"|namespace|record|protocol|object|fun|template)\b"
)
_FUNCTION_VALUE = (
    r"(?:const|let|var|val)[ \t]++[\w$]++[^=\n]{0,80}+=[ \t]*+(?:async\b|function\b|\w++[ \t]*+=>"
    r"|\([^\n]*=>)"
)
_BINDING = r"(?:const|let|var|val|#define)[ \t]++\w"
_DEFINES = re.compile(
    rf"(?:{_MODIFIER}[ \t]++)*+(?:({_KEYWORD}|{_FUNCTION_VALUE})|{_BINDING})"
    r"|#{1,6}[ \t]|[A-Z][A-Z0-9_]{3,}[ \t]*+[:=]"
)
"""Matches the beginning of a line that defines something in most languages. Headings also match.
Only functions and types fill the first group."""
_DEFINING = frozenset("#abcdefilmnoprstuvABCDEFGHIJKLMNOPQRSTUVWXYZ")
"""The characters with which a match of `_DEFINES` may begin."""
_SIGNATURE = re.compile(
    rf"(?!{_STATEMENT})[\w~$#*][^\n;={{(]{{0,160}}+\([^\n;]{{0,300}}\)[^\n;=(){{]*+\{{\s*+$"
)
"""Matches a line in which parentheses precede the opening brace of a body."""
_PROTOTYPE = re.compile(
    rf"(?!{_STATEMENT})(?:[\w:<>,*&\[\]]++[ \t]++)++[*&]*+[\w:~]++"
    r"\([^\n;]{0,300}\)[^\n;=(){]{0,80};\s*+$"
)
"""Matches a signature without a body: a type, a name, parameters, and a semicolon."""
_PLACE = re.compile(r"[ \t]*+(?:-->|at |in |File )?[ \t]*+\"?[^\s:\"]++(?::\d+|\", line \d+)")
_FIELD = re.compile(r"[A-Za-z][\w -]{0,30}: ")
_LEAST_RECORDS = 3
_LAST_LINES, _LONG = 3, 200
_RAISED_SHARE, _LINKS_SHARE = 0.85, 0.35
_EARLY = 14.0
"""`Units.early` for code: after reading a file, agents often edit its first lines (imports,
settings)."""
_CLOSING = "})]"
_PROSE_CHARS = 120
"""A text counts as prose if its lines are longer than this on average."""


def split_code(text: str, name: str = "") -> Units:
    """Split code into lines. Each line needs its enclosing lines. Definitions count more."""
    units = Units(by_names=True, early=_EARLY)
    starts, ends, saliences, all_needs = units.starts, units.ends, units.salience, units.needs
    defines = _DEFINES.match
    spans = list(lines(text))
    bare_lines = [text[start:end].lstrip() for start, end in spans]
    # The indentation of each line around the current one, its unit, and the units around it.
    open_blocks: list[tuple[int, int, tuple[int, ...]]] = []
    for (start, end), bare in zip(spans, bare_lines, strict=True):
        needs: tuple[int, ...] = ()
        if bare:
            depth = end - start - len(bare)
            is_below = True
            while open_blocks and open_blocks[-1][0] >= depth:
                depth_of_open, _, needs = open_blocks.pop()
                is_below = depth_of_open != depth
            if is_below:
                needs = shortened((*open_blocks[-1][2], open_blocks[-1][1])) if open_blocks else ()
            if bare == "{\n" and saliences and _ends_signature(text, starts[-1], ends[-1]):
                saliences[-1] = SIGNATURE
            first = bare[0]
            if first not in _CLOSING:
                open_blocks.append((depth, len(starts), needs))
            saliences.append(_salience(bare, defines(bare) if first in _DEFINING else None))
        elif saliences and saliences[-1] == BLANK:
            ends[-1] = end
            continue
        else:
            saliences.append(BLANK)
        starts.append(start)
        ends.append(end)
        all_needs.append(needs)
    return units


def _salience(bare: str, definition: re.Match[str] | None) -> float:
    if definition is not None:
        return SIGNATURE if definition[1] else 1.0
    if "(" not in bare:
        return 0.0
    if "{" in bare:
        return SIGNATURE if _SIGNATURE.match(bare) else 0.0
    return SIGNATURE if ";" in bare and _PROTOTYPE.match(bare) else 0.0


def _ends_signature(text: str, start: int, end: int) -> bool:
    line = text[start:end].rstrip()
    return line.endswith(")") and not _CONTROL.match(line.lstrip())


def split_text(text: str, name: str = "") -> Units:
    """Split a text of no particular kind. Prose is ranked by salience, and other texts by names."""
    if len(text) > _PROSE_CHARS * (1 + text.count("\n")):
        units = split_lines(text, name)
        _raise_links(units, text)
        return units
    units = split_code(text)
    units.needs = [()] * len(units)
    add_context(units, text)
    units.raised_share, units.early = _RAISED_SHARE, 0.0
    if is_snapshot(text):
        raise_elements(units, text)
    _name_records(units, text)
    _raise_trouble(units, text)
    _raise_ends(units)
    _raise_links(units, text)
    return units


def _raise_links(units: Units, text: str) -> None:
    """Raise the links of search results, because results are of little use without their addresses.
    If the units are ordered by names, the share of the budget that is reserved for raised units
    becomes `_LINKS_SHARE`.
    """
    if " <http" not in text:
        return
    units.raised_share = _LINKS_SHARE
    for unit, (start, end) in enumerate(zip(units.starts, units.ends, strict=True)):
        if text.startswith("- ", start) and LINK.match(text[start:end]):
            units.salience[unit] = FIRST


def _name_records(units: Units, text: str) -> None:
    """Make the lines of a record need its first line, if all records begin with the same field, as
    in:

    Name: harbor-0
    Status: running
    """
    field = _FIELD.match(text)
    if field is None or text.count(f"\n{field[0]}") < _LEAST_RECORDS - 1:
        return
    head = -1
    for unit, start in enumerate(units.starts):
        if text.startswith(field[0], start):
            head = unit
        elif units.salience[unit] > BLANK and head not in units.needs[unit]:
            units.needs[unit] = (head, *units.needs[unit])


def _raise_trouble(units: Units, text: str) -> None:
    """Raise the lines that report results and errors, but not quoted source. An error needs the
    line below it that gives its location.
    """
    trouble, report = Trouble(text), ReportSalience(text)
    before = -1
    seen: set[str] = set()
    for unit, (start, end) in enumerate(zip(units.starts, units.ends, strict=True)):
        if units.salience[unit] <= BLANK:
            continue
        line = text[start:end]
        if NUMBERED.match(line):
            continue
        role = report.salience(line, unit)
        if role > 0.0 or (line not in seen and trouble.within(start, end)):
            worth = FIRST + (role or 0.5)
            units.salience[unit] = max(units.salience[unit], worth)
            seen.add(line)
            before = unit
        elif 0 <= before >= unit - 2 and _PLACE.match(text, start, end):
            units.needs[before] = (*units.needs[before], unit)
            before = -1
    report.raise_last(units)


def _raise_ends(units: Units) -> None:
    """Raise the first line and the last lines, because they show which program ran and how it
    ended. Blank and long lines are skipped.
    """
    sizes = map(sub, units.ends, units.starts)
    filled = [
        unit
        for unit, (salience, size) in enumerate(zip(units.salience, sizes, strict=True))
        if salience > BLANK and size <= _LONG
    ]
    for unit in (*filled[:1], *filled[-_LAST_LINES:]):
        units.salience[unit] = max(units.salience[unit], FIRST + 1.0)
