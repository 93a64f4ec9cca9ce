"""What a setting wants, in the words of who writes it: "a whole number of milliseconds, like 300",
never the name of a type; and the line of a file on which it stands."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

UNITS: Mapping[str, str] = {
    "seconds": "seconds",
    "minutes": "minutes",
    "days": "days",
    "ms": "milliseconds",
    "bytes": "bytes",
    "chars": "characters",
    "tokens": "tokens",
}
"""What is counted, by the last word of a setting's name."""


def wanted(kind: Any, name: str, default: Any) -> str:
    """What the option `name` of the type `kind` takes. `default` serves as an example."""
    kind = _without_none(kind)
    choices = choices_of(kind)
    if get_origin(kind) is tuple:
        listed = choices_of(get_args(kind)[0])
        return f"a list of {', '.join(listed)}" if listed else 'a list of texts, like ["a", "b"]'
    if choices:
        return f"one of {', '.join(filter(None, choices))}"
    if kind is bool:
        return "true or false"
    if kind is int or kind is float:
        return _number(kind, name, default)
    if kind is str:
        return "a text in quotes"
    if get_origin(get_args(kind)[1]) is Mapping:
        return "tables with a number above 0 for each name, like { howto = { patterns = 1.5 } }"
    values = "value" if Any in get_args(kind) else "text"
    return f'a table of names, each with a {values}, like {{ NAME = "{values}" }}'


def choices_of(kind: Any) -> Sequence[str]:
    """The names that a type allows, where it allows but a few."""
    kind = _without_none(kind)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return [str(choice) for choice in kind]
    return get_args(kind) if get_origin(kind) is Literal else ()


def shown(value: Any) -> str:
    """A value as the file has it, more or less, in one line."""
    if isinstance(value, str):
        return repr(value)
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def line_of(text: str, key: str) -> int | None:
    """On which line of a TOML document the dotted `key` is set, from 1; None where that cannot be
    told. It is the line behind the longest beginning of the document without it."""
    lines = text.splitlines(keepends=True)
    last = key.rpartition(".")[2]
    for number, line in enumerate(lines, 1):
        if last in line and not _sets(lines[: number - 1], key) and _sets_soon(lines, number, key):
            return number
    return None


def _sets_soon(lines: Sequence[str], number: int, key: str) -> bool:
    """Do the lines up to this one set it, with those behind that its value goes on over?"""
    for end in range(number, len(lines) + 1):
        sets = _sets(lines[:end], key)
        if sets is not None:
            return sets
    return False


def _sets(lines: Sequence[str], key: str) -> bool | None:
    """Is `key` in these lines? None: they end within a value."""
    try:
        return _holds(tomllib.loads("".join(lines)), key)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


def _holds(table: Any, key: str) -> bool:
    """A name may have dots of its own, like a pattern of tools."""
    if not isinstance(table, Mapping):
        return False
    return key in table or any(
        key.startswith(f"{name}.") and _holds(value, key.removeprefix(f"{name}."))
        for name, value in table.items()
    )


def _number(kind: Any, name: str, default: Any) -> str:
    number = "a whole number" if kind is int else "a number"
    unit = UNITS.get(name.rpartition("_")[2])
    example = f"{default:g}" if kind is float and default else default
    counted = f"{number} of {unit}" if unit else number
    return f"{counted}, like {example}" if isinstance(default, int | float) and default else counted


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in (Union, UnionType):
        return next(part for part in get_args(kind) if part is not type(None))
    return kind
