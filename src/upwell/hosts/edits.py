"""Adds members to a table in a JSON or TOML file, removes them, and changes a server's command. The
text is edited in place, so nothing else changes but blank lines beside a removed TOML table. Edited
TOML is parsed again before it is accepted."""

import json
import re
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import takewhile
from typing import Any, Protocol

from upwell.ground.errors import ConfigError
from upwell.hosts.jsonc import JsoncNode, node_at, parse, with_child, without_child

KeyPath = tuple[str, ...]
Hides = Callable[[str, Any], bool]
"""Returns whether to hide the value under a dotted key."""
HIDDEN = "***"
_BOM = "\ufeff"
_FIRST_COMMA = re.compile(r"\A[ \t\r\n]*,")
_HEADER = re.compile(r"[ \t]*\[")
_CAMEL = re.compile(r"([a-z0-9])([A-Z])")
_ADDED_JSON, _ADDED_TOML = ',"args": ', "added by upwell"
"""What shows that a server had no arguments before it was wrapped: a form that nobody else writes,
and a comment."""
_OUR_KEYS = {"environment": "env", "http_headers": "headers"}


class EditFormat(Protocol):
    """A file format whose text can be edited in place. Editing raises ConfigError if the text is
    malformed or cannot be edited safely."""

    def value(self, text: str) -> dict[str, Any]:
        """The content of the file.

        Raises:
            ConfigError: the text is malformed or is not a table.
        """
        ...

    def without(self, text: str, table: KeyPath, names: Collection[str]) -> str:
        """`text` without these members of `table`."""
        ...

    def put(self, text: str, table: KeyPath, name: str, value: Mapping[str, Any]) -> str:
        """`text` with the member `name` added to `table`. A missing table is created."""
        ...

    def with_command(self, text: str, entry: KeyPath, words: Sequence[str]) -> str:
        """`text` with the command line of the server at `entry` replaced. The arguments at the end
        that stay the same are not touched. The command line is a list `command`, or `command` and
        the list `args`."""
        ...

    def shown(self, text: str, hides: Hides) -> str:
        """`text` with `***` in place of every value that `hides()` selects."""
        ...


class Json:
    """JSON with comments."""

    def value(self, text: str) -> dict[str, Any]:
        value = parse(text).value if text.strip(_BOM + " \t\r\n") else {}
        if not isinstance(value, dict):
            raise ConfigError(
                "the file must hold an object", hint="fix the file first; it was not changed"
            )
        return value

    def without(self, text: str, table: KeyPath, names: Collection[str]) -> str:
        node = node_at(text, table)
        part = text[node.start : node.end]
        for name in names:
            while name in parse(part).keys:
                part = without_child(part, (), name)
        return text[: node.start] + part + text[node.end :]

    def put(self, text: str, table: KeyPath, name: str, value: Mapping[str, Any]) -> str:
        if not text.strip(_BOM + " \t\r\n"):
            text += "{}\n"
        parent: Any = parse(text).value
        for depth, key in enumerate(table):
            if not isinstance(parent, dict) or key not in parent:
                branch: Any = {name: value}
                for missing_key in reversed(table[depth + 1 :]):
                    branch = {missing_key: branch}
                return same_line_endings(text, with_child(text, table[:depth], branch, key))
            parent = parent[key]
        return same_line_endings(text, with_child(text, table, value, name))

    def with_command(self, text: str, entry: KeyPath, words: Sequence[str]) -> str:
        command, args = node_at(text, (*entry, "command")), node_at(text, entry).under("args")
        if command.is_list:
            return _with_words(text, command, words)
        if args is None:
            rest = json.dumps(words[1:], ensure_ascii=False)
            text = f"{text[: command.end]}{_ADDED_JSON}{rest}{text[command.end :]}"
        elif not words[1:] and text[command.end : args.start] == _ADDED_JSON:
            text = text[: command.end] + text[args.end :]
        elif args.is_list:
            text = _with_words(text, args, words[1:])
        else:
            text = _put(text, args, words[1:])
        return _put(text, node_at(text, (*entry, "command")), words[0])

    def with_list(self, text: str, path: KeyPath, words: Sequence[str]) -> str:
        """`text` with these words in the list at `path`, which must exist. The words at its end
        that stay the same are not touched."""
        return _with_words(text, node_at(text, path), words)

    def shown(self, text: str, hides: Hides) -> str:
        if not text.strip(_BOM + " \t\r\n"):
            return text
        for start, end in sorted(_hidden_spans(parse(text), (), hides), reverse=True):
            text = f'{text[:start]}"{HIDDEN}"{text[end:]}'
        return text


class Toml:
    """TOML in which every member is a table of its own, `[TABLE.NAME]`."""

    def value(self, text: str) -> dict[str, Any]:
        try:
            return tomllib.loads(text.removeprefix(_BOM))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(
                f"invalid TOML: {error}", hint="fix the file first; it was not changed"
            ) from error

    def without(self, text: str, table: KeyPath, names: Collection[str]) -> str:
        for name in names:
            text = self._without(text, table, name)
        return text

    def put(self, text: str, table: KeyPath, name: str, value: Mapping[str, Any]) -> str:
        import tomlkit

        expected = self.value(text)
        expected.setdefault(table[0], {})[name] = dict(value)
        document = tomlkit.document()
        outer = tomlkit.table(is_super_table=True)
        outer[name] = tomlkit.item(dict(value))
        document[table[0]] = outer
        gap = "" if not text.strip(_BOM) else "\n" if text.endswith("\n") else "\n\n"
        edited = same_line_endings(text, text + gap + tomlkit.dumps(document))
        return self._verified(edited, expected, table)

    def with_command(self, text: str, entry: KeyPath, words: Sequence[str]) -> str:
        import tomlkit
        from tomlkit.exceptions import TOMLKitError

        expected, mark = self.value(text), _BOM if text.startswith(_BOM) else ""
        expected_server = _at(expected, entry)
        expected_server.update(command=words[0], args=list(words[1:]))
        try:
            document: Any = tomlkit.parse(text.removeprefix(_BOM))
            server = _at(document, entry)
            server["command"] = words[0]
            _put_args(server, words[1:])
            if "args" not in server:
                del expected_server["args"]
            edited = mark + tomlkit.dumps(document)
        except TOMLKitError:
            raise _unsafe(entry) from None
        return self._verified(edited, expected, entry)

    def shown(self, text: str, hides: Hides) -> str:
        import tomlkit

        document = tomlkit.parse(text.removeprefix(_BOM))
        _mask(document, (), hides)
        return tomlkit.dumps(document)

    def _without(self, text: str, table: KeyPath, name: str) -> str:
        expected = self.value(text)
        del expected[table[0]][name]
        remaining: list[str] = []
        removed: list[str] | None = None
        for line in text.splitlines(keepends=True):
            if _HEADER.match(line):
                remaining += _trailing_comments(removed or [], remaining)
                removed = [] if _begins_table(line, (*table, name)) else None
            (remaining if removed is None else removed).append(line)
        comments = _trailing_comments(removed or [], remaining)
        if removed and not comments and remaining and not remaining[-1].strip():
            remaining.pop()
        return self._verified("".join([*remaining, *comments]), expected, table)

    def _verified(self, edited: str, expected: dict[str, Any], table: KeyPath) -> str:
        try:
            actual: Any = self.value(edited)
        except ConfigError:
            actual = None
        if actual is None or _pruned(actual, table[0]) != _pruned(expected, table[0]):
            raise _unsafe(table)
        return edited


JSON, TOML = Json(), Toml()


def _unsafe(table: KeyPath) -> ConfigError:
    return ConfigError(
        f"`{table[0]}` is written in a form that cannot be edited safely",
        hint=f"write its members as [{table[0]}.NAME], each before its inner tables; the file was "
        "not changed",
    )


def same_line_endings(before: str, after: str) -> str:
    """`after` with CRLF line endings if all lines of `before` have them."""
    crlf = before.count("\r\n")
    if not crlf or crlf != before.count("\n"):
        return after
    return re.sub(r"(?<!\r)\n", "\r\n", after)


def _put_args(server: Any, words: Sequence[str]) -> None:
    """Change the arguments of a server of tomlkit. If they were added for its wrapper, and there
    are none now, they are removed."""
    if "args" not in server:
        server["args"] = []
        server["args"].comment(_ADDED_TOML)
    elif not isinstance(server["args"], list):
        server["args"] = []
    args = server["args"]
    if not words and args.trivia.comment == f"# {_ADDED_TOML}":
        del server["args"]
        return
    kept = _same_at_end(args, words)
    for _ in range(len(args) - kept):
        del args[0]
    for word in reversed(words[: len(words) - kept]):
        args.insert(0, word)


def _put(text: str, node: JsoncNode, value: Any) -> str:
    return text[: node.start] + json.dumps(value, ensure_ascii=False) + text[node.end :]


def _with_words(text: str, node: JsoncNode, words: Sequence[str]) -> str:
    """`text` with these words in the list `node`."""
    kept = _same_at_end(node.value, words)
    new = [json.dumps(word, ensure_ascii=False) for word in words[: len(words) - kept]]
    if not node.items:
        return text[: node.start + 1] + ", ".join(new) + text[node.start + 1 :]
    if not words:
        rest = _FIRST_COMMA.sub("", text[node.items[-1].end :])
        return text[: node.items[0].start] + rest
    space = text[node.start + 1 : node.items[0].start]
    between = "," + (space if "\n" in space and not space.strip() else " ")
    start = node.items[0].start
    end = node.items[-kept].start if kept else node.items[-1].end
    inserted = "".join(word + between for word in new) if kept else between.join(new)
    return text[:start] + inserted + text[end:]


def _same_at_end(earlier: Sequence[Any], later: Sequence[Any]) -> int:
    """How many items at the end of both are the same."""
    pairs = zip(reversed(earlier), reversed(later), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _at(value: Any, path: KeyPath) -> Any:
    for key in path:
        value = value[key]
    return value


def _hidden_spans(node: JsoncNode, path: KeyPath, hides: Hides) -> list[tuple[int, int]]:
    if node.items and node.keys:
        pairs: Sequence[tuple[str, JsoncNode]] = list(zip(node.keys, node.items, strict=True))
        return [s for key, item in pairs for s in _hidden_spans(item, (*path, key), hides)]
    if node.items:
        return [s for item in node.items for s in _hidden_spans(item, path, hides)]
    return [(node.start, node.end)] if _is_hidden(path, node.value, hides) else []


def _is_hidden(path: KeyPath, value: Any, hides: Hides) -> bool:
    """Whether `hides()` selects the value at `path`. `hides()` receives the key as it would be in
    `config.toml`: `api_key` for `apiKey`, and `env` for `environment`.
    """
    words = (_CAMEL.sub(r"\1_\2", _OUR_KEYS.get(key, key)) for key in path)
    return bool(path) and hides(".".join(words).lower(), value)


def _mask(table: Any, path: KeyPath, hides: Hides) -> None:
    for key, value in list(table.items()):
        if isinstance(value, Mapping):
            _mask(value, (*path, key), hides)
        elif _is_hidden((*path, key), value, hides):
            table[key] = HIDDEN
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, Mapping):
                    _mask(item, (*path, key), hides)


def _begins_table(line: str, path: KeyPath) -> bool:
    """True if this line is the header of the table at `path` or of a table inside it."""
    try:
        table: Any = tomllib.loads(line.removeprefix(_BOM))
    except tomllib.TOMLDecodeError:
        return False
    for key in path:
        if not isinstance(table, dict) or key not in table:
            return False
        table = table[key]
    return True


def _trailing_comments(removed: list[str], remaining: list[str]) -> list[str]:
    """The comments and blank lines at the end of a removed table. They stay in the file, because
    they belong to the next table. Blank lines at the beginning are dropped if `remaining` is empty
    or ends with a blank line."""
    start = len(removed)
    while start and (not removed[start - 1].strip() or removed[start - 1].lstrip()[0] == "#"):
        start -= 1
    comments = removed[start:]
    if not remaining or not remaining[-1].strip():
        while comments and not comments[0].strip():
            comments = comments[1:]
    return comments


def _pruned(value: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: item for name, item in value.items() if name != key or item}
