"""Edits JSON that may have comments. It works on the text, so no byte outside the edit changes.

Comments (`//`, `/* */`) and trailing commas are accepted, as in the agents' own parsers. An agent's
settings may be megabytes long, but an edit needs only a few lines of them. So one pass checks the
structure of the text, and values are parsed only on demand.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import msgspec

from upwell.ground.errors import ConfigError
from upwell.ground.files import read_regular_file

_SPACES = r"(?:[ \t\r\n\ufeff]++|//[^\n]*+|/\*.*?\*/)*+"
_ESCAPES = r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})'
_STRINGS = rf'"[^"\\\x00-\x1f]*+(?:{_ESCAPES}[^"\\\x00-\x1f]*+)*+"'
_SCALARS = rf"(?:-?(?:0|[1-9]\d*+)(?:\.\d++)?+(?:[eE][+-]?\d++)?+|true|false|null|{_STRINGS})"
_SPACE = re.compile(_SPACES, re.DOTALL)
_STRING = re.compile(_STRINGS)
_SCALAR = re.compile(_SCALARS)
_ITEMS = re.compile(rf"(?:{_SCALARS}{_SPACES},{_SPACES})*+", re.DOTALL)
"""Items of a list, up to the first that is a list or table. Each includes its comma."""
_MEMBERS = re.compile(
    rf"(?:{_STRINGS}{_SPACES}:{_SPACES}{_SCALARS}{_SPACES},{_SPACES})*+", re.DOTALL
)
"""Members of a table, up to the first whose value is a list or table."""
_BRACKET = re.compile(rf'(?:[^"\[\]{{}}]++|{_STRINGS})*+([\[\]{{}}])')
_COMMENT = re.compile(r"[ \t]*(?://[^\n]*|/\*[^\n]*?\*/[ \t]*(?=\n))")
_INDENT = re.compile(r"^([ \t]+)\S", re.MULTILINE)
MAX_DEPTH = 100


class JsoncNode:
    """A value in a text, `text[start:end]`."""

    def __init__(self, reader: "_Reader", start: int, end: int) -> None:
        self._reader = reader
        self.start = start
        self.end = end

    @cached_property
    def value(self) -> Any:
        """The parsed value.

        Raises:
            ConfigError: the value contains a number that is too long for Python.
        """
        try:
            return json.loads(self._reader.text[self.start : self.end])
        except ValueError as error:
            if self.is_table:
                return {key: item.value for key, item in zip(self.keys, self.items, strict=True)}
            if self.is_list:
                return [item.value for item in self.items]
            raise self._reader.error(self.start) from error

    @property
    def is_table(self) -> bool:
        return self._reader.text[self.start] == "{"

    @property
    def is_list(self) -> bool:
        return self._reader.text[self.start] == "["

    @property
    def items(self) -> "list[JsoncNode]":
        """The values of a table or list, in the order of the text."""
        return self._children[0]

    @property
    def keys(self) -> list[str]:
        """The keys of a table, in the order of `items`."""
        return self._children[1]

    @property
    def key_starts(self) -> list[int]:
        """The offsets of the keys in the text."""
        return self._children[2]

    def under(self, key: str) -> "JsoncNode | None":
        """The child under `key`. If there are several, the last one, as in JSON parsers."""
        places = [index for index, name in enumerate(self.keys) if name == key]
        return self.items[places[-1]] if places else None

    @cached_property
    def _children(self) -> "tuple[list[JsoncNode], list[str], list[int]]":
        return self._reader.children(self)


@lru_cache(maxsize=4)
def parse(text: str) -> JsoncNode:
    """Parse the single value in `text`. Recent results are cached, because several edits read the
    same text.

    Raises:
        ConfigError: the text is not JSON with comments, or is nested too deeply.
    """
    reader = _Reader(text, is_strict=_is_strict(text))
    start = reader.space(0)
    node = JsoncNode(reader, start, reader.skip(start, 0))
    if reader.space(node.end) != len(text):
        raise reader.error(node.end)
    return node


def object_in(file: Path) -> Mapping[str, Any]:
    """The object in a JSON file that may have comments; empty if there is none."""
    try:
        value = parse(read_regular_file(file).decode()).value
    except (OSError, ValueError, RecursionError, ConfigError):
        return {}
    return value if isinstance(value, dict) else {}


def _is_strict(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (ValueError, RecursionError):
        return False
    return True


class _Reader:
    """Finds values in `text`. In strict JSON, counting brackets is enough to find where a value
    ends."""

    def __init__(self, text: str, *, is_strict: bool) -> None:
        self.text = text
        self._is_strict = is_strict
        self._ends: dict[int, int] = {}

    def space(self, offset: int) -> int:
        match = _SPACE.match(self.text, offset)
        return match.end() if match else offset

    def error(self, offset: int) -> ConfigError:
        line = self.text.count("\n", 0, offset) + 1
        return ConfigError(
            f"invalid JSON in line {line}", hint="fix the file first; it was not changed"
        )

    def skip(self, offset: int, depth: int) -> int:
        """The end of the value at `offset`."""
        if depth > MAX_DEPTH:
            raise self.error(offset)
        first = self.text[offset : offset + 1]
        if first not in ("{", "["):
            match = _SCALAR.match(self.text, offset)
            if match is None:
                raise self.error(offset)
            return match.end()
        if offset in self._ends:
            return self._ends[offset]
        end = self._end_of_brackets(offset, depth) if self._is_strict else self._end(offset, depth)
        if depth <= 1:
            self._ends[offset] = end
        return end

    def _end_of_brackets(self, offset: int, depth: int) -> int:
        outer, end = depth, offset
        # If no bracket follows, `finditer()` would search again from every later character.
        while match := _BRACKET.match(self.text, end):
            end = match.end()
            if match[1] in "]}":
                depth -= 1
                if depth == outer:
                    return end
            else:
                depth += 1
                if depth > MAX_DEPTH:
                    break
        raise self.error(offset)

    def _end(self, offset: int, depth: int) -> int:
        """Check the structure of the table or list at `offset`. Returns its end."""
        first = self.text[offset]
        closing, flat = ("}", _MEMBERS) if first == "{" else ("]", _ITEMS)
        end = self.space(offset + 1)
        while True:
            run = flat.match(self.text, end)
            end = run.end() if run else end
            if self.text[end : end + 1] == closing:
                return end + 1
            start = self._value_after_key(end)[1] if first == "{" else end
            end = self._after(self.skip(start, depth + 1), closing)

    def children(self, node: JsoncNode) -> tuple[list[JsoncNode], list[str], list[int]]:
        """The children of a table or list, their keys, and the offsets of the keys."""
        items: list[JsoncNode] = []
        keys: list[str] = []
        key_starts: list[int] = []
        if not (node.is_table or node.is_list):
            return items, keys, key_starts
        closing = "}" if node.is_table else "]"
        end = self.space(node.start + 1)
        while self.text[end] != closing:
            start = end
            if node.is_table:
                key, start = self._value_after_key(end)
                keys.append(json.loads(key))
                key_starts.append(end)
            items.append(JsoncNode(self, start, self.skip(start, 0)))
            end = self._after(items[-1].end, closing)
        return items, keys, key_starts

    def _value_after_key(self, offset: int) -> tuple[str, int]:
        """The key at `offset`, as written, and the start of its value."""
        match = _STRING.match(self.text, offset)
        if match is None:
            raise self.error(offset)
        colon = self.space(match.end())
        if self.text[colon : colon + 1] != ":":
            raise self.error(colon)
        return match.group(), self.space(colon + 1)

    def _after(self, offset: int, closing: str) -> int:
        """The start of the next child or of the closing bracket, after an optional comma."""
        end = self.space(offset)
        if self.text[end : end + 1] == ",":
            return self.space(end + 1)
        if self.text[end : end + 1] != closing:
            raise self.error(end)
        return end


def with_child(text: str, path: Sequence[str], value: Any, key: str = "") -> str:
    """Return `text` with `value` appended to the list at `path` or added to the table as `key`."""
    node = node_at(text, path)
    indent = _INDENT.search(text)
    unit = indent[1] if indent else "  "
    line = text[text.rfind("\n", 0, node.start) + 1 : node.start]
    outer = line[: len(line) - len(line.lstrip(" \t"))]
    inner = outer + unit
    body = json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", "\n" + inner)
    entry = f"{json.dumps(key)}: {body}" if key else body
    if not node.items:
        content = text[node.start + 1 : node.end - 1]
        comments = content.rstrip() if content.strip() else ""
        return f"{text[: node.start + 1]}{comments}\n{inner}{entry}\n{outer}{text[node.end - 1 :]}"
    last = node.items[-1].end
    comma = _comma(text, last)
    if not comma:
        text = f"{text[:last]},{text[last:]}"
    comment = _COMMENT.match(text, comma or last + 1)
    insert_at = comment.end() if comment else comma or last + 1
    return f"{text[:insert_at]}\n{inner}{entry}{',' if comma else ''}{text[insert_at:]}"


def without_child(text: str, path: Sequence[str], place: int | str) -> str:
    """Return `text` without a child of the list or table at `path`: the one at this index, or the
    first with this key."""
    node = node_at(text, path)
    index = node.keys.index(place) if isinstance(place, str) else place
    child = node.items[index]
    start = node.key_starts[index] if node.keys else child.start
    comma = _comma(text, child.end)
    end = comma or child.end
    if not comma and index:
        before = _comma(text, node.items[index - 1].end)
        if before:
            text = text[: before - 1] + text[before:]
            start, end = start - 1, end - 1
    line = text.rfind("\n", 0, start) + 1
    if not text[line:start].strip():
        start = max(0, line - 1)
        start -= text[max(0, start - 1) : start] == "\r"
    rest = text[end:]
    if len(node.items) == 1 and not text[node.start + 1 : start].strip():
        start, rest = node.start + 1, rest.lstrip(" \t\r\n")
    return text[:start] + rest


def node_at(text: str, path: Sequence[str]) -> JsoncNode:
    """The value at a path of keys and indices.

    Raises:
        ConfigError: there is none.
    """
    node = parse(text)
    for key in path:
        child = node.items[int(key)] if not node.keys and node.items else node.under(key)
        if child is None:
            raise ConfigError(f"{'.'.join(path)} does not exist", hint="nothing was changed")
        node = child
    return node


def _comma(text: str, offset: int) -> int:
    """The offset after the comma that comes next; 0 if something else comes next."""
    match = _SPACE.match(text, offset)
    end = match.end() if match else offset
    return end + 1 if text[end : end + 1] == "," else 0
