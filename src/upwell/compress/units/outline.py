"""Split source code and command output into lines. Each line needs the lines that enclose it.

The enclosing lines are found by indentation: they are the nearest lines above with less and less
indentation, such as the `if`, the signature and the class around a statement. This method needs no
grammar, treats all languages alike, and takes time linear in the length of the text.
"""

import re
from operator import sub

from upwell.compress.normalise.embedded import LINK
from upwell.compress.units.base import (
    BLANK,
    FIRST,
    SIGNATURE,
    Trouble,
    Units,
    lines,
    split_lines,
)
from upwell.compress.units.belonging import NUMBERED, add_context, shortened
from upwell.compress.units.reports import ReportSalience
from upwell.compress.units.snapshots import is_snapshot, raise_elements

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


def split(text: str, name: str = "") -> Units:
    """Split code into lines. Each line needs its enclosing lines. Definitions count more."""
    units = Units(by_names=True, early=_EARLY)
    starts, ends, saliences, all_needs = units.starts, units.ends, units.salience, units.needs
    defines = _DEFINES.match
    spans = list(lines(text))
    bare_lines = [text[start:end].lstrip() for start, end in spans]
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
                needs = _governing(open_blocks[-1]) if open_blocks else ()
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


def _governing(line: tuple[int, int, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the lines that enclose the body of `line`: those around `line`, and `line` itself."""
    _, number, above = line
    return shortened((*above, number))


def split_text(text: str, name: str = "") -> Units:
    """Split a text of no particular kind. Prose is ranked by salience, and other texts by names."""
    if len(text) > _PROSE_CHARS * (1 + text.count("\n")):
        units = split_lines(text, name)
        _raise_links(units, text)
        return units
    units = split(text)
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
