"""The salience of lines in the output of test runners, compilers, linters and builds.

A reader wants to know, in this order: how the command ended, what failed, and why and where. Lines
are recognised by forms that many tools share (`FAILED name`, `path:line: error: …`,
`3 passed, 1 failed`), not by the name of a tool.
"""

import re

from upwell.compress.units.base import FIRST, Units, template

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
_NUMBERED = re.compile(r"\s{0,4}+\d{1,3}\) \S")
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
        if self._numbered and _NUMBERED.match(line):
            return self._failed(line.split(maxsplit=1)[0])
        if _ERROR.match(line) or (_LEVEL.search(line) and not _BORDER.match(line)):
            return self._error(template(_QUOTED.sub("'", line.strip())))
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

    def _error(self, message: str) -> float:
        if self._is_known(message):
            return ERROR - _AGAIN
        self._details = 0
        return ERROR

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
