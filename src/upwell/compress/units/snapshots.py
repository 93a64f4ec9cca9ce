"""Split snapshots of a page's accessibility tree, as browser tools write them.

An agent reads a snapshot to find the element that it clicks or fills in next. Elements rank first,
one of each name before repetitions, and then the texts of the page. Groups without a name say
nothing.
"""

import re

from upwell.compress.units.base import BLANK, FIRST, Units

_LINE = re.compile(r"[ \t]*+(?:- )?'?(?:\[[\w-]+\][ \t])?")
_ELEMENT = re.compile(
    rf"^{_LINE.pattern}((?:link|button|textbox|searchbox|checkbox|radio|combobox|menuitem|tab|option"
    r"|switch|slider|spinbutton|treeitem)\b(?:[ \t]++(?:\"[^\"\n]*+\"|'[^'\n]*+'))?)",
    re.M,
)
"""Matches a page element that can be clicked or filled in. The group is its role and its name."""
_REFERENCE = re.compile(r"\[ref=\w+\]")
_UNNAMED = re.compile(
    rf"{_LINE.pattern}(?:generic|group|list|listitem|main|banner|navigation|contentinfo|separator"
    r"|img|paragraph|article|region|none)(?:[ \t]++\[[^\]\n]++\])*+'?:?[ \t]*+$"
)
_MANY_ELEMENTS, _MANY_REFERENCES = 0.1, 0.1
_NEW = 4.5
"""The additional salience of an element if no element above has its role and name: that of an
error, because pages often log many."""
_RAISED_SHARE = 0.85


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
    units.raised_share = _RAISED_SHARE
    seen: set[str] = set()
    enclosing, depth = -1, 0
    for unit, (start, end) in enumerate(zip(units.starts, units.ends, strict=True)):
        indentation = _depth(text, start, end)
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


def _depth(text: str, start: int, end: int) -> int:
    line = text[start:end]
    return len(line) - len(line.lstrip())
