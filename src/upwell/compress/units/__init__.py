"""Split a text into units in the way that suits its kind."""

import re
from bisect import bisect_right
from collections.abc import Callable
from itertools import islice

from upwell.compress.base import MOST_LINES
from upwell.compress.units import changes, outline, runs
from upwell.compress.units.base import FIRST, Units, split_groups, split_lines
from upwell.compress.units.belonging import ERROR, WARNING
from upwell.ground.types.compression import TextKind

_WHEREABOUTS = re.compile(
    r"\b(?:[Ff]ull|[Cc]omplete|[Ee]ntire|whole) (?:\w{1,20}+ )?(?:output|log|report|results?)\b"
    r"[^\n]{0,200}?[\s(\"'`](?:[\w.+-]{1,20}+:/)?[~.\w-]{0,100}+/[^\s]++"
)
"""Says where the whole output is, with its path or address. Agents and tools write this at either
end of an output that they cut."""
_WHOLE = ("ull ", "omplete ", "ntire ", "whole ")
"""Each match of `_WHEREABOUTS` contains one of these."""
_AT_EITHER_END = 2_000
_CUT_BEFORE = re.compile(
    r"(?<!\d)(?<!\d[,.])\d[\d,.]*+ ?(?:bytes|characters|chars|lines|tokens|[KM]B) (?:were )?"
    r"(?:truncated|omitted)"
)
"""Says that somebody else left out a part of the output. It must not disappear behind a mark of
ours, which counts only what was there."""
_MOST_CUTS, _MOST_CUT_CHARS = 20, 200
_INNER = frozenset(" \t+-|0123456789")
"""The characters with which lines begin that belong to a file, a hunk or what encloses them."""

SPLITTERS: dict[TextKind, Callable[[str, str], Units]] = {
    TextKind.MARKDOWN: outline.split_markdown,
    TextKind.API_DOCS: outline.split_markdown,
    TextKind.CODE: outline.split_code,
    TextKind.CSV: runs.split_csv,
    TextKind.DIFF: changes.split_diff,
    TextKind.GIT_LOG: changes.split_log,
    TextKind.GREP: runs.split_grep,
    TextKind.LOG: runs.split_log,
    TextKind.STACK_TRACE: runs.split_trace,
    TextKind.TEST_OUTPUT: runs.split_tests,
    TextKind.TEXT: outline.split_text,
}


def split(text: str, kind: TextKind, name: str = "") -> Units:
    """Split `text` into units with the splitter for its `kind`, or into lines if there is none. A
    text with more than `MOST_LINES` lines is split into groups of lines instead.
    """
    if text.count("\n") > MOST_LINES:
        return split_groups(text)
    units = SPLITTERS.get(kind, split_lines)(text, name)
    tail = max(_AT_EITHER_END, len(text) - _AT_EITHER_END)
    for begin, end in ((0, _AT_EITHER_END), (tail, len(text))):
        if any([word in text[begin:end] for word in _WHOLE]):
            for match in _WHEREABOUTS.finditer(text, begin, end):
                _raise(units, text, match, FIRST + ERROR)
    for match in islice(_CUT_BEFORE.finditer(text), _MOST_CUTS):
        unit = bisect_right(units.starts, match.start()) - 1
        if units.ends[unit] - units.starts[unit] <= _MOST_CUT_CHARS:
            _raise(units, text, match, FIRST + WARNING)
    return units


def _raise(units: Units, text: str, match: re.Match[str], salience: float) -> None:
    """Raise the lines of a match. At the margin, they are about the whole output and belong to
    nothing above them; a match of a search or a changed line, which may say the same, does."""
    first = bisect_right(units.starts, match.start()) - 1
    for unit in range(first, bisect_right(units.starts, match.end() - 1)):
        units.salience[unit] = salience
        if text[units.starts[unit]] not in _INNER:
            units.needs[unit] = ()
