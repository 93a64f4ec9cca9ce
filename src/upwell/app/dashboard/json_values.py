"""The values of a JSON text, laid out for people, and the values of shortened JSON."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from msgspec import Struct

from upwell.compress.json.rows import NONE, SIGN

ROW_CHARS = 100
"""Objects and lists longer than this are laid out with line breaks."""
MAX_DEPTH = 40
"""The deepest indentation, in levels."""
_TOKEN = re.compile(
    r'("(?:[^"\\]|\\.)*+"?)(\s*+:)?|([\[{])|([\]}])|(,)|([^\s\[\]{},"]++)', re.DOTALL
)
_START = re.compile(r"\s*+[\[{]")
_LINES_TRIED = 20
_LAST_CHARS = 50_000
"""If the end of valid JSON was cut off, the first syntax error is assumed to be at most this many
characters before the cut."""

Value = tuple[str, str]
"""A value's key ("" if it has none), and the value. Strings begin with a quotation mark, which
distinguishes them from numbers."""


class Piece(Struct):
    """A bracket, or a value with its name, and the white space (`gap`) before the next piece. A
    bracket has a `value` only if it opens an empty object or list. `until` is the index of the
    piece that closes this bracket, -1 for a closing bracket, and 0 for a value. If no piece closes
    the bracket, `until` is large."""

    text: str
    value: Value | None = None
    until: int = 0
    gap: str = ""


class _Number(str):
    """A number as it is written in the text."""


def is_json(text: str, *, is_cut: bool) -> bool:
    """True for an object, a list, or lines that each contain one of these. Of many lines, only the
    first are checked. If `is_cut`, `text` is the beginning of a longer text."""
    if not _START.match(text):
        return False
    try:
        json.loads(text)
    except RecursionError:
        return False
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            lines = [line for line in text.splitlines()[:_LINES_TRIED] if line.strip()]
            return all(map(_is_document, lines[:-1] if is_cut and len(lines) > 1 else lines))
        return is_cut and error.pos > len(text) - _LAST_CHARS
    return True


def _is_document(line: str) -> bool:
    try:
        return bool(_START.match(line)) and json.loads(line) is not None
    except (json.JSONDecodeError, RecursionError):
        return False


def values_of(text: str) -> list[Value]:
    """The values of shortened JSON. The key of a value in a table is the name of its column. If the
    text is not JSON, the values of its JSON parts are returned."""
    values: list[Value] = []
    try:
        try:
            documents = [_loaded(text)]
        except json.JSONDecodeError:
            documents = [_loaded(line) for line in text.splitlines() if line.strip()]
        for document in documents:
            values += _walked(document, "")
    except (json.JSONDecodeError, RecursionError):
        return [piece.value for piece in pieces_of(text, len(text)) if piece.value]
    return values


def _loaded(text: str) -> Any:
    return json.loads(text, parse_int=_Number, parse_float=_Number)


def _walked(node: Any, key: str) -> Iterator[Value]:
    if isinstance(node, dict):
        for name, child in node.items():
            if name not in (SIGN, NONE):
                yield from _walked(child, name)
        if not node:
            yield key, "{}"
    elif isinstance(node, list):
        if node and isinstance(node[0], dict) and node[0].get(SIGN) == "table":
            yield from _table_rows(node[0], node[1:], key)
            return
        for child in node:
            yield from _walked(child, key)
        if not node:
            yield key, "[]"
    else:
        yield key, _value(node)


def _table_rows(head: Mapping[str, Any], rows: Sequence[Any], key: str) -> Iterator[Value]:
    columns = [str(name).rpartition(".")[2] for name in head.get("columns", ())]
    same = {name.rpartition(".")[2]: value for name, value in head.get("same", {}).items()}
    for row in rows:
        if not isinstance(row, list):
            yield from _walked(row, key)
            continue
        for index, cell in enumerate(row):
            if cell != NONE:
                yield from _walked(cell, columns[index] if index < len(columns) else key)
        for name, value in same.items():
            yield from _walked(value, name)


def _value(node: Any) -> str:
    if isinstance(node, _Number):
        return str(node)
    return f'"{node}' if isinstance(node, str) else json.dumps(node)


def pieces_of(text: str, limit: int) -> list[Piece]:
    """The first `limit` pieces of a JSON text. Objects and lists that do not fit in a row have line
    breaks. The text may be incomplete, or not be JSON at all."""
    pieces = _pieces(text, limit)
    _add_gaps(pieces)
    return pieces


def _pieces(text: str, limit: int) -> list[Piece]:
    pieces: list[Piece] = []
    brackets: list[tuple[int, str]] = []
    name, key = "", ""
    for match in _TOKEN.finditer(text):
        if len(pieces) == limit:
            break
        string, colon, opening, closing, comma, word = match.groups()
        if colon:
            name, key = f"{string}: ", _unquoted(string)
            continue
        if comma:
            if pieces:
                pieces[-1].text += ","
            continue
        own_key = key if name else (brackets[-1][1] if brackets else "")
        if opening:
            brackets.append((len(pieces), own_key))
            pieces.append(Piece(name + opening, until=len(text)))
        elif closing:
            if brackets:
                start, own_key = brackets.pop()
                pieces[start].until = len(pieces)
                if start == len(pieces) - 1:
                    pieces[start].value = own_key, pieces[start].text[-1] + closing
            pieces.append(Piece(closing, until=-1))
        else:
            value = f'"{_unquoted(string)}' if string else word
            pieces.append(Piece(name + (string or word), (own_key, value)))
        name = key = ""
    return pieces


def _unquoted(string: str) -> str:
    if "\\" not in string:
        return string.strip('"')
    try:
        return str(json.loads(string))
    except json.JSONDecodeError:
        return string.strip('"')


def _add_gaps(pieces: Sequence[Piece]) -> None:
    sizes = [0, *accumulate(len(piece.text) for piece in pieces)]
    is_long: list[bool] = []
    for number, piece in enumerate(pieces):
        if piece.until > 0:
            end = min(piece.until, len(pieces) - 1)
            is_long.append(sizes[end + 1] - sizes[number] > ROW_CHARS)
        elif piece.until < 0 and is_long:
            is_long.pop()
        ends_list = number + 1 < len(pieces) and pieces[number + 1].until < 0
        if not is_long or is_long[-1]:
            piece.gap = "\n" + "  " * min(MAX_DEPTH, len(is_long) - ends_list)
        elif piece.until <= 0 and not ends_list:
            piece.gap = " "
