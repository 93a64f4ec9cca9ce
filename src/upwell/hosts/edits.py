"""Taking a member out of a table of a JSON or TOML file, and putting one in, by text: everything
else keeps its bytes. What comes out is read again before it is believed."""

import re
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

import tomlkit

from upwell.ground.errors import ConfigError
from upwell.hosts.jsonc import Node, parse, with_child, without_child

Path = tuple[str, ...]
Hides = Callable[[str, Any], bool]
HIDDEN = "***"
_BOM = "\ufeff"
_HEADER = re.compile(r"[ \t]*\[")
_CAMEL = re.compile(r"([a-z0-9])([A-Z])")
_VEILED = {"environment": "env", "http_headers": "headers"}


class Format(Protocol):
    """How a file is written."""

    def value(self, text: str) -> dict[str, Any]:
        """What is in it.

        Raises:
            ConfigError: it cannot be read as what it should be.
        """
        ...

    def without(self, text: str, table: Path, names: Collection[str]) -> str: ...

    def put(self, text: str, table: Path, name: str, value: Mapping[str, Any]) -> str:
        """`text` with `name` in `table`, which is made where it is missing."""
        ...

    def shown(self, text: str, hides: Hides) -> str:
        """`text` with `***` for every value whose dotted key and value `hides` says yes to."""
        ...


class Json:
    """JSON with comments."""

    def value(self, text: str) -> dict[str, Any]:
        return _table(_parsed(text).value) if text.strip(_BOM + " \t\r\n") else {}

    def without(self, text: str, table: Path, names: Collection[str]) -> str:
        node = _node(text, table)
        inside = text[node.start : node.end]
        for name in names:
            while name in (keys := parse(inside).keys):
                inside = without_child(inside, (), keys.index(name))
        return text[: node.start] + inside + text[node.end :]

    def put(self, text: str, table: Path, name: str, value: Mapping[str, Any]) -> str:
        if not text.strip(_BOM + " \t\r\n"):
            text += "{}\n"
        there: Any = _parsed(text).value
        for depth, key in enumerate(table):
            if not isinstance(there, dict) or key not in there:
                inside: Any = {name: value}
                for outer in reversed(table[depth + 1 :]):
                    inside = {outer: inside}
                return same_lines(text, with_child(text, table[:depth], inside, key))
            there = there[key]
        return same_lines(text, with_child(text, table, value, name))

    def shown(self, text: str, hides: Hides) -> str:
        if not text.strip(_BOM + " \t\r\n"):
            return text
        for start, end in sorted(_hidden(_parsed(text), (), hides), reverse=True):
            text = f'{text[:start]}"{HIDDEN}"{text[end:]}'
        return text


class Toml:
    """TOML whose members are tables of their own, `[TABLE.NAME]`."""

    def value(self, text: str) -> dict[str, Any]:
        try:
            return tomllib.loads(text.removeprefix(_BOM))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(
                f"not TOML: {error}", hint="mend it first; it was not touched"
            ) from error

    def without(self, text: str, table: Path, names: Collection[str]) -> str:
        for name in names:
            text = self._without(text, table, name)
        return text

    def put(self, text: str, table: Path, name: str, value: Mapping[str, Any]) -> str:
        wanted = self.value(text)
        wanted.setdefault(table[0], {})[name] = dict(value)
        document = tomlkit.document()
        outer = tomlkit.table(is_super_table=True)
        outer[name] = tomlkit.item(dict(value))
        document[table[0]] = outer
        gap = "" if not text.strip(_BOM) else "\n" if text.endswith("\n") else "\n\n"
        after = same_lines(text, text + gap + tomlkit.dumps(document))
        return self._agreed(after, wanted, table)

    def shown(self, text: str, hides: Hides) -> str:
        document = tomlkit.parse(text.removeprefix(_BOM))
        _veil(document, (), hides)
        return tomlkit.dumps(document)

    def _without(self, text: str, table: Path, name: str) -> str:
        wanted = self.value(text)
        del wanted[table[0]][name]
        left: list[str] = []
        block: list[str] | None = None
        for line in text.splitlines(keepends=True):
            if _HEADER.match(line):
                left += _behind(block or [], left)
                block = [] if _heads(line, (*table, name)) else None
            (left if block is None else block).append(line)
        behind = _behind(block or [], left)
        if block and not behind and left and not left[-1].strip():
            left.pop()
        return self._agreed("".join([*left, *behind]), wanted, table)

    def _agreed(self, after: str, wanted: dict[str, Any], table: Path) -> str:
        try:
            found: Any = self.value(after)
        except ConfigError:
            found = None
        if found is None or _pruned(found, table[0]) != _pruned(wanted, table[0]):
            raise ConfigError(
                f"its {table[0]} are written in a way that cannot be edited safely",
                hint=f"write them as [{table[0]}.NAME]; it was not touched",
            )
        return after


JSON, TOML = Json(), Toml()


def same_lines(before: str, after: str) -> str:
    """`after` with lines that end as all lines of `before` do."""
    windows = before.count("\r\n")
    if not windows or windows != before.count("\n"):
        return after
    return re.sub(r"(?<!\r)\n", "\r\n", after)


@lru_cache(maxsize=2)
def _parsed(text: str) -> Node:
    """Read once: the files of some agents have megabytes. For looking at only."""
    return parse(text)


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError("it is not a table", hint="mend it first; it was not touched")
    return value


def _node(text: str, table: Path) -> Node:
    node = _parsed(text)
    for key in table:
        found = node.under(key)
        assert found is not None
        node = found
    return node


def _hidden(node: Node, path: Path, hides: Hides) -> list[tuple[int, int]]:
    """Where the values stand that are not to be shown."""
    if node.items and node.keys:
        pairs: Sequence[tuple[str, Node]] = list(zip(node.keys, node.items, strict=True))
        return [s for key, item in pairs for s in _hidden(item, (*path, key), hides)]
    if node.items:
        return [s for item in node.items for s in _hidden(item, path, hides)]
    return [(node.start, node.end)] if _hides(path, node.value, hides) else []


def _hides(path: Path, value: Any, hides: Hides) -> bool:
    """`apiKey` is asked about as `api_key`, and the agents' names of tables as ours."""
    words = (_CAMEL.sub(r"\1_\2", _VEILED.get(key, key)) for key in path)
    return bool(path) and hides(".".join(words).lower(), value)


def _veil(table: Any, path: Path, hides: Hides) -> None:
    for key, value in list(table.items()):
        if isinstance(value, Mapping):
            _veil(value, (*path, key), hides)
        elif _hides((*path, key), value, hides):
            table[key] = HIDDEN
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, Mapping):
                    _veil(item, (*path, key), hides)


def _heads(line: str, path: Path) -> bool:
    """Does this line begin the table at `path`, or one inside of it?"""
    try:
        found: Any = tomllib.loads(line.removeprefix(_BOM))
    except tomllib.TOMLDecodeError:
        return False
    for key in path:
        if not isinstance(found, dict) or key not in found:
            return False
        found = found[key]
    return True


def _behind(block: list[str], left: list[str]) -> list[str]:
    """The comments at the end of a table, which are about the next one, and the line between."""
    at = len(block)
    while at and (not block[at - 1].strip() or block[at - 1].lstrip().startswith("#")):
        at -= 1
    behind = block[at:]
    if not left or not left[-1].strip():
        while behind and not behind[0].strip():
            behind = behind[1:]
    return behind


def _pruned(value: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: entry for name, entry in value.items() if name != key or entry}
