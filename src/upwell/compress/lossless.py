"""Try lossless forms, such as JSON without whitespace, JSON as tables, and logs without colours.
HTML becomes Markdown, which keeps all text on the page; scripts and styles are left out and
counted. A form that is not shorter is discarded.
"""

import re

from msgspec import Struct
from msgspec.structs import replace

from upwell.compress.base import MOST_LINES, Fitted, RemainingBudget, note, outcome
from upwell.compress.folding import as_lists, fold_listings, fold_logs
from upwell.compress.json.tree import (
    ARRAY,
    JSON_KINDS,
    OBJECT,
    JsonNode,
    compact,
    read_json,
)
from upwell.compress.relevance import lowered
from upwell.ground.text.kind import detect_plain
from upwell.ground.types.compression import Compressed, Omission, Passage, TextKind

_MAX_CHARS = 8_000_000
_MOST_TAGS, _MOST_ENTITIES = 60_000, 100_000
"""The converter's time and memory grow faster than the number of unclosed tags and entities. A page
with more tags or entities than this becomes plain text."""
_TAG = re.compile(
    r"<(?:(/?(?:p|div|br|li|tr|h[1-6]|table|ul|ol|section|pre)\b)|[a-z/!?])[^<>]*>?", re.I
)
_UNSEEN = re.compile(r"<(script|style|noscript|template)\b[^<>]*>", re.I)
_BLANKS = re.compile(r"[ \t]{2,}+")
_LINE_ENDS = re.compile(r"\n\s++")
_DRAWING = re.compile(r"!\[[^\[\]\n]*+\]\(data:[^()\s]*+\)")
"""A drawing in the page, which the converter writes as an image with encoded data."""


def to_markdown(html: str) -> str:
    """Convert a page to Markdown. Returns the input if it is too large or has no content."""
    if len(html) > _MAX_CHARS:
        return html
    if not _is_convertible(html):
        from html import unescape

        text = unescape(_TAG.sub(lambda tag: "\n" if tag[1] else " ", html))
        return _LINE_ENDS.sub("\n", _BLANKS.sub(" ", text))
    from html_to_markdown import ConversionOptions, PreprocessingOptions, convert

    # By default the converter drops headers, navigation and forms, and with them the page's title.
    everything = PreprocessingOptions(enabled=False, remove_navigation=False, remove_forms=False)
    options = ConversionOptions(
        expand_abbreviations=False, preprocessing=everything, hidden_content="all"
    )
    result = convert(html, options)
    return _DRAWING.sub("", str(result.content or html))


def _is_convertible(html: str) -> bool:
    return html.count("<") <= _MOST_TAGS and html.count("&") <= _MOST_ENTITIES


def _unseen(html: str) -> tuple[Omission, ...]:
    """Count the characters of scripts, styles and templates, which Markdown cannot express."""
    if len(html) > _MAX_CHARS or not _is_convertible(html):
        return ()
    lowercase = lowered(html)
    chars = offset = 0
    while (opening := _UNSEEN.search(html, offset)) is not None:
        end = lowercase.find(f"</{opening[1].lower()}", opening.end())
        offset = end if end >= 0 else len(html)
        chars += len(html[opening.end() : offset].strip())
    if not chars:
        return ()
    return (Omission(what="characters of scripts and styles", count=chars, total=len(html)),)


_RUNS = frozenset({TextKind.LOG, TextKind.TEST_OUTPUT, TextKind.STACK_TRACE})
"""Kinds whose repeated lines can be folded."""
_LISTS = frozenset({TextKind.GREP, TextKind.TEXT, TextKind.CODE})
"""Kinds that may be lists of paths or search results."""
_MIXED = frozenset({TextKind.TEXT, TextKind.MARKDOWN, TextKind.API_DOCS})
"""Kinds that may have arrays of objects among their lines."""
_TABLES_SAVE = 2.5
"""Tables are tried only if the document is at most this many times the budget. The tables of a
larger document would hardly ever fit, because they rarely take less than two fifths of its size
(measured: 0.68 on average; 0.27, 0.35 and 0.44 in the best three files)."""
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")


class Normal(Struct, frozen=True):
    """The `passage` to continue with. If a lossless form fits the budget, `whole` is the finished
    result.

    `omitted` counts the content that is not part of `passage`, such as scripts.
    """

    passage: Passage
    whole: Compressed | None = None
    omitted: tuple[Omission, ...] = ()


def normalise(passage: Passage, remaining: RemainingBudget, strategy: str) -> Normal:
    """Find a shorter form with the same content.

    If that form fits `remaining`, the result is finished. It is attributed to `strategy`. For
    `auto`, this is `truncate`, or for JSON the strategy that suits the document.
    """
    if passage.kind in JSON_KINDS:
        return _json(passage, remaining, strategy)
    if passage.kind == TextKind.HTML:
        return _page(passage, remaining, strategy)
    plain = _ANSI.sub("", passage.text) if "\x1b" in passage.text else passage.text
    if plain.count("\n") > MOST_LINES:
        return _replaced(passage, plain, remaining, strategy, passage.kind)
    if passage.kind in _RUNS:
        folded = fold_logs(plain)
        passage = replace(passage, folded=folded != plain)
        plain = folded
    if passage.kind in _MIXED:
        plain = as_lists(plain)
    if passage.kind in _LISTS and passage.first_line in (None, 1):
        folded = fold_listings(plain, matches=not passage.query)
        if folded is not plain:
            listed = replace(passage, folded=True)
            return _replaced(listed, folded, remaining, strategy, TextKind.GREP)
    return _replaced(passage, plain, remaining, strategy, passage.kind)


def _page(passage: Passage, remaining: RemainingBudget, strategy: str) -> Normal:
    markdown = to_markdown(passage.text)
    omitted = _unseen(passage.text)
    if not omitted:
        return _replaced(passage, markdown, remaining, strategy, TextKind.MARKDOWN)
    if len(markdown) >= len(passage.text):
        return Normal(passage)
    text = f"{markdown.rstrip()}\n{note(omitted, passage.key)}"
    shorter = replace(passage, text=markdown, kind=TextKind.MARKDOWN, first_line=None)
    if not remaining.holds(text):
        return Normal(shorter, omitted=omitted)
    name = "truncate" if strategy == "auto" else strategy
    return Normal(shorter, outcome(shorter, Fitted(text, omitted), name))


def _json(passage: Passage, remaining: RemainingBudget, strategy: str) -> Normal:
    dense_chars = len(passage.text) - sum(map(passage.text.count, " \n\t\r"))
    if dense_chars > _TABLES_SAVE * remaining.chars or dense_chars > 12 * remaining.tokens:
        return Normal(passage)
    root = read_json(passage)
    if root is None:
        return Normal(replace(passage, kind=detect_plain(passage.text, passage.name)))
    if passage.kind == TextKind.JSON_LINES:
        return Normal(passage)
    from upwell.compress.strategies import choose

    name = choose(passage, root) if strategy == "auto" else strategy
    packed = compact(passage.text) if dense_chars <= remaining.chars else None
    if packed is not None and remaining.holds(packed):
        return Normal(passage, outcome(passage, Fitted(packed), name, lossless=True))
    tables = as_tables(root, passage.text)
    if tables is not None and remaining.holds(tables):
        return Normal(passage, outcome(passage, Fitted(tables), name, lossless=True))
    return Normal(passage)


def _replaced(
    passage: Passage, text: str, remaining: RemainingBudget, strategy: str, kind: TextKind
) -> Normal:
    if len(text) >= len(passage.text):
        return Normal(passage)
    same_lines = not passage.folded and text.count("\n") == passage.text.count("\n")
    first_line = passage.first_line if same_lines else None
    shorter = replace(passage, text=text, kind=kind, first_line=first_line)
    if remaining.holds(text):
        lossless = passage.kind != TextKind.HTML
        name = "truncate" if strategy == "auto" else strategy
        return Normal(shorter, outcome(shorter, Fitted(text), name, lossless=lossless))
    return Normal(shorter)


_MIN_ROWS = 4
_SIGN = "…"


def as_tables(root: JsonNode, text: str) -> str | None:
    """Write uniform arrays of objects as tables: first the keys and constant values, then the rows.

        [{"id": 1, "on": true, "a": {"b": 2}}, …]
        → [{"…": "table", "same": {"on": true}, "columns": ["id", "a.b"]}, [1, 2], …]

    The result is valid JSON with the same content in fewer tokens (0.68 of the source on average
    for uniform arrays). `json/rows.py` uses the same form for shortened arrays. Returns None if the
    document has no uniform arrays. Also returns None if one of its strings begins with `…`, because
    readers must be able to trust that upwell wrote every table in a result.
    """
    if f'"{_SIGN}' in text or '"\\u2026' in text:
        return None
    parts: list[str] = []
    stack: list[JsonNode | str] = [root]
    has_table = False
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            parts.append(item)
            continue
        name = f"{item.key}: " if item.key else ""
        if not item.items:
            parts.append(name + item.lexeme(text))
        elif item.kind == ARRAY and (rows := _rows(item, text)) is not None:
            parts.append(name + _table(rows))
            has_table = True
        else:
            parts.append(name + ("{" if item.kind == OBJECT else "["))
            stack.append("}" if item.kind == OBJECT else "]")
            for index, child in enumerate(reversed(item.items)):
                stack.extend([child] if index == 0 else [", ", child])
    return "".join(parts) if has_table else None


def _rows(array: JsonNode, text: str) -> list[dict[str, str]] | None:
    """Return the rows as path → raw value, or None if the array is short or not uniform."""
    if len(array.items) < _MIN_ROWS:
        return None
    rows: list[dict[str, str]] = []
    for item in array.items:
        row = _flat(item, text) if item.kind == OBJECT and item.items else None
        if row is None or (rows and row.keys() != rows[0].keys()):
            return None
        rows.append(row)
    return rows


def _flat(item: JsonNode, text: str) -> dict[str, str] | None:
    """Return an object as dotted path → raw value, or None if paths would be ambiguous."""
    row: dict[str, str] = {}
    stack = [("", child) for child in reversed(item.items)]
    while stack:
        above, node = stack.pop()
        key = node.key[1:-1]
        if "." in key or not key:
            return None
        path = f"{above}.{key}" if above else key
        if node.kind == OBJECT and node.items:
            stack.extend((path, child) for child in reversed(node.items))
        elif path in row:
            return None
        else:
            own = compact(text[node.start : node.end]) if node.items else node.lexeme(text)
            row[path] = own
    return row


def _table(rows: list[dict[str, str]]) -> str:
    first = rows[0]
    same = [path for path in first if all(row[path] == first[path] for row in rows)]
    columns = [path for path in first if path not in same]
    hoisted = ", ".join(f'"{path}": {first[path]}' for path in same)
    heads = ", ".join(f'"{path}"' for path in columns)
    body = ", ".join("[" + ", ".join(row[path] for path in columns) + "]" for row in rows)
    constants = f'"same": {{{hoisted}}}, ' if same else ""
    return f'[{{"{_SIGN}": "table", {constants}"columns": [{heads}]}}, {body}]'
