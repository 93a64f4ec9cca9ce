"""Detect the kind of a text, mainly by counting how many of its first 96 lines match certain
patterns."""

import re
from collections import Counter
from itertools import pairwise

from upwell.ground.types.compression import TextKind

_SAMPLE_CHARS = 24_576
_SAMPLE_LINES = 96
_TABLE_LINES = 60
_LINE_CHARS = 400
"""Only this many characters of a line are matched, because some patterns take quadratic time. The
beginning is enough to show a line's shape.
"""
_LANGUAGE_CHARS, _LITERALS_PER_LINE = 12_000, 0.05
_SOME_CODE = 0.15
"""The `_LITERALS` are counted only if more than this share of the lines look like code."""


def _lines(pattern: str) -> re.Pattern[str]:
    """Return a pattern for lines that begin with `pattern`. In the searched text, every line, even
    the first, must follow a line break."""
    return re.compile(rf"\n(?:{pattern})", re.M)


_DIFF = _lines(r"diff --git |@@ -\d+(?:,\d+)? \+\d+|--- \S|\+\+\+ \S|Index: ")
_CHANGES = re.compile(r"^diff --git .*\n(?:.*\n){1,6}?@@ -\d", re.M)
_CHANGED = _lines(r"diff --git |index [0-9a-f]+\.\.|@@ -\d|[-+ ]")
_SOME_CHANGED = 0.7
"""A diff may follow other output, such as the status of the folder."""
_COMMIT = _lines(r"(?:\* )?commit [0-9a-f]{7,40}\b|[0-9a-f]{7,12} (?:\([^)]*\) )?\S")
_GREP = _lines(r"(?:[\w.@+-]*/)*[\w.@+-]+[-:]\d+[-:]|(?:[\w.@+-]+/)+[\w.@+-]+\.\w+:\S?")
_MATCH = re.compile(r"(\d{1,7})([:-])(?!\d\d[:-]\d)")
_MIN_MATCHES, _MAX_MATCHES = 4, 0.6
_FRAME = _lines(
    r'[^\S\n]++(?:at .+[:(]\S+|File ".+", line \d+|\d+: +(?:0x[0-9a-f]+ - )?[\w:<>]+'
    r"|\S+\.go:\d+ \+0x|from \S+:\d+:in )"
    r"|Traceback \(most recent|[^\S\n]*+Caused by:|goroutine \d+ \[|thread '.*' panicked"
)
_TEST = _lines(
    r"test \S.* \.\.\. |(?=\S+?::\S).*(?:PASSED|FAILED|SKIPPED|ERROR|XFAIL)|(?:PASSED|FAILED"
    r"|ERROR) \S+::"
    r"|=+ .*(?:test session|passed|failed|FAILURES|short test summary).*=|--- (?:PASS|FAIL|SKIP): "
    r"|=== RUN |[^\S\n]*+[✓✔✕✗✘×√] |test result: |[^\S\n]*+(?:Tests|Test Suites|Test Files):? "
    r"|running \d+ tests?"
    r"|(?:not )?ok \d+ |[^\S\n]*+(?:PASS|FAIL) \S|Ran \d+ tests? in|\S.* \.\.\. (?:ok|FAIL|ERROR)\b"
    r"|\[ +(?:OK|FAILED|RUN|PASSED) +\]|Tests run: \d+"
)
_LOG = _lines(
    r"\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d|\[?\d\d:\d\d:\d\d\b|[A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d "
    r"|\[?(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL)\b|[IWEF]\d{4} \d\d:"
    r"|\d{1,3}(?:\.\d{1,3}){3} \S+ \S+ \[|\d{6} \d{6} |\d{10}(?:\.\d+)? |\[[ \d]+\.\d{3,}\] "
    r"|\S+ [A-Z][a-z]{2} \d+ \d\d:\d\d:\d\d|- \d{10} \d{4}\.\d\d\.\d\d"
    r"|\d\d/\d\d/\d\d \d\d:\d\d:\d\d"
)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_HEADING = _lines(r" {0,3}#{1,6} \S")
_FENCE = _lines(r" {0,3}(?:```|~~~)")
_MD_LINE = _lines(
    r"[^\S\n]*+(?:[-*+] \S|\d+[.)] \S|> |\|.*\|)"
    r"|[^\[\n]*+\[[^\]\n]*\]\([^)\s]+\)|[^*`\n]*+(?:\*\*\w|`[^`\n]+`)"
)
_UNDERLINED = re.compile(r"^(?=\S)([^\n]{1,120}+)\n {0,3}(={3,}|-{3,})[^\S\n]*$", re.M)
_LONGER = 4
"""An underline is at most this much longer than its heading. Longer rules frame a section."""
_HTML_START = re.compile(
    r"\s*+(?:<\?xml[^>]*+>\s*+)?+(?:<!--(?:[^-]|-(?!->))*+-->\s*+)*+<(?:!doctype html|html\b)", re.I
)
_HTML_TAG = re.compile(
    r"</?(?:a|article|body|div|footer|h[1-6]|head|header|li|main|meta|nav|ol|p|pre|script|section"
    r"|span|table|td|th|tr|ul)\b[^<>]*>",
    re.I,
)
_HTTP = re.compile(
    r"\b(?:GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS)`?\*{0,2}\s+`?/\S*|\b(?:GET|POST|PUT"
    r"|PATCH|DELETE)\s+https?://"
)
_VERBS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
_CODE = _lines(
    r"[^\S\n]*+(?:def |async def |class \w|import \w|from [\w.]+ import |export |const |let "
    r"|var |function\b"
    r"|func |fn |pub |use \w+::|impl\b|package |struct |interface |type \w+ |enum "
    r"|namespace |template"
    r"|public |private |protected |static |#include|#define|#ifn?def|@\w+|return\b|if ?\(|for ?\("
    r"|while ?\(|switch ?\(|//|/\*|\*/|\* )|.*[;{}][^\S\n]*$|[^\S\n]*+(?:if|elif|for|while|with|try"
    r"|except)\b.*:$"
)


_VERDICT = re.compile(
    r"^(?:--- FAIL: |(?:FAIL|ok) *\t\S|\[(?:ERROR|INFO)\] Tests run: |test result: |not ok \d"
    r"|={3,} \d+ (?:passed|failed|errors?|skipped)\b)",
    re.M,
)
"""A line that only a test runner prints."""
_TAIL_CHARS = 2_000
_BUILD = _lines(
    r"(?:error|warning)(?:\[\w+\])?: |\S+[:(]\d+(?:[:,]\d+)?\)?: (?:fatal )?(?:error|warning)\b"
    r"|> Task :|\[(?:ERROR|INFO|WARNING)\] |npm (?:ERR!|error|warn) |#\d+ (?:\[|DONE|ERROR|\d+\.\d)"
    r"|[^\S\n]*+--> \S+:\d+:\d+|[^\S\n]*+\d* +\|"
    r"|[^\S\n]++Compiling \S+ v\d|(?:FAILURE|BUILD FAILED|FAILED|make(?:\[\d+\])?: \*\*\*)"
)
_SOME_BUILD = 0.06
_LAYOUT = _lines(
    r"[^\S\n]+\d+:\d+[^\S\n]|[^\s:]*[/.][^\s:]*:\d+(?::\d+)?(?::|[^\S\n]|$)"
    r"|[^\s(]+\(\d+,\d+\): |[^\S\n]+(?:-->|Location:) \S+:\d"
    r"|[-dlbcps][rwxsStT-]{9}"
    r"|[^\S\n│|]*+(?:[│|](?!-- )[^\S\n│|]*+)*+(?:[├└][─┬]|\|-- |`-- |\+--- |\\--- )"
    r"|[^\S\n]*\d{1,7}→|\+[-+=]{4,}\+$"
    r"|\d+(?:,\d+)?[acd]\d+(?:,\d+)?$|[^\S\n]+[-+~] [\w\"]+ (?:=|\")"
)
"""Lines that only tools print: findings with their place, listings, trees, tables, changes, and the
numbered lines of a file."""
_SOME_LAYOUT = 0.2
_SETTING = _lines(
    r"[\"']?[A-Za-z_][\"'\w./-]*[^\S\n]*(?::(?:[^\S\n]|$)|=)|[#;]|---(?:[^\S\n]|$)|\.\.\.$|- "
    r"|\[.*\][^\S\n]*$|[^\S\n]"
)
_KEYED = _lines(r"[^\S\n]*(?:- )?[\"'\w./-]+(?::(?:[^\S\n]|$)|[^\S\n]*=)|\[[^\]\n]+\][^\S\n]*$")
_SOME_KEYS = 0.4
"""Settings (YAML, INI, TOML, variables): each line at the margin is a key, a comment or a heading,
and more than `_SOME_KEYS` of all lines have keys."""

_CODE_ENDINGS = tuple(
    """.py .pyi .js .jsx .mjs .cjs .ts .mts .cts .tsx .go .rs .java .c .h .cc .cpp .cxx .hpp
    .hh""".split()
)
_LITERALS = [
    looks.split("|")
    for looks in (
        # Python, JavaScript, TypeScript, Go, Rust, Java, C and C++
        "\ndef |    def |self.|\nimport |\nfrom |elif | None|):\n|else:\n|\nclass ",
        "const |function|=> |=== |require(|let |var |});|module.exports",
        ": string|: number|: boolean|interface |readonly |: void|import {|?: |export type ",
        "func |:= |err != nil|\npackage |\n\tif |\n\treturn |chan |\ntype |go func",
        "fn |let mut |&mut |impl |pub |-> |::new(|#[|&self|Some(|match ",
        "public |private |@Override|import java|final |protected | void | throws |extends ",
        "#include|->|NULL|static |#define |struct |#endif|sizeof(|\nint |char *|void *",
        "std::|namespace |template|nullptr|class |const &|public:|private:|virtual | override|::",
    )
]
"""What texts in a programming language contain, one list for each language."""
_MIN_LITERALS = 3


def detect(text: str, name: str = "") -> TextKind:
    """Detect the kind of `text`. `name`, a path or URL, is a hint.

    A text counts as JSON if it looks like JSON at the beginning and, for a single document, at the
    end. If it then cannot be parsed, call `detect_plain()`.
    """
    head = text[:_SAMPLE_CHARS].lstrip("\ufeff \t\r\n")
    if head[:1] in ("{", "[", '"'):
        kind = _json_outline(text, head)
        if kind is not None:
            return kind
    return detect_plain(text, name)


def detect_plain(text: str, name: str = "") -> TextKind:
    """Detect the kind of a text that is not JSON."""
    sample = _ANSI.sub("", text[:_SAMPLE_CHARS])
    if _is_html(sample):
        return TextKind.HTML
    rows = sample.split("\n", _SAMPLE_LINES)[:_SAMPLE_LINES]
    lines = "\n".join(rows).splitlines()[:_SAMPLE_LINES]
    filled = [line for line in lines if line.strip()]
    if not filled:
        return TextKind.TEXT
    if name.lower().split("?")[0].endswith(_CODE_ENDINGS):
        return TextKind.CODE
    return _by_shape(sample, filled, text[-_TAIL_CHARS:])


def _json_outline(text: str, head: str) -> TextKind | None:
    tail = text[-64:].rstrip()
    if head[0] == '"':
        alone = tail.endswith('"') and "\n" not in text[:_SAMPLE_CHARS].strip()
        return TextKind.JSON_SCALAR if alone else None
    if head[0] == "{" and _looks_like_lines(head):
        return TextKind.JSON_LINES
    if not tail.endswith("}" if head[0] == "{" else "]"):
        return None
    if head[0] == "[":
        return TextKind.JSON_ARRAY
    if re.search(r'"(?:openapi|swagger)"\s*:\s*"', head) and '"paths"' in text:
        return TextKind.OPENAPI
    return TextKind.JSON_OBJECT


def _looks_like_lines(head: str) -> bool:
    lines = [line for line in head.split("\n")[:6] if line.strip()]
    return len(lines) > 1 and all(
        line.startswith("{") and line.rstrip().endswith("}") for line in lines[:-1]
    )


def _is_html(sample: str) -> bool:
    if _HTML_START.match(sample[:4_000]):
        return True
    if not sample.lstrip().startswith("<"):
        return False
    tags = sum(len(tag) for tag in _HTML_TAG.findall(sample))
    return tags > 0.1 * len(sample) and sample.count("</") >= 3


def _share(pattern: re.Pattern[str], rows: str) -> float:
    return len(pattern.findall(rows)) / rows.count("\n")


def _by_shape(sample: str, lines: list[str], end: str) -> TextKind:
    rows = "".join(f"\n{line[:_LINE_CHARS]}" for line in lines)
    if _DIFF.match(rows) and re.search(r"^@@ |^diff --git ", sample, re.M):
        return TextKind.DIFF
    if _COMMIT.match(rows) and (
        _share(_COMMIT, rows) > 0.8 or re.search(r"^Author: ", sample, re.M)
    ):
        return TextKind.GIT_LOG
    if _CHANGES.search(sample) and _share(_CHANGED, rows) > _SOME_CHANGED:
        return TextKind.DIFF
    if _share(_TEST, rows) > 0.15 or "= test session starts =" in sample:
        return TextKind.TEST_OUTPUT
    has_frames = _share(_FRAME, rows) > 0.2
    if has_frames or _share(_LOG, rows) > 0.4:
        kind = TextKind.STACK_TRACE if has_frames else TextKind.LOG
        return TextKind.TEST_OUTPUT if _VERDICT.search(sample) or _VERDICT.search(end) else kind
    if _share(_GREP, rows) > 0.6 or _is_search_of_one_file(lines):
        return TextKind.GREP
    if _VERDICT.search(end):
        return TextKind.TEST_OUTPUT
    if _share(_BUILD, rows) > _SOME_BUILD or _has_layout(rows):
        return TextKind.TEXT
    if delimiter_of(lines):
        return TextKind.CSV
    return _prose_or_code(sample, rows)


def _is_search_of_one_file(lines: list[str]) -> bool:
    """Return whether the lines are the matches (`216:`) and context (`215-`) of a search in one
    file. The line numbers of a search rise with gaps; those of a whole file have no gaps."""
    found = [match for match in map(_MATCH.match, lines) if match]
    if len(found) < _MIN_MATCHES or len(found) <= _MAX_MATCHES * len(lines):
        return False
    numbers = [int(match[1]) for match in found]
    rises = all(before < after for before, after in pairwise(numbers))
    has_gap = numbers[-1] - numbers[0] >= len(numbers)
    return rises and has_gap and any(match[2] == ":" for match in found)


def _has_layout(rows: str) -> bool:
    """Return whether a tool laid out the lines, so that they are neither prose nor code even if
    they quote some."""
    if _share(_LAYOUT, rows) > _SOME_LAYOUT or is_snapshot(rows):
        return True
    return _share(_KEYED, rows) > _SOME_KEYS and _share(_SETTING, rows) == 1.0


def is_snapshot(rows: str) -> bool:
    """Return whether many lines are elements of a page, each with its reference."""
    return rows.count("[ref=") > _SOME_LAYOUT * (1 + rows.count("\n"))


def _prose_or_code(sample: str, rows: str) -> TextKind:
    fences = len(_FENCE.findall(rows))
    code, markup = _share(_CODE, rows), _share(_MD_LINE, rows)
    if not fences and code > max(_SOME_CODE, markup) and _is_like_code(sample, _LITERALS_PER_LINE):
        return TextKind.CODE
    headings = len(_HEADING.findall(rows))
    setext = sum(len(rule) < len(title) + _LONGER for title, rule in _UNDERLINED.findall(sample))
    if headings >= 2 or setext >= 2 or fences >= 2 or markup > 0.3 or (headings and markup > 0.1):
        return (
            TextKind.API_DOCS if headings >= 2 and _describes_calls(sample) else TextKind.MARKDOWN
        )
    return TextKind.CODE if code > 0.5 and _is_like_code(sample) else TextKind.TEXT


def _is_like_code(sample: str, per_line: float = 0.0) -> bool:
    sample = sample[:_LANGUAGE_CHARS]
    enough = max(_MIN_LITERALS, int(per_line * (1 + sample.count("\n"))) + 1)
    for literals in _LITERALS:
        found = 0
        for literal in literals:
            found += sample.count(literal)
            if found >= enough:
                return True
    return False


def _describes_calls(sample: str) -> bool:
    # Counting the verbs is faster than matching the pattern, and rules out most texts.
    return sum(map(sample.count, _VERBS)) >= 3 and len(_HTTP.findall(sample)) >= 3


def delimiter_of(lines: list[str]) -> str:
    """Return the delimiter of a CSV or TSV table, or "" if `lines` are not one."""
    if len(lines) < 3:
        return ""
    for delimiter in ("\t", ",", ";", "|"):
        if delimiter not in lines[0]:
            continue
        counts = Counter(_cells(line, delimiter) for line in lines[:_TABLE_LINES])
        columns, rows = counts.most_common(1)[0]
        first = _cells(lines[0], delimiter)
        if columns >= 2 and columns == first and rows >= 0.8 * min(len(lines), _TABLE_LINES):
            if columns == 2 and delimiter == "," and " " in lines[0].strip():
                continue
            return delimiter
    return ""


def _cells(line: str, delimiter: str) -> int:
    return len((re.sub(r'"[^"]*"', "", line) if '"' in line else line).split(delimiter))
