"""What the lines of a report belong to, and how much they matter.

Each line needs the lines that enclose it, and the headings above it. Lines are enclosed by lines
with less indentation, also where branches are drawn in front of them (`│   ├── quay.py`). Headings
need no indentation. A heading ends at the next one of its form, or of a form that appeared in the
text before its own. A line also needs its place, if the place is below the message
(`--> src/quay.py:12`), and the kind and name of its document or table.

The reader of the output of test runners, compilers, linters and builds wants to know, in this
order: how the command ended, what failed, and why and where.

Headings and results are recognised by forms that many tools share (`src/quay.py:`, `== quay ==`,
`[quay]`, `FAILED name`, `path:line: error: …`, `3 passed, 1 failed`), not by the name of a tool.
"""

import re

from msgspec import Struct, field

from upwell.compress.folding import HEAD
from upwell.compress.units.base import FIRST, Units, template

MOST_ENCLOSING = 24
"""A line needs at most this many lines: the outermost and the nearest ones."""
_HEADING = re.compile(
    r"(?:(?P<equals>={2,}>?+(?! (?:RUN|PAUSE|CONT|NAME)\b))|(?P<dashes>-{3,}>?+)|(?P<stars>\*{3,})"
    r"|(?P<lines>_{3,})|(?P<arrows>>{2,})|(?P<waves>~{3,})|(?P<framed>\# ?[-=\#*]{2,})"
    r"|(?P<comment>\#{1,6})) ++\S"
    r"|(?P<section>\[\[?[^\[\]]++\]\]?)\s*+(?:[;\#].*)?$|(?P<task>[A-Z][A-Z ]*+)\[.*\] \*{3}"
    r"|(?P<diff>diff) -|(?P<number>\d++\)) \S|(?P<change>\d++(?:,\d++)?[acd]\d++(?:,\d++)?)$"
)
"""Headings that can be told by their own line, such as `== quay ==`, `[quay]`, `TASK [quay] ***`,
`diff -r`, `1) quay` and `3c4`. The group is the form."""
_DOCUMENT = re.compile(r"---(?:\s|$)")
_FIELD = re.compile(r"#|[\w\"'-]++:(?:\s|$)")
_PATH = re.compile(r"(?=\S*[/.])[\w@.+/\\~-]++$")
_MATCH = re.compile(r"\d{1,7}+[:-](?!\d\d-)")
_NUMBERED = re.compile(r"(?:[^\s:]*?[:-])?\d++[:-]")
"""A line of a search result, which may end in a colon without being a heading."""
_RULE = re.compile(r"[\s+|]*+[-=]{3}[-=+|\s]*+$")
_FRAME = re.compile(r"[\s+|]*+[-=]{4}")
_BRANCH = re.compile(
    r"(?:[│|]?[ \t\xa0]++)*+(?:[├└][─┬]*+[ \xa0]?|(?:\|--|`--|\+---|\\---|\+-|\\-) )?"
)
"""The indentation of a line, with the branches of a tree."""
NUMBERED = re.compile(
    r"[ \t]*+\d*+[ \t]*+[|│](?![ \t\xa0]*+[│|├└+\\`]|--|.*\|\s*$)"
    r"|\d++(?:[ \t]{2}|\t|→)"
)
"""A line of a file, with its number. It belongs to the message above, whatever its indentation."""
_ROW = re.compile(r"[ \t]*+(\d{1,7}+)(?:→|\t)")
_LEAST_ROWS = 8
"""So many numbered lines in a row are a file; fewer are a quotation."""
_PLACE = re.compile(r"[ \t]++(?:-->|Location:)[ \t]++[^\s:]++:\d")
_BARE_PLACE = re.compile(r"(?=\S*[/.])[^\s:]++:\d++(?::\d++)?(?!\S)")
_NUMBERS_AND_BARS, _RULED_BY = frozenset("0123456789|│"), frozenset("-=+|")
_INDENTED_BY = frozenset(" \t\xa0│|├└`+\\")
"""The characters with which matches of `NUMBERED`, `_RULE` and `_BRANCH` begin, spaces apart."""
_MOST_HEADING = 200
_NUMBER = re.compile(r"(?<!\S)[\d.,:%/-]++(?!\S)")
_WORD = re.compile(r"\S+")
_GAP, _ALIGNED = "  ", 0.6
_IDENTIFIED = re.compile(r"^[ \t]*+(?:(?:- )?kind: |\[\[)", re.M)
_BETTER_HEADING = re.compile(r"^(?:\[\[?[^\[\]\n]++\]\]?[ \t]*+|---[ \t]*+|# ?[-=#*]{2}.*)$", re.M)
"""Where a text has such headings, its comments are none."""
_COMMENT, _RULED, _TABLE = "comment", "ruled", "table"


class _Block(Struct):
    """A line that encloses others: its `depth`, and the units that a line below it needs."""

    depth: int
    chain: tuple[int, ...]
    unit: int
    is_key: bool = False
    has_place: bool = False


class _Heading(Struct):
    form: str
    unit: int
    has_place: bool = False


class _Context(Struct):
    """What encloses the current line: the `headings`, outermost first, and the open `blocks`.

    `ranks`: the order in which the forms of headings first appeared.
    """

    headings: list[_Heading] = field(default_factory=list)
    blocks: list[_Block] = field(default_factory=list)
    ranks: dict[str, int] = field(default_factory=dict)
    is_bare: bool = False
    above: tuple[int, ...] = ()

    def begin(self, form: str, unit: int) -> tuple[int, ...]:
        """Open a heading, and return the units that it needs."""
        rank = self.ranks.setdefault(form, len(self.ranks))
        # Several ruled lines in a row, such as a title and the head of its table, are one heading.
        is_more = form == _RULED and self.is_bare and self.headings[-1].form == form
        while not is_more and self.headings and self._ends(self.headings[-1].form, form, rank):
            self.headings.pop()
        needs = tuple([heading.unit for heading in self.headings])
        self.headings.append(_Heading(form, unit))
        self.above = (*needs, unit)[-MOST_ENCLOSING:]
        self.blocks.clear()
        self.is_bare = True
        return needs

    def _ends(self, above: str, form: str, rank: int) -> bool:
        """Return whether a heading ends one above it. Those of Markdown have levels."""
        if above.startswith(_COMMENT) and form.startswith(_COMMENT):
            return above >= form
        return self.ranks[above] >= rank

    def end_table(self) -> None:
        """Close the head of a table, which does not reach beyond a blank line."""
        if self.headings and self.headings[-1].form == _TABLE:
            self.headings.pop()
            self.above = tuple([heading.unit for heading in self.headings])

    def enclosing(self, depth: int) -> tuple[int, ...]:
        """Close the blocks that do not enclose a line of this depth, and return what does."""
        while self.blocks and self.blocks[-1].depth >= depth:
            self.blocks.pop()
        return self.blocks[-1].chain if self.blocks else self.above

    def is_below_key(self, depth: int) -> bool:
        """Return whether an item of this depth belongs to a key of the same depth."""
        same = next((block for block in reversed(self.blocks) if block.depth <= depth), None)
        return same is not None and same.depth == depth and same.is_key

    def open(self, depth: int, needs: tuple[int, ...], unit: int, *, is_key: bool) -> None:
        """Let a line enclose the deeper lines below it."""
        self.blocks.append(_Block(depth, shortened((*needs, unit)), unit, is_key))


def shortened(chain: tuple[int, ...]) -> tuple[int, ...]:
    """Return a chain of enclosing lines without its middle, if it is very long."""
    if len(chain) <= MOST_ENCLOSING:
        return chain
    half = MOST_ENCLOSING // 2
    return (*chain[:half], *chain[-half:])


def add_context(units: Units, text: str) -> None:
    """Make each unit need the lines that it belongs to. The units are lines or parts of lines."""
    written = [text[start:end] for start, end in zip(units.starts, units.ends, strict=True)]
    lines = _without_numbers(written)
    skips_comments = _BETTER_HEADING.search(text) is not None
    context = _Context()
    before = ""
    for unit, line in enumerate(lines):
        if unit and written[unit - 1][-1] != "\n":
            units.needs[unit] = units.needs[unit - 1]
            continue
        bare = line.strip()
        if not bare:
            context.end_table()
            before = ""
            continue
        if own := units.needs[unit]:
            units.needs[unit] = (*units.needs[own[-1]], *own)
            continue
        if line.startswith("[the line above "):
            units.needs[unit] = (*units.needs[unit - 1], unit - 1)
            continue
        following = lines[unit + 1] if unit + 1 < len(lines) else ""
        if bare[0] in _NUMBERS_AND_BARS and NUMBERED.match(line):
            units.needs[unit] = context.blocks[-1].chain if context.blocks else context.above
            context.is_bare = False
        elif (form := _form(line, bare, before, following)) and not (
            form.startswith(_COMMENT) and skips_comments
        ):
            units.needs[unit] = context.begin(form, unit)
        else:
            units.needs[unit] = _needs(units, context, unit, line, before)
        before = bare
    if _IDENTIFIED.search(text):
        _identify(units, lines)


def _without_numbers(lines: list[str]) -> list[str]:
    """Return the lines, those of a file that is shown whole without their numbers. A few numbered
    lines are a quotation, which keeps them."""
    rows = [_ROW.match(line) for line in lines]
    plain = list(lines)
    begin = 0
    for index in range(1, len(lines) + 1):
        row, above = rows[index] if index < len(lines) else None, rows[index - 1]
        if row and above and int(row[1]) == int(above[1]) + 1:
            continue
        if index - begin >= _LEAST_ROWS:
            for at in range(begin, index):
                if row_here := rows[at]:
                    plain[at] = lines[at][row_here.end() :] or "\n"
        begin = index
    return plain


def _needs(units: Units, context: _Context, unit: int, line: str, before: str) -> tuple[int, ...]:
    """Return the units that a line needs that is no heading. `before` is the line above it."""
    if line[0] == "[" and (head := HEAD.match(line.rstrip("\n"))):
        line = head[2]
    bare = line.strip() or line
    is_rule = bare[0] in _RULED_BY and _RULE.match(line) is not None
    context.is_bare = context.is_bare and is_rule
    branch = _BRANCH.match(line) if line[0] in _INDENTED_BY else None
    depth = 2 * branch.end() if branch else 0
    if not depth and before and not context.headings and _BARE_PLACE.match(line):
        return _placed(units, context, unit)
    if bare.startswith("- ") and context.is_below_key(depth):
        depth += 1
    needs = context.enclosing(depth)
    if depth and _PLACE.match(line):
        return _placed(units, context, unit)
    if not is_rule and bare[0] not in "})]":
        context.open(depth, needs, unit, is_key=bare[-1] == ":")
    return needs


def _placed(units: Units, context: _Context, unit: int) -> tuple[int, ...]:
    """Let the message above need its place, which is `unit`, and with it what belongs to the
    message. Only its first place counts. A message with a place ranks like a warning, at least."""
    if not context.blocks:
        needs = context.above
        if context.headings and not context.headings[-1].has_place:
            context.headings[-1].has_place = True
            context.above = (*needs, unit)
            units.needs[needs[-1]] = (*units.needs[needs[-1]], unit)
            units.salience[needs[-1]] = max(units.salience[needs[-1]], FIRST + WARNING)
        return needs
    message = context.blocks[-1]
    needs = message.chain
    if not message.has_place:
        message.chain, message.has_place = (*needs, unit), True
        units.needs[message.unit] = (*units.needs[message.unit], unit)
        units.salience[message.unit] = max(units.salience[message.unit], FIRST + WARNING)
    return needs


def _form(line: str, bare: str, before: str, following: str) -> str:
    """Return the form of a heading, or "" if the line is none. `bare` is the line without spaces
    around it. `before` and `following` are the lines around it."""
    if bare[0] in _RULED_BY and _RULE.match(line):
        return "document" if _DOCUMENT.match(line) and _FIELD.match(following) else ""
    if (not before or (before[0] in _RULED_BY and _RULE.match(before))) and following.strip():
        if _FRAME.match(following) and _RULE.match(following):
            return _RULED
        if not before and _is_head(line, following):
            return _TABLE
    below = following.lstrip()
    if below[:1].isdigit() and not bare[0].isdigit() and _MATCH.match(below) and _PATH.match(bare):
        return "colon"
    if line[0].isspace() or len(line) > _MOST_HEADING or HEAD.match(bare):
        return ""
    if heading := _HEADING.match(line):
        return f"{heading.lastgroup} {heading['task'] or heading['comment'] or ''}".strip()
    return "colon" if bare[-1] == ":" and _is_title(line, bare, following) else ""


def _is_title(line: str, bare: str, following: str) -> bool:
    """Return whether a line that ends in a colon is a heading: a path, also above a blank line, or
    words above a line at the margin."""
    if _PATH.match(bare[:-1]):
        return following[:1] not in (" ", "\t", "-")
    is_above_text = following[:1].strip() and not following.startswith("- ")
    return bool(is_above_text) and not _NUMBERED.match(line)


def _is_head(line: str, following: str) -> bool:
    bare = line.strip()
    if not (_GAP in bare or bare.isupper()) or _NUMBER.search(bare):
        return False
    words = [match.span() for match in _WORD.finditer(line.rstrip())][1:]
    row = following.rstrip()
    aligned = sum(_is_cell(row, start, end) for start, end in words)
    return len(words) > 0 and aligned >= _ALIGNED * len(words)


def _is_cell(row: str, start: int, end: int) -> bool:
    begins = row[start - 1 : start].isspace() and not row[start : start + 1].isspace()
    ends = not row[end - 1 : end].isspace() and row[end : end + 1] in ("", " ")
    return len(row) >= start and (begins or (len(row) >= end and ends))


def _identify(units: Units, lines: list[str]) -> None:
    """Make the lines of each YAML document or list item need its kind and name, and the lines of
    each `[[table]]` in TOML its name."""
    names: dict[int, tuple[int, ...]] = {}
    needs = units.needs
    for unit, line in enumerate(lines):
        key = line.strip().removeprefix("- ")
        above = needs[unit][-1] if needs[unit] else -1
        if key.startswith("kind: "):
            block = unit if line.lstrip().startswith("- ") else above
            names[block] = (*names.get(block, ()), unit)
        elif not key.startswith("name") or above < 0:
            continue
        elif lines[above].strip() == "metadata:":
            block = needs[above][-1] if needs[above] else -1
            names[block] = (*names.get(block, ()), above, unit)
        elif lines[above].startswith("[["):
            names[above] = (*names.get(above, ()), unit)
    for unit, own in enumerate(needs):
        blocks = own if own and _DOCUMENT.match(lines[own[0]]) else (-1, *own)
        identity = [name for block in (*blocks, unit) for name in names.get(block, ())]
        if identity and lines[unit].strip():
            needs[unit] = tuple(dict.fromkeys((*own, *(n for n in identity if n != unit))))


_MARGIN = r"(?:#\d+ [\d.]++ |[\w.-]++ ++\| |)[\s│|]*+"
"""What may precede a line's text: spaces, a frame drawn on the left, a step's number, or a
service's name.
"""
_COUNT = re.compile(
    r"\d(?<![\d,]\d)[\d,]*+ (?:\w+ ){0,2}(?:pass(?:ed|ing|es)?|fail(?:ed|ing|ures?)?|errors?"
    r"|problems?|offenses?|issues?|tests?|specs|examples?|assertions|vulnerabilit(?:y|ies)|packages?|warnings?"
    r"|files? (?:changed|re?formatted|checked)|insertions?|deletions?|actionable tasks?"
    r"|to (?:add|change|destroy))\b"
)
"""A count of results. The lookbehind comes after the first digit, because the regex engine can skip
to a digit quickly."""
_SUM = re.compile(
    r"\b(?:Tests run|Failures|Errors|Tests|Assertions|Failed|Passed|failures|errors)[:=] *\d"
)
_SUM_END = re.compile(r"[snd][:=] *+\d")
"""Matches the end of each `_SUM`. It is tried before `_SUM`, because it is three times as fast."""
_VERDICT = re.compile(
    r"\b(?:BUILD|COMPILATION) (?:FAILED|FAILURE|SUCCESS)|\bexit(?:ed with)? (?:code|status)\b"
)
_LAST_WORDS = ("BUILD ", "COMPILATION ", "exit")
"""Each match of `_VERDICT` contains one of these."""
_BAD = re.compile(
    r"(?<![\d.,])(?!0+ )\d[\d,]* (?:\w+ ){0,2}(?:fail|error|problem|offense|issue|vulnerabilit)"
    r"|(?:[Ff]ailures|[Ee]rrors|Failed)[:=] *(?!0\b)\d|FAILED|FAILURE|exit"
)
_LINE_CHARS = 240
_FAILED = re.compile(
    rf"{_MARGIN}(?:FAILED [^\s(]|ERROR \S+[.:/]\w|(?:FAIL|ERROR): \S|FAIL\s++\S|--- FAIL|not ok\b"
    r"|[✗✕×✘✖] +\D|● +\S|\[ +FAILED +\] \w|Failed \S+ \[|\d+/\d+ Test +#\d+: [^\n]*\*\*\*"
    r"|rspec \S+:\d+|\[ERROR\] +\w\S*[.:]\w+:\d)"
)
"""The name of a failed test, or of its file or package."""
_BADLY, _NAMED = (" FAILED", " FAIL", " ERROR"), (" ... ", " > ")
"""The ends of lines that report a failed test, and the separators after the name of the test or its
suite."""
_NUMBERED_FAILURE = re.compile(r"\s{0,4}+\d{1,3}\) \S")
"""The name of a failed test in a numbered list."""
_ERROR = re.compile(
    rf"{_MARGIN}(?:(?:[\w./-]++: )?(?:fatal |internal |compiler )?(?:error|fatal|panic|Error|FATAL"
    r"|ERROR|Failure/Error)(?:\[\w+\])?: ++\S"
    r"|[^\s:(]++(?::\d+(?::\d+)?|\(\d+(?:,\d+)?\)):? ++(?:- )?(?:fatal )?error\b"
    r"|[^\s:(]++:\d+(?::\d+)?: \[?[A-Z]{1,6}\d{2,5}\b"
    r"|\d+:\d+ ++error\b|\[(?:ERROR|FATAL)\] +\w|npm (?:ERR!|error) \S"
    r"|thread '[^'\n]*+' [^\n]*panicked|E  ++(?!\+)\S|E: \S|Caused by: \S"
    r"|make(?:\[\d+\])?: \*\*\* |Error from \w"
    r"|[A-Za-z_][\w.:]*(?:Error|Exception|Failure)(?:\b|(?=:)):? ?)"
)
"""The first line of an error: its message, its location, or both."""
_LEVEL = re.compile(r"[EFCP](?<!\w\w)(?:RROR|ATAL|RITICAL|ANIC)\b")
_BORDER = re.compile(r"[=_!*-]{3}")
_WARNING = re.compile(rf"{_MARGIN}(?:\S*warning(?:\[\w+\])?: |\S+:\d+: warning|\d+:\d+ ++warning)")
_DETAIL = re.compile(
    rf"{_MARGIN}(?:>  +\S|assert|[-+]? *(?:left|right|expected|actual|received|got|want)\b"
    r"|Expected|Actual|Received|Failed asserting|called `"
    r"|[^\s:]++:\d+(?:: | \+0x)|❯ \S+:\d+|at \S[^\n]*:\d+|in \S+ at |File \""
    r"|# \./\S+:\d+|on \S+ line \d)"
)
_FOREIGN = re.compile(
    r"node_modules|node:internal|site-packages|dist-packages|/lib/python|/usr/|/rustc/|bundle/gems"
    r"|/go/src/|libexec/|java\.base|junit|process\.processImmediate"
)
LAST_RESULT, FAILED, ERROR, BAD_RESULT, RESULT = 6.0, 5.0, 4.5, 4.3, 4.2
DETAIL, WARNING = 4.0, 1.5
_AGAIN, _LATER = 0.4, 0.2
"""An error that was reported before loses `_AGAIN` of salience, and a failed test that was reported
before loses twice that. Each detail of a failure loses `_LATER` more than the detail before it.
Each result that is not bad loses `_LATER` more than the one before it."""
_MOST_DETAILS = 6
_MENTIONS_FAILURE = re.compile(r"\bfail", re.I)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|“[^“”]*”|(?<!\S)[^\s/'\"`]*+/\S*")


class ReportSalience:
    """Finds the salience of the lines of one report. The lines must be passed in order."""

    def __init__(self, text: str) -> None:
        self._seen: set[str] = set()
        self._results, self._details = 0, _MOST_DETAILS
        self._last: dict[str, int] = {}
        self._numbered = _MENTIONS_FAILURE.search(text) is not None

    def salience(self, line: str, unit: int) -> float:
        """Return the salience of a line by its role in the report, or 0 if it has no role or
        repeats a result."""
        if len(line) > _LINE_CHARS:
            return 0.0
        if _is_result(line):
            return self._result(line.strip(), unit)
        if _FAILED.match(line) or _ends_badly(line):
            return self._failed(max(line.split(), key=len))
        if self._numbered and _NUMBERED_FAILURE.match(line):
            return self._failed(line.split(maxsplit=1)[0])
        if _ERROR.match(line) or (_LEVEL.search(line) and not _BORDER.match(line)):
            if self._is_known(template(_QUOTED.sub("'", line.strip()))):
                return ERROR - _AGAIN
            self._details = 0
            return ERROR
        if self._details < _MOST_DETAILS and _DETAIL.match(line) and not _FOREIGN.search(line):
            self._details += 1
            return DETAIL - _LATER * self._details
        return WARNING if _WARNING.match(line) else 0.0

    def raise_last(self, units: Units) -> None:
        """Raise the last verdict (`BUILD FAILED`, `exit code 1`) and the last count of failures
        above everything else, because they show how the command ended. If the report has neither,
        raise the last count of results.
        """
        last = [self._last[kind] for kind in ("bad counts", "verdict") if kind in self._last]
        for unit in last or list(self._last.values()):
            units.salience[unit] = FIRST + LAST_RESULT

    def _result(self, line: str, unit: int) -> float:
        is_bad = _BAD.search(line) is not None
        is_verdict = _VERDICT.search(line) is not None
        self._last["verdict" if is_verdict else "bad counts" if is_bad else "counts"] = unit
        if self._is_known(line):
            return 0.0
        if is_bad:
            return BAD_RESULT
        self._results += 1
        return max(0.0, RESULT - _LATER * self._results)

    def _failed(self, name: str) -> float:
        self._details = 0
        return FAILED - (2 * _AGAIN if self._is_known(name) else 0.0)

    def _is_known(self, key: str) -> bool:
        is_known = key in self._seen
        self._seen.add(key)
        return is_known


def _is_result(line: str) -> bool:
    return (
        _COUNT.search(line) is not None
        or (_SUM_END.search(line) is not None and _SUM.search(line) is not None)
        or (any([word in line for word in _LAST_WORDS]) and _VERDICT.search(line) is not None)
    )


def _ends_badly(line: str) -> bool:
    return line.rstrip().endswith(_BADLY) and any(separator in line for separator in _NAMED)
