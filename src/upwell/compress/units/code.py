"""Source code: lines under the signatures of the functions and classes that they stand in."""

import re
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import sub
from typing import TYPE_CHECKING, Any

from upwell.compress.units.base import LONG_LINE, Units, pieces
from upwell.compress.units.plain import split as split_plain
from upwell.compress.units.scaffold import Scaffold, scaffold
from upwell.ground.text.language import language_in, language_of

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
_SCRIPT = """function_declaration class_declaration method_definition
    generator_function_declaration"""
_C = "function_definition struct_specifier: enum_specifier: union_specifier: type_definition"
_DEFINITIONS = {
    "python": "function_definition class_definition",
    "javascript": _SCRIPT,
    "typescript": f"{_SCRIPT} interface_declaration type_alias_declaration enum_declaration "
    "abstract_class_declaration function_signature internal_module",
    "go": "function_declaration method_declaration type_declaration",
    "rust": "function_item struct_item enum_item trait_item impl_item mod_item "
    "function_signature_item macro_definition",
    "java": "class_declaration interface_declaration method_declaration constructor_declaration "
    "enum_declaration record_declaration annotation_type_declaration",
    "c": _C,
    "cpp": f"{_C} class_specifier: namespace_definition",
}
"""Kinds of nodes; with a colon those that define something only where they have a body."""
_DEFINITIONS["tsx"] = _DEFINITIONS["typescript"]

_MAX_CHARS = 2_000_000
_SIGNATURE_LINES = 6
_COMMENT = r"""(?:\#!|\#\ |//|/\*|\*|<!--|\"{3}|'{3})"""
_LOOKS = re.compile(
    rf"""\n[^\S\n]*+(?:(?P<empty>\S{{0,2}}[^\S\n]*+(?=\n|\Z))
    |(?P<remark>(?={_COMMENT})[^\n]{{0,12}}(?=\n|\Z))|(?P<comment>{_COMMENT})
    |(?P<imports>import\ |from\ |use\ |\#include|package\ |require|using\ )
    |(?P<constant>(?:(?:export|pub|static|final|const|public|private|\#define)\ )*[^\S\n]*
    [A-Z][A-Z0-9_]{{2,}}\b.*(?:=|[^\S\n]\S))
    |(?P<telling>return|raise|throw|panic|assert|default|else|case\ )|)""",
    re.X,
)
"""Matches every line once, by the line break before it."""
_CALLABLE, _NAMED = 4.0, 3.0
_WORTH = {
    "empty": -5.0, "remark": -1.0, "comment": 1.0, "imports": -0.5, "constant": 2.0,
    "telling": 0.6, None: 0.0,
}  # fmt: skip


@lru_cache(maxsize=16)
def _tools(language: str) -> tuple[Any, Any]:
    """A parser and the query for definitions. Loaded when first needed."""
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
    """Lines of code; each needs the signatures around it. Plain lines where no grammar fits."""
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
    """(first row, row after the signature, row after the end) of every definition, outer first."""
    from tree_sitter import QueryCursor

    parser, query = _tools(language)
    tree = parser.parse(source.text.encode("utf-8", "replace"))
    found = QueryCursor(query).captures(tree.root_node).get("definition", [])
    spans = {_span(node, source.rows) for node in found}
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
    """Does the body begin on a row of its own (Python), rather than with a brace on the last row
    of the signature?"""
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
    looks = _looks(text)[:count]
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
        _add_plain(units, text, rows[row : stop + 1], looks[row:stop], needs)
        row = stop


def _add_plain(
    units: Units, text: str, rows: list[int], looks: list[float], needs: tuple[int, ...]
) -> None:
    """The lines between two rows where a definition begins or ends."""
    depth = 0.3 * len(needs)
    if max(map(sub, rows[1:], rows)) <= LONG_LINE:
        units.add_row(rows, [own - depth for own in looks], needs)
        return
    for (start, end), own in zip(pairwise(rows), looks, strict=True):
        for first, last in pieces(text, start, end):
            units.add(first, last, own - depth, needs)


def _signature(text: str, start: int, end: int) -> float:
    """What can be called, and with what, says more than the name of a type."""
    return _CALLABLE if text.find("(", start, end) >= 0 else _NAMED


def _looks(text: str) -> list[float]:
    """What every line is worth by its looks."""
    return [_WORTH[found.lastgroup] for found in _LOOKS.finditer("\n" + text)]
