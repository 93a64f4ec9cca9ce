"""JSON with comments, edited by text: what is not ours keeps its bytes.

Comments (`//`, `/* */`) and trailing commas are read as agents' own parsers read them. An edit puts
in or takes out one item or member, with the comma and the line it needs, and changes nothing else.
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
_REMARK = re.compile(r"[ \t]*(?://[^\n]*|/\*[^\n]*?\*/[ \t]*(?=\n))")
_INDENT = re.compile(r"^([ \t]+)\S", re.MULTILINE)
MAX_DEPTH = 100


@dataclass(slots=True)
class Node:
    """A value and where it stands: `text[start:end]`. Children of a table are under their keys,
    `key_starts` where those begin."""

    start: int
    end: int
    value: Any
    items: list["Node"] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    key_starts: list[int] = field(default_factory=list)

    def under(self, key: str) -> "Node | None":
        """The child under `key`; of several the last, as JSON readers take it."""
        places = [place for place, name in enumerate(self.keys) if name == key]
        return self.items[places[-1]] if places else None


def parse(text: str) -> Node:
    """The one value in `text`.

    Raises:
        ConfigError: it is not JSON with comments.
    """
    reader = _Reader(text)
    node = reader.value(reader.space(0), 0)
    if reader.space(node.end) != len(text):
        raise reader.fault(node.end)
    return node


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text

    def space(self, at: int) -> int:
        match = _SPACE.match(self._text, at)
        return match.end() if match else at

    def fault(self, at: int) -> ConfigError:
        line = self._text.count("\n", 0, at) + 1
        return ConfigError(f"not JSON in line {line}", hint="mend it first; it was not touched")

    def value(self, at: int, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise self.fault(at)
        sign = self._text[at : at + 1]
        if sign == "{":
            return self._table(at, depth)
        if sign == "[":
            return self._list(at, depth)
        match = (_STRING if sign == '"' else _SCALAR).match(self._text, at)
        if match is None:
            raise self.fault(at)
        return Node(at, match.end(), self._decoded(match.group(), at))

    def _decoded(self, token: str, at: int) -> Any:
        try:
            return json.loads(token)
        except ValueError as error:
            raise self.fault(at) from error

    def _list(self, at: int, depth: int) -> Node:
        node = Node(at, at, [])
        place = self.space(at + 1)
        while self._text[place : place + 1] != "]":
            child = self.value(place, depth + 1)
            node.items.append(child)
            node.value.append(child.value)
            place = self._after(child.end, "]")
        node.end = place + 1
        return node

    def _table(self, at: int, depth: int) -> Node:
        node = Node(at, at, {})
        place = self.space(at + 1)
        while self._text[place : place + 1] != "}":
            match = _STRING.match(self._text, place)
            if match is None:
                raise self.fault(place)
            colon = self.space(match.end())
            if self._text[colon : colon + 1] != ":":
                raise self.fault(colon)
            child = self.value(self.space(colon + 1), depth + 1)
            key = self._decoded(match.group(), place)
            node.items.append(child)
            node.keys.append(key)
            node.key_starts.append(place)
            node.value[key] = child.value
            place = self._after(child.end, "}")
        node.end = place + 1
        return node

    def _after(self, at: int, closing: str) -> int:
        """Behind a child: the next one, or the closing sign; a comma may stand before it."""
        place = self.space(at)
        if self._text[place : place + 1] == ",":
            return self.space(place + 1)
        if self._text[place : place + 1] != closing:
            raise self.fault(place)
        return place


def with_child(text: str, path: Sequence[str], value: Any, key: str = "") -> str:
    """`text` with `value` at the end of the list or table at `path` (under `key` in a table)."""
    node = _at(parse(text), path)
    unit = _unit(text)
    outer = _line_indent(text, node.start)
    inner = outer + unit
    body = json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", "\n" + inner)
    entry = f"{json.dumps(key)}: {body}" if key else body
    if not node.items:
        inside = text[node.start + 1 : node.end - 1]
        kept = inside.rstrip() if inside.strip() else ""
        return f"{text[: node.start + 1]}{kept}\n{inner}{entry}\n{outer}{text[node.end - 1 :]}"
    last = node.items[-1].end
    comma = _comma(text, last)
    if not comma:
        text = f"{text[:last]},{text[last:]}"
    remark = _REMARK.match(text, comma or last + 1)
    here = remark.end() if remark else comma or last + 1
    return f"{text[:here]}\n{inner}{entry}{',' if comma else ''}{text[here:]}"


def without_child(text: str, path: Sequence[str], place: int) -> str:
    """`text` without the child number `place` of the list or table at `path`."""
    node = _at(parse(text), path)
    child = node.items[place]
    start = node.key_starts[place] if node.keys else child.start
    comma = _comma(text, child.end)
    end = comma or child.end
    if not comma and place:
        before = _comma(text, node.items[place - 1].end)
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
            raise ConfigError(f"there is no {'.'.join(path)}", hint="nothing was changed")
        node = child
    return node


def _comma(text: str, at: int) -> int:
    """The place behind the comma that follows, 0 where none does."""
    match = _SPACE.match(text, at)
    place = match.end() if match else at
    return place + 1 if text[place : place + 1] == "," else 0


def _unit(text: str) -> str:
    match = _INDENT.search(text)
    return match.group(1) if match else "  "


def _line_indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]
