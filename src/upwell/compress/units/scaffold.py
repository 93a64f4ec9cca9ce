"""Source code without the insides of its functions: a parser need not read what defines nothing.

An inside is a run of lines that stand deeper than the line before it. It is left out where none of
its lines looks like the begin of a definition and its brackets and quotes are even, so that what
is left is a program of the same outline. Code that is not indented stays whole: told by its looks
is only what may be left out, never what a definition is.
"""

import re
from dataclasses import dataclass

_INSIDE = re.compile(
    r"\n([ \t]*+)(?=\S)([^\n]*+)"
    r"((?:\n[ \t\r]*+(?=\n))*+\n\1[ \t]++\S[^\n]*+(?:\n\1[ \t]++\S[^\n]*+|\n[ \t\r]*+(?=\n))*+)"
)
"""A line and all lines below it that are deeper, with blank ones between them. Groups: the line's
indentation, the rest of it, what stands deeper with the line break before."""
_OPENS = re.compile(
    r"[^\n]*[\[({]\s*(?:/[/*].*)?\Z|(?:public|private|protected|default|case .*)\s*:|\w+:\s*\Z"
    r"|#[^\n]*(?<!\\)\Z"
)
"""A line of a language with braces after which an inside may be missing."""
_REMARKS = re.compile(r"(?:\n[ \t\r]*+(?:#[^\n]*+)?(?=\n))*+")
_MANY_REMARKS = re.compile(
    r"((?<=:)|(?<=:\r))?+\n[ \t]*+#[^\n]*+(?:\n[ \t]*+#[^\n]*+|\n[ \t\r]*+(?=\n)){2,}"
)
"""Lines of remarks in Python, which take its grammar longer than code does. The group says that
they stand right below a signature and are shown with it."""
_INDENT = re.compile(r"\n([ \t]*+)")
_MAX_DEPTH = 6
"""How many insides with definitions may stand in one another; what is deeper stays whole."""
_LEAST_CHARS = 30

_NO_NAME = (
    r"(?!(?:if|else|for|while|switch|do|catch|try|return|case|with|new|throw|await|yield|typeof"
    r"|delete|assert|synchronized|sizeof)\b)"
)
_BODY = rf"{_NO_NAME}[\w~$#\[][^\n]{{0,300}}\)[^;{{}}=\n]{{0,80}}\n?[ \t]*+\{{"
"""Something in parentheses with a brace behind it that is no statement of the language."""
_SCRIPT = rf"{_BODY}|\*[ \t]*+\w|\)[^\n;=]{{0,300}}\{{"
_TYPES = r"[^\n;(=]{0,200}\b(?:struct|enum|union|typedef"
_BEGINS = {
    "python": r"(?:async[ \t]+)?(?:def|class)\b",
    "javascript": rf"(?:(?:export|default|async)[ \t]+)*(?:function|class)\b|{_SCRIPT}",
    "typescript": r"(?:(?:export|default|async|declare|abstract|const)[ \t]+)*"
    rf"(?:function|class|interface|type|enum|namespace|module)\b|{_SCRIPT}",
    "go": r"(?:func|type)\b",
    "rust": r"(?:(?:pub(?:\([^)\n]*\))?|async|unsafe|const|default|extern(?:[ \t]+\"[^\"\n]*\")?)"
    r"[ \t]+)*(?:fn|struct|enum|trait|impl|mod|macro_rules)\b",
    "java": rf"[^\n;(]{{0,200}}\b(?:class|interface|enum|record)\b|{_BODY}"
    rf"|{_NO_NAME}[\w@<][\w.<>\[\], ?@&]{{0,200}}[ \t]\w+[ \t]*+\(",
    "c": rf"{_TYPES})\b|{_BODY}",
    "cpp": rf"{_TYPES}|class|namespace)\b|{_BODY}|[\w~][^\n;]{{0,300}}\)"
    r"(?:[ \t\n]*+:(?!:)|[^;{}\n]{0,80}=[ \t]*+(?:default|delete)\b)",
}
_BEGINS["tsx"] = _BEGINS["typescript"]
_DEFINITION = {
    language: re.compile(rf"\n[ \t]*+(?:{begins})") for language, begins in _BEGINS.items()
}
"""Where a definition may begin. Taking too much for one costs time, too little loses it."""
_BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))


@dataclass(frozen=True, slots=True)
class Scaffold:
    """What a parser is to read of a text; `rows[i]` is where its row `i` stands in the text."""

    text: str
    rows: list[int]


def scaffold(text: str, language: str) -> Scaffold:
    """`text` without insides that define nothing. In Python, which knows no empty body, a name
    stands where one was. Time is linear in the length of `text`."""
    led = "\n" + text
    made = _Making(led)
    for start, end in _insides(led, language):
        made.keep(start + 1, remarks=language != "python")
        made.skip(end + 1)
        if language == "python":
            made.put(_placeholder(led, start))
    made.keep(len(led), remarks=language != "python")
    return Scaffold("".join(made.parts), [*made.rows, made.row])


class _Making:
    """A scaffold that is being made: what was kept of a text up to `at`, in its row `row`."""

    def __init__(self, led: str) -> None:
        self.parts: list[str] = []
        self.rows: list[int] = []
        self.row = 0
        self._led = led
        self._at = 1

    def keep(self, end: int, *, remarks: bool) -> None:
        """Take what comes before `end`, but for many lines of remarks where these need not be
        read."""
        for run in () if remarks else _MANY_REMARKS.finditer(self._led, self._at - 1, end):
            if run[1] is None and '"""' not in run[0] and "'''" not in run[0]:
                self._take(run.start() + 1)
                self.skip(run.end() + 1)
        self._take(end)

    def _take(self, end: int) -> None:
        after = self.row + self._led.count("\n", self._at, end)
        self.parts.append(self._led[self._at : end])
        self.rows.extend(range(self.row, after))
        self.row, self._at = after, end

    def skip(self, end: int) -> None:
        """Leave out what comes before `end`."""
        self.row += self._led.count("\n", self._at, end)
        self._at = end

    def put(self, line: str) -> None:
        """Write a line that stands for the one that was left out last."""
        self.parts.append(line)
        self.rows.append(self.row - 1)


def _placeholder(led: str, start: int) -> str:
    """A statement, as deep as the inside that begins after `start`."""
    first = _INDENT.match(led, start)
    return f"{first[1] if first else ''}_\n"


def _insides(led: str, language: str) -> list[tuple[int, int]]:
    """The spans of the insides that are left out, in order; each begins with a line break and
    ends before one."""
    begins = _DEFINITION[language]
    found: list[tuple[int, int]] = []
    todo = [(0, len(led), 0)]
    while todo:
        first, after, depth = todo.pop()
        for match in _INSIDE.finditer(led, first, after):
            start, end = match.span(3)
            if end - start < _LEAST_CHARS:
                continue
            if begins.search(led, start, end) or not _may_go(led, match, language):
                if depth < _MAX_DEPTH:
                    todo.append((start, end, depth + 1))
                continue
            remarks = _REMARKS.match(led, start, end)
            start = remarks.end() if remarks else start
            said = start + len(led[start:end].rstrip())
            if start < said:
                broken = led.find("\n", said, end)
                found.append((start, end if broken < 0 else broken))
    found.sort()
    return found


def _may_go(led: str, match: re.Match[str], language: str) -> bool:
    """Is a text without this inside still one that can be parsed?"""
    start, end = match.span(3)
    if any(led.count(one, start, end) != led.count(other, start, end) for one, other in _BRACKETS):
        return False
    if language == "python":
        return led.count('"""', start, end) % 2 == 0 == led.count("'''", start, end) % 2
    if not _OPENS.match(led, *match.span(2)):
        return False
    comments = led.count("/*", start, end) == led.count("*/", start, end)
    return comments and led.count("`", start, end) % 2 == 0
