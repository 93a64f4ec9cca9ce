"""JSON with comments, edited by text: everything outside the edit keeps its bytes.

Comments (`//`, `/* */`) and trailing commas are accepted, as in the agents' own parsers. An edit
adds or removes one item or member, with its comma and its line, and changes nothing else.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from upwell.ground.errors import ConfigError

_SPACE = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_SCALAR = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_COMMENT = re.compile(r"[ \t]*(?://[^\n]*|/\*[^\n]*?\*/[ \t]*(?=\n))")
_INDENT = re.compile(r"^([ \t]+)\S", re.MULTILINE)
MAX_DEPTH = 100


@dataclass(slots=True)
class Node:
    """A value and its span, `text[start:end]`. The children of a table have `keys`, which begin at
    `key_starts`."""

    start: int
    end: int
    value: Any
    items: list["Node"] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    key_starts: list[int] = field(default_factory=list)

    def under(self, key: str) -> "Node | None":
        """The child under `key`; the last one if there are several, as in JSON parsers."""
        places = [index for index, name in enumerate(self.keys) if name == key]
        return self.items[places[-1]] if places else None


def parse(text: str) -> Node:
    """Parse the only value in `text`.

    Raises:
        ConfigError: the text is not JSON with comments.
    """
    reader = _Reader(text)
    node = reader.value(reader.space(0), 0)
    if reader.space(node.end) != len(text):
        raise reader.error(node.end)
    return node


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text

    def space(self, offset: int) -> int:
        match = _SPACE.match(self._text, offset)
        return match.end() if match else offset

    def error(self, offset: int) -> ConfigError:
        line = self._text.count("\n", 0, offset) + 1
        return ConfigError(
            f"invalid JSON in line {line}", hint="fix the file first; it was not changed"
        )

    def value(self, offset: int, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise self.error(offset)
        first = self._text[offset : offset + 1]
        if first == "{":
            return self._table(offset, depth)
        if first == "[":
            return self._list(offset, depth)
        match = (_STRING if first == '"' else _SCALAR).match(self._text, offset)
        if match is None:
            raise self.error(offset)
        return Node(offset, match.end(), self._decoded(match.group(), offset))

    def _decoded(self, token: str, offset: int) -> Any:
        try:
            return json.loads(token)
        except ValueError as error:
            raise self.error(offset) from error

    def _list(self, offset: int, depth: int) -> Node:
        node = Node(offset, offset, [])
        end = self.space(offset + 1)
        while self._text[end : end + 1] != "]":
            child = self.value(end, depth + 1)
            node.items.append(child)
            node.value.append(child.value)
            end = self._after(child.end, "]")
        node.end = end + 1
        return node

    def _table(self, offset: int, depth: int) -> Node:
        node = Node(offset, offset, {})
        end = self.space(offset + 1)
        while self._text[end : end + 1] != "}":
            match = _STRING.match(self._text, end)
            if match is None:
                raise self.error(end)
            colon = self.space(match.end())
            if self._text[colon : colon + 1] != ":":
                raise self.error(colon)
            child = self.value(self.space(colon + 1), depth + 1)
            key = self._decoded(match.group(), end)
            node.items.append(child)
            node.keys.append(key)
            node.key_starts.append(end)
            node.value[key] = child.value
            end = self._after(child.end, "}")
        node.end = end + 1
        return node

    def _after(self, offset: int, closing: str) -> int:
        """The start of the next child, or of the closing bracket; a comma may come before it."""
        end = self.space(offset)
        if self._text[end : end + 1] == ",":
            return self.space(end + 1)
        if self._text[end : end + 1] != closing:
            raise self.error(end)
        return end


def with_child(text: str, path: Sequence[str], value: Any, key: str = "") -> str:
    """`text` with `value` appended to the list or table at `path` (under `key` in a table)."""
    node = _at(parse(text), path)
    unit = _unit(text)
    outer = _line_indent(text, node.start)
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


def without_child(text: str, path: Sequence[str], index: int) -> str:
    """`text` without child number `index` of the list or table at `path`."""
    node = _at(parse(text), path)
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


def _at(node: Node, path: Sequence[str]) -> Node:
    for key in path:
        child = node.items[int(key)] if not node.keys and node.items else node.under(key)
        if child is None:
            raise ConfigError(f"{'.'.join(path)} does not exist", hint="nothing was changed")
        node = child
    return node


def _comma(text: str, offset: int) -> int:
    """The offset after the comma that follows `offset`; 0 if no comma follows."""
    match = _SPACE.match(text, offset)
    end = match.end() if match else offset
    return end + 1 if text[end : end + 1] == "," else 0


def _unit(text: str) -> str:
    match = _INDENT.search(text)
    return match.group(1) if match else "  "


def _line_indent(text: str, offset: int) -> str:
    line = text[text.rfind("\n", 0, offset) + 1 : offset]
    return line[: len(line) - len(line.lstrip(" \t"))]
