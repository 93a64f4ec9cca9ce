"""Split source code into lines that need the signatures around them.

A tree-sitter parser finds the definitions. To save time it reads a scaffold of the text: the code
without the insides of functions. An inside is a run of lines that are indented deeper than the line
before. It is removed only if no line in it looks like the beginning of a definition and its
brackets and quotes are balanced, so the scaffold has the same outline as the text. The heuristics
decide only what the parser need not read, never what a definition is; code without indentation is
parsed as a whole.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import sub
from typing import TYPE_CHECKING, Any

from upwell.compress.units.base import LONG_LINE, Units, pieces
from upwell.compress.units.base import split_lines as split_plain
from upwell.ground.text.language import language_in, language_of

_INSIDE = re.compile(
    r"\n([ \t]*+)(?=\S)([^\n]*+)"
    r"((?:\n[ \t\r]*+(?=\n))*+\n\1[ \t]++\S[^\n]*+(?:\n\1[ \t]++\S[^\n]*+|\n[ \t\r]*+(?=\n))*+)"
)
"""A line and all deeper lines below it, with blank lines between them. Groups: the indentation of
the line, the rest of it, the deeper lines with the line break before them."""

_OPENS = re.compile(
    r"[^\n]*[\[({]\s*(?:/[/*].*)?\Z|(?:public|private|protected|default|case .*)\s*:|\w+:\s*\Z"
    r"|#[^\n]*(?<!\\)\Z"
)
"""A line after which an inside may be missing, in languages with braces."""
_REMARKS = re.compile(r"(?:\n[ \t\r]*+(?:#[^\n]*+)?(?=\n))*+")
_MANY_REMARKS = re.compile(
    r"((?<=:)|(?<=:\r))?+\n[ \t]*+#[^\n]*+(?:\n[ \t]*+#[^\n]*+|\n[ \t\r]*+(?=\n)){2,}"
)
"""Runs of comment lines in Python, which its grammar reads more slowly than code. The group matches
when they follow a signature, with which they are shown."""
_INDENT = re.compile(r"\n([ \t]*+)")
_MAX_DEPTH = 6
"""Insides with definitions are searched to this depth; deeper ones stay whole."""
_LEAST_CHARS = 30

_NO_NAME = (
    r"(?!(?:if|else|for|while|switch|do|catch|try|return|case|with|new|throw|await|yield|typeof"
    r"|delete|assert|synchronized|sizeof)\b)"
)
_BODY = rf"{_NO_NAME}[\w~$#\[][^\n]{{0,300}}\)[^;{{}}=\n]{{0,80}}\n?[ \t]*+\{{"
"""Parentheses followed by a brace that do not belong to a statement of the language."""
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
    language: re.compile(rf"\n[ \t]*+(?:{definition})") for language, definition in _BEGINS.items()
}
"""Where a definition may begin. A false match costs time; a missed one loses the definition."""
_BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))


@dataclass(frozen=True, slots=True)
class Scaffold:
    """The `text` for the parser. Row `i` of it is row `rows[i]` of the original."""

    text: str
    rows: list[int]


def scaffold(text: str, language: str) -> Scaffold:
    """Remove the insides that define nothing. Time is linear in the length of `text`.

    Python has no empty body, so a name replaces each inside there.
    """
    padded = "\n" + text
    builder = _Builder(padded)
    for start, end in _insides(padded, language):
        builder.keep(start + 1, remarks=language != "python")
        builder.skip(end + 1)
        if language == "python":
            builder.put(_placeholder(padded, start))
    builder.keep(len(padded), remarks=language != "python")
    return Scaffold("".join(builder.parts), [*builder.rows, builder.row])


class _Builder:
    """Builds a scaffold. The text up to `_at`, in row `row`, has been handled."""

    def __init__(self, padded: str) -> None:
        self.parts: list[str] = []
        self.rows: list[int] = []
        self.row = 0
        self._padded = padded
        self._at = 1

    def keep(self, end: int, *, remarks: bool) -> None:
        """Copy the text before `end`; without `remarks`, leave out long runs of comments."""
        for run in () if remarks else _MANY_REMARKS.finditer(self._padded, self._at - 1, end):
            if run[1] is None and '"""' not in run[0] and "'''" not in run[0]:
                self._take(run.start() + 1)
                self.skip(run.end() + 1)
        self._take(end)

    def _take(self, end: int) -> None:
        after = self.row + self._padded.count("\n", self._at, end)
        self.parts.append(self._padded[self._at : end])
        self.rows.extend(range(self.row, after))
        self.row, self._at = after, end

    def skip(self, end: int) -> None:
        """Leave out the text before `end`."""
        self.row += self._padded.count("\n", self._at, end)
        self._at = end

    def put(self, line: str) -> None:
        """Write a line in place of the one left out last."""
        self.parts.append(line)
        self.rows.append(self.row - 1)


def _placeholder(padded: str, start: int) -> str:
    """Return a statement with the indentation of the inside that begins after `start`."""
    first = _INDENT.match(padded, start)
    return f"{first[1] if first else ''}_\n"


def _insides(padded: str, language: str) -> list[tuple[int, int]]:
    """Return the spans of the insides to leave out, in order. Each begins with a line break and
    ends before one."""
    definition = _DEFINITION[language]
    spans: list[tuple[int, int]] = []
    todo = [(0, len(padded), 0)]
    while todo:
        first, after, depth = todo.pop()
        for match in _INSIDE.finditer(padded, first, after):
            start, end = match.span(3)
            if end - start < _LEAST_CHARS:
                continue
            if definition.search(padded, start, end) or not _can_be_removed(
                padded, match, language
            ):
                if depth < _MAX_DEPTH:
                    todo.append((start, end, depth + 1))
                continue
            remarks = _REMARKS.match(padded, start, end)
            start = remarks.end() if remarks else start
            content_end = start + len(padded[start:end].rstrip())
            if start < content_end:
                broken = padded.find("\n", content_end, end)
                spans.append((start, end if broken < 0 else broken))
    spans.sort()
    return spans


def _can_be_removed(padded: str, match: re.Match[str], language: str) -> bool:
    """Tell whether the text can be parsed without this inside."""
    start, end = match.span(3)
    if any(
        padded.count(opener, start, end) != padded.count(closer, start, end)
        for opener, closer in _BRACKETS
    ):
        return False
    if language == "python":
        return padded.count('"""', start, end) % 2 == 0 == padded.count("'''", start, end) % 2
    if not _OPENS.match(padded, *match.span(2)):
        return False
    comments = padded.count("/*", start, end) == padded.count("*/", start, end)
    return comments and padded.count("`", start, end) % 2 == 0


if TYPE_CHECKING:
    from tree_sitter import Node

GRAMMARS = {
    "python": ("tree_sitter_python", "language"),
    "javascript": ("tree_sitter_javascript", "language"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
    "go": ("tree_sitter_go", "language"),
    "rust": ("tree_sitter_rust", "language"),
    "java": ("tree_sitter_java", "language"),
    "c": ("tree_sitter_c", "language"),
    "cpp": ("tree_sitter_cpp", "language"),
}
_SCRIPT_NODES = """function_declaration class_declaration method_definition
    generator_function_declaration"""
_C = "function_definition struct_specifier: enum_specifier: union_specifier: type_definition"
_DEFINITIONS = {
    "python": "function_definition class_definition",
    "javascript": _SCRIPT_NODES,
    "typescript": f"{_SCRIPT_NODES} interface_declaration type_alias_declaration enum_declaration "
    "abstract_class_declaration function_signature internal_module",
    "go": "function_declaration method_declaration type_declaration",
    "rust": "function_item struct_item enum_item trait_item impl_item mod_item "
    "function_signature_item macro_definition",
    "java": "class_declaration interface_declaration method_declaration constructor_declaration "
    "enum_declaration record_declaration annotation_type_declaration",
    "c": _C,
    "cpp": f"{_C} class_specifier: namespace_definition",
}
"""Kinds of nodes. A colon marks those that define something only when they have a body."""
_DEFINITIONS["tsx"] = _DEFINITIONS["typescript"]

_MAX_CHARS = 2_000_000
_SIGNATURE_LINES = 6
_COMMENT = r"""(?:\#!|\#\ |//|/\*|\*|<!--|\"{3}|'{3})"""
_LINE_KIND = re.compile(
    rf"""\n[^\S\n]*+(?:(?P<empty>\S{{0,2}}[^\S\n]*+(?=\n|\Z))
    |(?P<remark>(?={_COMMENT})[^\n]{{0,12}}(?=\n|\Z))|(?P<comment>{_COMMENT})
    |(?P<imports>import\ |from\ |use\ |\#include|package\ |require|using\ )
    |(?P<constant>(?:(?:export|pub|static|final|const|public|private|\#define)\ )*[^\S\n]*
    [A-Z][A-Z0-9_]{{2,}}\b.*(?:=|[^\S\n]\S))
    |(?P<telling>return|raise|throw|panic|assert|default|else|case\ )|)""",
    re.X,
)
"""Matches every line once, including the line break before it."""
_CALLABLE, _NAMED = 4.0, 3.0
_WORTH = {
    "empty": -5.0, "remark": -1.0, "comment": 1.0, "imports": -0.5, "constant": 2.0,
    "telling": 0.6, None: 0.0,
}  # fmt: skip


@lru_cache(maxsize=16)
def _tools(language: str) -> tuple[Any, Any]:
    """Load the parser of a language and the query for its definitions."""
    from importlib import import_module

    from tree_sitter import Language, Parser, Query

    module, entry = GRAMMARS[language]
    grammar = Language(getattr(import_module(module), entry)())
    kinds = [
        f"({kind[:-1]} body: (_))" if kind[-1] == ":" else f"({kind})"
        for kind in _DEFINITIONS[language].split()
    ]
    return Parser(grammar), Query(grammar, "\n".join(f"{kind} @definition" for kind in kinds))


def split(text: str, name: str = "") -> Units:
    """Split into lines of code; each needs its signatures. Plain lines if no grammar fits."""
    language = language_of(name) or language_in(text)
    if language not in GRAMMARS or len(text) > _MAX_CHARS or _is_minified(text):
        return split_plain(text, name)
    rows = _row_starts(text)
    units = Units()
    units.reach = 2
    _add_lines(units, text, rows, definitions(scaffold(text, language), language))
    return units


def _is_minified(text: str) -> bool:
    return len(text) > 4 * LONG_LINE * (1 + text.count("\n"))


def _row_starts(text: str) -> list[int]:
    sizes = [len(line) + 1 for line in text.split("\n")]
    starts = list(accumulate(sizes[:-1], initial=0))
    if starts[-1] < len(text):
        starts.append(len(text))
    return starts


def definitions(source: Scaffold, language: str) -> list[tuple[int, int, int]]:
    """Return (first row, row after the signature, row after the end) of each definition, outer
    ones first."""
    from tree_sitter import QueryCursor

    parser, query = _tools(language)
    tree = parser.parse(source.text.encode("utf-8", "replace"))
    nodes = QueryCursor(query).captures(tree.root_node).get("definition", [])
    spans = {_span(node, source.rows) for node in nodes}
    return sorted(spans, key=lambda span: (span[0], -span[2]))


def _span(node: "Node", rows: list[int]) -> tuple[int, int, int]:
    begin = node.start_point[0]
    first, last = rows[begin], rows[node.end_point[0]] + 1
    body = node.child_by_field_name("body")
    head = last
    if body is not None:
        row = body.start_point[0]
        above = row > begin and _begins_row(node, body)
        head = rows[row - 1] + 1 if above else rows[row] + 1
    return first, min(max(head, first + 1), first + _SIGNATURE_LINES, last), last


def _begins_row(node: "Node", body: "Node") -> bool:
    """Tell whether the body begins on a row of its own (Python) rather than with a brace on the
    last row of the signature."""
    before = body.prev_sibling
    return before is None or before.end_point[0] < body.start_point[0]


def _add_lines(
    units: Units, text: str, rows: list[int], definitions: list[tuple[int, int, int]]
) -> None:
    around: list[tuple[int, int]] = []
    needs: tuple[int, ...] = ()
    ahead = iter([*definitions, (len(rows), 0, 0)])
    following = next(ahead)
    row, count = 0, len(rows) - 1
    worths = _line_worths(text)[:count]
    while row < count:
        while around and around[-1][0] <= row:
            around.pop()
            needs = tuple([unit for _, unit in around[-4:]])
        while following[0] < row:
            following = next(ahead)
        if following[0] == row:
            _, head, last = following
            head = min(head, count)
            worth = _signature(text, rows[row], rows[head]) - 0.4 * len(needs)
            unit = units.add(rows[row], rows[head], worth, needs)
            around.append((last, unit))
            needs = (*needs[-3:], unit)
            row = head
            continue
        stop = min(following[0], around[-1][0] if around else count, count)
        _add_plain(units, text, rows[row : stop + 1], worths[row:stop], needs)
        row = stop


def _add_plain(
    units: Units, text: str, rows: list[int], worths: list[float], needs: tuple[int, ...]
) -> None:
    """Add the lines between two rows at which a definition begins or ends."""
    depth = 0.3 * len(needs)
    if max(map(sub, rows[1:], rows)) <= LONG_LINE:
        units.add_row(rows, [worth - depth for worth in worths], needs)
        return
    for (start, end), worth in zip(pairwise(rows), worths, strict=True):
        for first, last in pieces(text, start, end):
            units.add(first, last, worth - depth, needs)


def _signature(text: str, start: int, end: int) -> float:
    """Return the salience of a signature. Callables, with their parameters, rank before types."""
    return _CALLABLE if text.find("(", start, end) >= 0 else _NAMED


def _line_worths(text: str) -> list[float]:
    """Return the salience of every line by its kind."""
    return [_WORTH[match.lastgroup] for match in _LINE_KIND.finditer("\n" + text)]
